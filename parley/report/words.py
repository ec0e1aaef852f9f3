"""The report's sentences: what a run's figures mean, in words that claim no more than is proved.

Plain text comes out, never markup: `report.py` escapes it. A sentence with an ε in it says the
unit and the neighbouring relation too. ε is rounded up, so that no figure promises too much.
"""

import math
from collections.abc import Mapping

from parley.privacy.accounting.rounding import shown_up
from parley.report.record import RunRecord

__all__ = [
    "adversary",
    "algorithm_name",
    "assumptions",
    "byte_text",
    "cost",
    "duration",
    "epsilon_text",
    "headline",
    "metric_title",
    "model_name",
    "noise_words",
    "number",
    "relation",
    "secure_sum_words",
    "status_words",
    "symbol",
    "unit",
]

_MODELS = {
    "logistic": "logistic regression",
    "softmax": "softmax regression",
    "ridge": "ridge regression",
    "huber-svm": "Huber SVM",
    "mlp": "multilayer perceptron",
    "pca-mlp": "multilayer perceptron on principal components",
    "cnn": "convolutional network",
    "none": "statistic",
}
_RELATIONS = {
    "replace-one": "neighbours differ by replacing one {unit}",
    "add-or-remove-one": "neighbours differ by adding or removing one {unit}",
}
_LAWS = {
    "gaussian": "Rounded Gaussian noise: every coordinate of the sum gets its own draw of "
    "N(0, σ²), rounded to the grid of integers.",
    "discrete-gaussian": "Discrete Gaussian noise: every coordinate of the sum gets its own "
    "integer, drawn exactly with probability proportional to exp(−z²/2σ²).",
    "l2-laplace": "L2 Laplace noise: one vector with density proportional to exp(−‖z‖₂/b), rounded "
    "to the grid of integers. Its direction is uniform and its length follows a Gamma law.",
    "laplace-l1": "Laplace noise, calibrated in L1: every coordinate of the sum gets its own "
    "discrete Laplace draw, wide enough for the whole vector to be pure differential privacy.",
    "laplace-as-printed": "Laplace noise as printed in the paper: every coordinate gets its own "
    "draw of scale b. For a vector of d coordinates that costs √d times the ε it was asked for "
    "(same unit and relation), and that is what was charged.",
}
_LAWS["dp-sgd"] = (
    "DP-SGD in the party: every batch's sum of clipped gradients is rounded to a grid and gets "
    "its own draw of N(0, (σC)²) in every coordinate."
)
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float | None, digits: int = 3) -> str:
    """``value`` for a reader, to ``digits`` significant digits.

    >>> number(0.0839047), number(1e-05), number(2.43e-05), number(-70000), number(None)
    ('0.0839', '10⁻⁵', '2.43 × 10⁻⁵', '−70,000', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e7:
        if abs(value) >= 10**digits or float(value).is_integer():
            return f"{value:,.0f}".replace("-", "−")
        places = digits - 1 - math.floor(math.log10(abs(value)))
        return f"{value:.{places}f}".replace("-", "−")
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
    mantissa = mantissa.rstrip("0").rstrip(".").replace("-", "−")
    return power if mantissa == "1" else f"{mantissa} × {power}"


def epsilon_text(value: float | None) -> str:
    """ε to four significant digits, rounded up: never less than what was charged.

    >>> epsilon_text(1.98441), epsilon_text(2.0), epsilon_text(0.1 + 0.2), epsilon_text(None)
    ('1.985', '2', '0.3', '–')
    """
    if value is None or not math.isfinite(value):
        return number(value)
    return shown_up(value, 4)


def cost(value: float | None, digits: int = 3) -> str:
    """`number`, rounded up: δ, ρ, and whatever else says how much may be learned.

    >>> cost(1.2341e-05), cost(1e-05), cost(2.7182), cost(None)
    ('1.24 × 10⁻⁵', '10⁻⁵', '2.72', '–')
    """
    if value is None or not math.isfinite(value):
        return number(value, digits)
    return number(float(shown_up(value, digits)), digits)


def duration(seconds: float | None) -> str:
    """A time span.

    >>> duration(0.0074), duration(4.2), duration(192), duration(7300)
    ('7.4 ms', '4.2 s', '3 min 12 s', '2 h 1 min')
    """
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1e3:.2g} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def byte_text(count: float) -> str:
    """A size in powers of ten.

    >>> byte_text(812), byte_text(41_600), byte_text(8_320_000)
    ('812 B', '41.6 kB', '8.32 MB')
    """
    for unit_name, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{number(count / size)} {unit_name}"
    return f"{count:.0f} B"


def unit(run: RunRecord) -> str:
    """The unit of privacy beside an ε: "per record"."""
    return f"per {run.unit}"


def relation(run: RunRecord) -> str:
    """The neighbouring relation beside an ε."""
    known = _RELATIONS.get(run.neighbouring)
    return known.format(unit=run.unit) if known else f"neighbouring relation: {run.neighbouring}"


def algorithm_name(run: RunRecord) -> str:
    """The algorithm as a reader calls it."""
    from parley.client.algorithms.registry import (  # noqa: PLC0415 - start-up: it loads numpy
        ALGORITHMS,
    )

    if run.algorithm in ALGORITHMS:
        return ALGORITHMS[run.algorithm].title
    # One's own, file.py:Class; its file need not be here.
    return run.algorithm.rpartition(":")[2].replace("-", " ") or "an algorithm"


def model_name(run: RunRecord) -> str:
    """The model as a reader calls it."""
    return _MODELS.get(run.model, f"{run.model} model".strip())


def metric_title(run: RunRecord) -> str:
    """What the figure called accuracy measures for this model."""
    return "R²" if run.metric == "r2" else "Accuracy"


def headline(run: RunRecord) -> str:
    """What was learned, from what, by whom."""
    data = run.data.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    who = "one party" if run.parties == 1 else f"{number(run.parties)} parties"
    what = model_name(run)
    return f"{what[:1].upper()}{what[1:]}{f' on {data}' if data else ''}, learned by {who}"


def status_words(run: RunRecord) -> str:
    """How the run ended, in one sentence."""
    if run.rounds_planned > 1 or run.rounds_done != run.rounds_planned:
        rounds = f"{number(run.rounds_done)} of {number(run.rounds_planned)} rounds"
    else:
        rounds = "its one round"
    if run.status == "complete":
        every = rounds if run.rounds_planned <= 1 else f"all {number(run.rounds_planned)} rounds"
        return f"Complete: {every} ran."
    if run.status == "interrupted":
        return (
            f"Interrupted after {rounds}. Resume it with `parley run --resume` and this run's "
            "folder: nothing is released or paid for twice."
        )
    reason = f" {run.reason}" if run.reason else ""
    if run.status == "budget-exhausted":
        return f"Budget exhausted after {rounds}: the run ended there, its last model kept.{reason}"
    if run.status == "too-few-survivors":
        return f"Stopped after {rounds}: too few parties survived the next one.{reason}"
    return f"{run.status.replace('-', ' ').capitalize()} after {rounds}.{reason}"


def symbol(run: RunRecord) -> str:
    """The letter of the noise's scale: σ for Gaussians, b for Laplace laws."""
    if run.law == "dp-sgd":
        return "σ′C" if run.clipped else "σC"
    return "σ" if "gaussian" in run.law else "b"


def noise_words(run: RunRecord) -> list[str]:
    """What noise was added, where, and what it was drawn from: one sentence an item."""
    words = [_LAWS.get(run.law, f"Noise law: {run.law or 'not written down yet'}.")]
    every = "In every round it is" if run.rounds_planned > 1 else "It was"
    where = {
        "server": "added once, to the integer sum, before anything is decoded.",
        "share": "added in shares, one a party, so that nobody ever holds the bare sum.",
        "party": "added by each party to its own contribution, before it leaves.",
    }
    if run.noise_point in where:
        words.append(f"{every} {where[run.noise_point]}")
    if run.sensitivity and run.noise_scale and run.law == "dp-sgd":
        words.append(
            f"Changing one {run.unit} moves a sum by at most {number(run.sensitivity)}; the "
            f"noise's standard deviation is {number(run.noise_scale)}."
        )
    elif run.sensitivity and run.noise_scale:
        words.append(
            f"Changing one {run.unit} moves the average by at most {number(run.sensitivity)}; "
            f"the noise's scale on the average, {symbol(run)} = {number(run.noise_scale)}, is "
            f"{number(run.noise_scale / run.sensitivity)} times that."
        )
    if run.noise_point == "server" and run.parties > 1:
        words.append(
            "The noise on the sum doesn't depend on who dropped out: with fewer parties in the "
            "sum the average is noisier, never less private."
        )
    if run.seeded is not None:
        words.append(
            "It was drawn from a seed, so that the simulation can be repeated to the bit."
            if run.seeded
            else "It was drawn from a cryptographic stream keyed by the operating system's entropy."
        )
    return words


def secure_sum_words(run: RunRecord) -> list[str]:
    """Which secure sum ran, and what was checked."""
    mode = run.secure_sum.get("mode")
    if mode == "masked":
        words = [
            "The masking protocol ran: each contribution left its party under pairwise masks that "
            "cancel in the sum, and only the sum was unmasked."
        ]
        if run.simulated:
            words.append(
                "All parties and the server shared this one process, so the run shows the "
                "protocol's work and its result; hiding takes processes of their own."
            )
    elif mode == "ideal":
        ring = run.secure_sum.get("ring_bits", "b")
        words = [
            "The ideal functionality ran: the sum over the surviving parties was taken directly, "
            f"modulo 2^{ring}, which is the sum that masking gives. In this mode "
            "nothing hides a contribution from the process that adds it up."
        ]
    else:
        words = [f"Secure aggregation: {mode or 'not written down yet'}."]
    check = run.secure_sum.get("masked_check")
    if isinstance(check, str) and check:
        words.append(f"Masked check: {check}{'' if check.endswith('.') else '.'}")
    elif check is True:
        words.append("One round was run through the masking protocol too, and gave the same bits.")
    elif isinstance(check, Mapping) and check:
        facts = ", ".join(f"{key} {value}" for key, value in check.items())
        words.append(f"Masked check: {facts}.")
    elif mode == "ideal":
        words.append("No masked round was run as a check.")
    return words


def adversary(run: RunRecord) -> str:
    """The guarantee in one plain paragraph."""
    if run.epsilon is None or run.delta is None:
        return "No release was charged, so there is nothing to guarantee yet."
    released = (
        f"all {number(run.rounds_done)} models this run released"
        if run.rounds_done > 1
        else "the model this run released"
    )
    one, whole = ("one record", "that record") if run.unit == "record" else (
        f"one {run.unit}'s records", f"that {run.unit}'s records"
    )  # fmt: skip
    without = (
        f"had {whole} been left out"
        if run.neighbouring == "add-or-remove-one"
        else f"had {whole} been any other"
    )
    seeded = (
        "With noise from a seed this run promises nothing; this is what the same run promises with "
        "noise from the operating system's entropy. "
        if run.seeded
        else ""
    )
    slack = f", plus at most δ = {cost(run.delta)}" if run.delta else ""
    return (
        f"{seeded}Somebody who sees {released}, and who knows every other record, learns "
        f"little about {one}. Whatever they conclude is at most e^ε ≈ {_factor(run.epsilon)} "
        f"times as likely{slack}, as it would have been {without}. That is ε = "
        f"{epsilon_text(run.epsilon)} at δ = {cost(run.delta)}, {unit(run)}; {relation(run)}. "
        "It doesn't promise that nothing is learned about people in general: what "
        "holds for many records is what the model is for."
    )


def _factor(epsilon: float) -> str:
    return "∞" if epsilon > 700 else cost(math.exp(epsilon))


def assumptions(run: RunRecord) -> list[str]:
    """What the guarantee rests on, and what it doesn't cover: one item each."""
    items = []
    if run.seeded:
        items.append(
            "Nobody has the seed. Seeded noise protects nobody: whoever has the seed can take the "
            "noise off again, and it is in the job below."
        )
    items += _against(run)
    if run.secure_sum.get("mode") == "masked":
        items.append(
            "Parties and server follow the protocol (semi-honest), and fewer parties than its "
            "threshold collude with the server. Then it sees the sum and no single contribution"
            + (
                ", once each runs on its own machine; in this simulation one process held them all."
                if run.simulated
                else "."
            )
        )
    else:
        items.append(
            "Parties and server follow the protocol (semi-honest). Single contributions were not "
            "hidden from the process that added them up; the guarantee is about what was released."
        )
    items.append(f"{_which(run)}{_bounded(run)}")
    sizes = "every party's number of records" if run.weights == "size" else (
        f"the least number of records of a party ({number(run.min_records)})"
        if run.min_records
        else "the least number of records of a party"
    )  # fmt: skip
    items += [
        f"Public, and not protected: {sizes}, the number of parties, who took part in which round, "
        "the schema and the job.",
        _ledger_reach(run),
    ]
    return items


def _against(run: RunRecord) -> list[str]:
    """Whom the noise protects from, by where it is added."""
    point = run.noise_point
    bounds = run.record_bounds if run.unit == "record" else {}
    lower_outside = bounds.get("charged") == "outer"
    told = {
        "server": "The noise is added where the sum is: for a moment the server holds the sum "
        "without noise. The guarantee is against everyone who sees the models, not against a "
        "server that looks at, keeps or passes on that sum, or adds less noise than agreed.",
        "share": "Enough parties are honest: each adds its share of the noise, and the shares of "
        "the least number of honest survivors make up the whole.",
        "party": "Each party adds its own noise, so the guarantee holds against the server too.",
    }.get("server" if lower_outside else point)
    items = [] if told is None else [f"{_which(run)}{told}"]
    if run.components and point == "party":
        items.append(
            "The principal components, released once before round 1, are the exception: their "
            "noise is added where the sum is, and for a moment the server holds the parties' sum "
            "of second moments without it. Against the server the guarantee is that of the rounds."
        )
    if lower_outside:
        items.append(
            "What was charged for a record is the bound of the server's noise on the sum, the "
            "lower of two that are proved for the released models; nobody may be shown a single "
            "update beside them. By the noise of its party alone, which holds against the server "
            f"too, a record's ε is {epsilon_text(bounds['inner']['epsilon'])} at δ = "
            f"{cost(run.delta)}, {unit(run)}; {relation(run)}."
        )
    elif bounds:
        items.append(
            "The server's noise on the sum bounds a record too, less tightly: ε = "
            f"{epsilon_text(bounds['outer']['epsilon'])} at δ = {cost(run.delta)}, {unit(run)}; "
            f"{relation(run)}. The lower bound was charged."
        )
    return items


def _which(run: RunRecord) -> str:
    """Names the guarantee where a run has two."""
    return f"{unit(run).capitalize()}: " if run.party_level else ""


def _ledger_reach(run: RunRecord) -> str:
    adds = "Every other release from the same records, earlier or later, adds to what was spent. "
    if run.shared_ledger:
        return adds + (
            "The ledger that this run shares keeps the total of the runs that use it; "
            "`parley ledger verify` checks it."
        )
    return adds + (
        "This run's ledger knows this run alone: runs that share one (`privacy.ledger`) are "
        "composed and held to one budget. `parley ledger verify` checks it."
    )


def _bounded(run: RunRecord) -> str:
    words = "What one record can move is bounded before any noise is drawn: every row is scaled to "
    words += "Euclidean norm at most 1"
    if run.algorithm == "output-perturbation":
        return f"{words}, and every party certifies that its local optimum is one."
    if run.algorithm == "gradient-perturbation":
        return f"{words}, and a record's gradient is bounded by the loss or clipped."
    if run.law == "dp-sgd":
        return (
            "What one record can move is bounded before any noise is drawn: its gradient is "
            "clipped, in every step. Batches are drawn at random, each record by itself, and "
            "nobody learns which records were in one."
        )
    if run.algorithm == "fedavg":
        clip = run.party_level.get("clip_norm")
        to = f" to length {number(clip)}" if clip else ""
        return (
            "What one party can move is bounded before any noise is drawn: its whole update is "
            f"clipped{to}."
        )
    return f"{words}."
