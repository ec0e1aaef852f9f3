"""Define the explanation of each noise distribution, for terminal, report and model metadata."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LawText:
    """A sentence on what is drawn, and the letter of its scale.

    Attributes:
        symbol_with_count: the letter if a fraction of clipped gradients is released too, which
            takes a share of the noise's precision.
        on_batches: the noise is on sums over batches, several per round, and not on an average.
    """

    sentence: str
    symbol: str = "b"
    symbol_with_count: str = ""
    on_batches: bool = False

    def get_symbol(self, *, counted: bool) -> str:
        """Return the scale's letter, with or without a released fraction of clipped gradients."""
        return self.symbol_with_count if counted and self.symbol_with_count else self.symbol


LAWS: dict[str, LawText] = {
    "gaussian": LawText(
        symbol="σ",
        sentence="Rounded Gaussian noise: every coordinate of the sum gets its own draw of "
        "N(0, σ²), rounded to the grid of integers.",
    ),
    "discrete-gaussian": LawText(
        symbol="σ",
        sentence="Discrete Gaussian noise: every coordinate of the sum gets its own integer, drawn "
        "exactly with probability proportional to exp(−z²/2σ²).",
    ),
    "l2-laplace": LawText(
        sentence="L2 Laplace noise: one vector with density proportional to exp(−‖z‖₂/b), rounded "
        "to the grid of integers. Its direction is uniform and its length follows a Gamma law."
    ),
    "laplace": LawText(
        sentence="Laplace noise: every cell of the sum gets its own discrete Laplace draw, of a "
        "scale b that covers how far one record moves all cells together."
    ),
    "laplace-l1": LawText(
        sentence="Laplace noise, calibrated in L1: every coordinate of the sum gets its own "
        "discrete Laplace draw, wide enough for the whole vector to be pure differential privacy."
    ),
    "laplace-as-printed": LawText(
        sentence="Laplace noise as printed in the paper: every coordinate gets its own draw of "
        "scale b. For a vector of d coordinates that costs √d times the requested ε (same "
        "unit and relation). The run charged the real cost."
    ),
    "objective-perturbation": LawText(
        sentence="Noise inside every party's objective, of density proportional to "
        "exp(−ε′‖b‖₂/2), and L2 Laplace noise of scale b on the optimum that its solver "
        "certified, which covers its distance from the exact optimum."
    ),
    "dp-sgd": LawText(
        symbol="σC",
        symbol_with_count="σ′C",
        on_batches=True,
        sentence="DP-SGD in the party: it rounds every batch's sum of clipped gradients to a grid "
        "and adds a draw of N(0, (σC)²) to every coordinate.",
    ),
    "sampled-gaussian": LawText(
        symbol="σ",
        on_batches=True,
        sentence="Noise on sums over batches or over sampled parties: every sum of clipped "
        "gradients, or of clipped updates, gets a draw of N(0, σ²) in every coordinate, rounded to "
        "the integers' grid.",
    ),
}


def get_law_text(law: str) -> LawText:
    """Return the text of a distribution; of one without a row, only its name."""
    unknown = f"Noise law: {law or 'not known before the run ends'}."
    return LAWS.get(law, LawText(sentence=unknown))
