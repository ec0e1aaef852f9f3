"""`parley audit bound …`: calculators on the audit's own statistics, for counts that one has."""

from __future__ import annotations

from typing import Annotated, Any

import click
import typer
from typer import Option

from parley import audit_bounds
from parley.command_options import AsJson
from parley.privacy.accounting.rounding import format_exact, format_rounded_down
from parley.safe_io.error_translation import translate_errors
from parley.safe_io.json_writing import format_json

bound_app = typer.Typer(
    suggest_commands=False,
    no_args_is_help=True,
    help="Compute a lower bound on ε from counts of your own "
    "attack.\n\nThe result is a lower bound, "
    "not an estimate. It holds with the stated confidence.",
)

Confidence = Annotated[float, Option(help="1 − α, above ½ and below 1.")]
Delta = Annotated[float, Option(help="δ of the claim.")]


@bound_app.command()
def pair(
    hits_in: Annotated[str, Option(help="HITS/TRIALS of the event with the canary.")],
    hits_out: Annotated[str, Option(help="HITS/TRIALS of the event without the canary.")],
    confidence: Confidence = 0.95,
    delta: Delta = 1e-5,
    as_json: AsJson = False,
) -> None:
    """Bound ε by how often one event happens with and without a canary. Any noise."""
    _print_bound("pair", as_json, *(hits_in, hits_out), confidence=confidence, delta=delta)


@bound_app.command()
def mu(
    false_positives: Annotated[str, Option(help="ERRORS/TRIALS without the canary.")],
    false_negatives: Annotated[str, Option(help="ERRORS/TRIALS with the canary.")],
    confidence: Confidence = 0.95,
    delta: Delta = 1e-5,
    as_json: AsJson = False,
) -> None:
    """Bound μ of Gaussian DP, and its ε, by a test's two error rates."""
    errors = (false_positives, false_negatives)
    _print_bound("mu", as_json, *errors, confidence=confidence, delta=delta)


def _add_guess_command(name: str, words: str) -> None:
    """Add a command on the right guesses of one run's coins."""

    @bound_app.command(name, help=words)
    def command(
        canaries: Annotated[
            int, Option(min=1, help="Number of canaries, each included by a fair coin.")
        ],
        guesses: Annotated[int, Option(min=0, help="Number of guesses, fixed beforehand.")],
        right: Annotated[int, Option(min=0, help="Number of right guesses.")],
        confidence: Confidence = 0.95,
        delta: Delta = 1e-5,
        as_json: AsJson = False,
    ) -> None:
        seen = {"canaries": canaries, "guesses": guesses, "right": right}
        _print_bound(name, as_json, **seen, confidence=confidence, delta=delta)


_add_guess_command("one-run", "Bound ε by one run with many canaries. Any noise.")
_add_guess_command("one-run-fdp", "Bound ε by one run with many canaries. Assumes Gaussian DP.")


@bound_app.command()
def factor(
    law: Annotated[str, Option(help="gaussian, l2-laplace or laplace-l1.")],
    vectors: Annotated[int, Option(min=1, help="Number of noise vectors seen.")],
    dimension: Annotated[int, Option(min=1, help="Dimension of each vector.")],
    mean_norm: Annotated[
        float,
        Option(
            help="Mean L2 norm (l2-laplace), mean L1 norm (laplace-l1), or root mean square of "
            "the L2 norm (gaussian)."
        ),
    ],
    sensitivity: Annotated[float, Option(help="Sensitivity Δ, in the unit of the noise.")] = 1.0,
    reach: Annotated[float, Option(help="Fraction of Δ that neighbouring data sets reach.")] = 1.0,
    confidence: Confidence = 0.95,
    delta: Delta = 1e-5,
    as_json: AsJson = False,
) -> None:
    """Bound ε by the measured size of the noise. Assumes the shape of its distribution."""
    seen = {"law": law, "vectors": vectors, "dimension": dimension, "mean_norm": mean_norm}
    asked = {"sensitivity": sensitivity, "reach": reach, "confidence": confidence, "delta": delta}
    _print_bound("factor", as_json, residuals=seen, **asked)


def _print_bound(method: str, as_json: bool, *counts: str, **asked: Any) -> None:
    """Print a bound. A number that it refuses is wrong input."""
    with translate_errors(ValueError, click.UsageError):
        seen: list[Any] = [audit_bounds.Hits.parse(each) for each in counts]
        if "residuals" in asked:
            seen.append(audit_bounds.Residuals.from_mean_norm(**asked.pop("residuals")))
        bound = audit_bounds.BOUNDS[method](*seen, **asked)
    if as_json:
        typer.echo(format_json(bound.to_json()))
        return
    mu_text = "" if bound.mu_lower is None else f", μ ≥ {format_rounded_down(bound.mu_lower)}"
    typer.echo(
        f"ε ≥ {format_rounded_down(bound.epsilon_lower)} at δ = "
        f"{format_exact(bound.delta)}{mu_text} "
        f"(confidence {100 * bound.confidence:g} %, {bound.method})"
    )
