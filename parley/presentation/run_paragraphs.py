"""Write the report's paragraphs on a run's figures, in words that claim only what is proved.

The functions return plain text, never markup; the templates escape it.
`parley.server.statements.guarantee_text` formats the figures, as in the terminal and in the model's
metadata.
"""

from __future__ import annotations

import math

from parley.client.algorithms.registry import ALGORITHMS
from parley.privacy.accounting.threat_model import Adversary, Neighbouring, Unit, find_noise_point
from parley.server.jobs.section_registry import MODELS
from parley.server.records.guarantee_facts import GuaranteeSummary
from parley.server.records.run_summary import RunSummary
from parley.server.statements.guarantee_text import (
    format_assumptions,
    format_bounds,
    format_guarantee,
    format_unit,
    is_on_batches,
)
from parley.server.statements.noise_law_text import get_law_text
from parley.server.statements.number_format import format_cost, format_number


def format_algorithm_name(run: RunSummary) -> str:
    """Return the algorithm's title for readers."""
    if run.algorithm_title:
        return run.algorithm_title
    if run.algorithm in ALGORITHMS:
        return ALGORITHMS[run.algorithm].title
    # The user's own, file.py:Class. Its file may be missing here.
    return run.algorithm.rpartition(":")[2].replace("-", " ") or "an algorithm"


def _format_data_name(source: str) -> str:
    """Return the data's name for a title: a file, a data set, or the folder of several files.

    >>> (_format_data_name("wards/party-*.csv"), _format_data_name("*.csv"),
    ... _format_data_name("wards/all.csv"))
    ('wards', 'several files', 'all.csv')
    """
    *folders, name = source.replace("\\", "/").rstrip("/").split("/")
    if not set(name) & set("*?["):
        return name
    plain = [folder for folder in folders if folder.strip(".") and not set(folder) & set("*?[")]
    return plain[-1] if plain else "several files"


def format_headline(run: RunSummary) -> str:
    """Return a headline: the model, its data, and the number of parties."""
    data = _format_data_name(run.data)
    who = "one party" if run.parties == 1 else f"{format_number(run.parties)} parties"
    title = MODELS[run.model].title if run.model in MODELS else ""
    what = title or f"{run.model} model".strip()
    return f"{what[:1].upper()}{what[1:]}{f' on {data}' if data else ''}, trained by {who}"


def describe_noise(run: RunSummary, guarantee: GuaranteeSummary) -> str:
    """Describe which noise was added and where."""
    noise = guarantee.noise
    law = get_law_text(guarantee.noise.law)
    point = find_noise_point(guarantee.noise.point)
    said = [law.sentence, point.sentence]
    if noise.sensitivity and noise.scale and not law.on_batches:
        letter = law.get_symbol(counted=run.clipped_fraction is not None)
        said.append(
            f"Changing one {guarantee.unit} moves the average by at most "
            f"{format_number(noise.sensitivity)}. The scale of the noise on the average, {letter} "
            f"= {format_number(noise.scale)}, is {format_number(noise.scale / noise.sensitivity)} "
            "times that."
        )
    elif noise.sensitivity and noise.scale:
        said.append(
            f"Changing one {guarantee.unit} moves a sum by at most "
            f"{format_number(noise.sensitivity)}. The standard deviation of the noise is "
            f"{format_number(noise.scale)}."
        )
    if run.parties > 1:
        said.append(point.dropouts)
    return " ".join(filter(None, said))


def describe_secure_sum(run: RunSummary, *, simulated: bool) -> str:
    """Describe which secure sum ran, and how it was checked."""
    aggregation = run.secure_aggregation
    if aggregation.backend == "masked":
        said = (
            "The masking protocol ran: each contribution left its party with pairwise masks that "
            "cancel in the sum. Only the sum was unmasked."
        )
        return said if not simulated else (
            f"{said} All parties and the server shared this one process, so the run shows the "
            "protocol's work and its result. It hides nothing: that needs separate machines."
        )  # fmt: skip
    if aggregation.backend != "ideal":
        return f"Secure aggregation: {aggregation.backend or 'not known before the run ends'}."
    checked = "" if aggregation.masked_check else " No masked round was run as a check."
    return (
        "The ideal functionality ran: it added the survivors' contributions directly, modulo "
        f"2^{aggregation.ring_bits or 'b'}, with the same sum as masking. It hides no contribution "
        f"from the process that adds them.{checked}"
    )


def describe_guarantee(run: RunSummary, guarantee: GuaranteeSummary) -> str:
    """Describe the guarantee in one plain paragraph."""
    released = "the model this run released"
    if run.rounds_done > 1:
        released = f"all {format_number(run.rounds_done)} models this run released"
    one, whole = ("one record", "that record") if guarantee.unit is Unit.RECORD else (
        f"one {guarantee.unit}'s records", f"that {guarantee.unit}'s records"
    )  # fmt: skip
    without = "any other" if guarantee.neighbouring is Neighbouring.REPLACE_ONE else "left out"
    seeded = (
        "Because its noise comes from a seed, this run has no guarantee. This is the guarantee of "
        "the same run with noise from the operating system's entropy. "
        if run.primary.noise.seeded
        else ""
    )
    slack = f", plus at most δ = {format_cost(guarantee.delta)}" if guarantee.delta else ""
    factor = "∞" if guarantee.epsilon > 700 else format_cost(math.exp(guarantee.epsilon))
    return (
        f"{seeded}A person who sees {released}, and who knows every other record, learns little "
        f"about {one}. Any conclusion is at most e^ε ≈ {factor} times as likely{slack}, as it "
        f"would be if {whole} were {without}. That is "
        f"{format_guarantee(guarantee)}. This does not prevent conclusions about "
        "people in general: the purpose of the model is to learn what holds for many records."
    )


def list_assumptions(run: RunSummary, *, simulated: bool) -> list[str]:
    """Return the guarantees' assumptions and what they do not cover, each once."""
    items = list_trust_assumptions(run, simulated=simulated)
    items += [
        f"Public, and not protected: {describe_public_facts(run)}",
        _describe_ledger_scope(run),
    ]
    return list(dict.fromkeys(items))


def list_trust_assumptions(run: RunSummary, *, simulated: bool) -> list[str]:
    """Return the guarantees' assumptions."""
    items = []
    if run.primary.noise.seeded:
        items.append(
            "No one has the seed. With the seed, anyone can remove the noise again, and the seed "
            "is in the job below. Seeded noise therefore protects no one."
        )
    for of in run.guarantees:
        items += _list_adversaries(run, of)
    items.append(_describe_trust_model(run, simulated=simulated))
    items += [
        f"{_format_guarantee_prefix(run, of)}{_describe_sensitivity(run, of)}"
        for of in run.guarantees
    ]
    items += [
        f"{_format_guarantee_prefix(run, of)}Assumed, not proved: {assumed}."
        for of in run.guarantees
        if (assumed := format_assumptions(of))
    ]
    return items


def describe_public_facts(run: RunSummary) -> str:
    """Describe the facts that no noise covers."""
    least = f" ({format_number(run.min_records)})" if run.min_records else ""
    sizes = f"the minimum number of records of a party{least}"
    if run.weights == "size":
        sizes = "every party's number of records"
    return (
        f"{sizes}, the number of parties, which parties took part in each round, the schema and "
        "the job."
    )


def _list_adversaries(run: RunSummary, guarantee: GuaranteeSummary) -> list[str]:
    """Return texts on the adversaries that the noise protects from, by the noise point."""
    own = guarantee is run.primary
    outside = own and run.record_bounds is not None and run.record_bounds.charged == "outer"
    holds = find_noise_point((run.guarantees[-1] if outside else guarantee).noise.point).holds
    items = [f"{_format_guarantee_prefix(run, guarantee)}{holds}"] if holds else []
    # With noise in shares, the release before round 1 holds against the server too.
    trusting = any(row.charged and row.adversary is Adversary.READERS for row in guarantee.accounts)
    if (
        own
        and run.components
        and find_noise_point(guarantee.noise.point).is_locally_private
        and trusting
    ):
        items.append(
            "Exception: the principal components, released once before round 1. Their noise is "
            "added to the sum, so the server briefly holds the parties' sum of second moments "
            "without noise. Against the server, the guarantee covers only the rounds."
        )
    if own and run.record_bounds is not None:
        shown = " No one may see a single update in addition to the models." if outside else ""
        items.append(f"{format_bounds(run.record_bounds, guarantee)}{shown}")
    return items


def _format_guarantee_prefix(run: RunSummary, guarantee: GuaranteeSummary) -> str:
    """Return a prefix that names the guarantee if a run has two."""
    return f"{format_unit(guarantee).capitalize()}: " if len(run.guarantees) > 1 else ""


def _describe_trust_model(run: RunSummary, *, simulated: bool) -> str:
    if run.secure_aggregation.backend != "masked":
        return (
            "Parties and server follow the protocol (semi-honest). The process that added the "
            "contributions could see each of them; the guarantee covers what was released."
        )
    own = ", if each runs on its own machine; in this simulation one process held them all."
    own = own if simulated else "."
    return (
        "Parties and server follow the protocol (semi-honest), and fewer parties than its "
        "threshold collude with the server. Then the server sees the sum, and no single "
        f"contribution{own}"
    )


def _describe_ledger_scope(run: RunSummary) -> str:
    adds = "Every other release from the same records, earlier or later, adds to the budget spent. "
    if run.ledger:
        from parley.server.statements.data_account_text import format_data_account  # noqa: PLC0415 - spares its code for a run with its own ledger

        known = run.data_accounts or ()
        left = [f"When this run ended, data set {format_data_account(each)}." for each in known]
        return " ".join([adds.strip(), *left]) + (
            " The shared ledger of this run keeps the total of all runs that use it. To check it, "
            "run `parley ledger verify`."
        )
    return adds + (
        "The ledger of this run covers only this run. Runs that share one (`privacy.ledger`) are "
        "composed and share one budget. To check a ledger, run `parley ledger verify`."
    )


_ROWS = (
    "The effect of one record is bounded before any noise is drawn: every row is scaled to "
    "Euclidean norm at most 1"
)


def _describe_sensitivity(run: RunSummary, guarantee: GuaranteeSummary) -> str:
    if is_on_batches(guarantee) and guarantee.unit is Unit.RECORD:
        return (
            "The effect of one record is bounded before any noise is drawn: its gradient is "
            "clipped in every step. Batches are drawn at random, each record independently, and "
            "only their party knows which records were in one."
        )
    if guarantee.unit is Unit.PARTY:
        to = f" to length {format_number(guarantee.clip_norm)}" if guarantee.clip_norm else ""
        return (
            "The effect of one party is bounded before any noise is drawn: its whole update is "
            f"clipped{to}."
        )
    row = ALGORITHMS.get(run.algorithm)
    return f"{_ROWS}{row.bounded if row else ''}."
