"""Write the report's paragraphs on a run's figures, in words that claim only what is proved.

The functions return plain text, never markup; the templates escape it.
`parley.server.records.guarantee_text` formats the figures, as in the terminal and in the model's
metadata.
"""

from __future__ import annotations

import math

from parley.client.algorithms.registry import ALGORITHMS
from parley.privacy.accounting.threat_model import Adversary, Neighbouring, Unit, find_noise_point
from parley.server.jobs.registry import MODELS
from parley.server.records import guarantee_text
from parley.server.records.guarantee_facts import GuaranteeSummary
from parley.server.records.noise_law_text import get_law_text
from parley.server.records.number_format import format_cost, format_number
from parley.server.records.run_summary import RunSummary


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
    return f"{what[:1].upper()}{what[1:]}{f' on {data}' if data else ''}, learned by {who}"


def describe_noise(run: RunSummary, guarantee: GuaranteeSummary) -> str:
    """Describe which noise was added and where."""
    noise, law, point = (
        guarantee.noise,
        get_law_text(guarantee.noise.law),
        find_noise_point(guarantee.noise.point),
    )
    said = [law.sentence, point.sentence]
    if noise.sensitivity and noise.scale and not law.on_batches:
        letter = law.get_symbol(counted=run.clipped_fraction is not None)
        said.append(
            f"Changing one {guarantee.unit} moves the average by at most "
            f"{format_number(noise.sensitivity)}; the "
            f"noise's scale on the average, {letter} = {format_number(noise.scale)}, is "
            f"{format_number(noise.scale / noise.sensitivity)} times that."
        )
    elif noise.sensitivity and noise.scale:
        said.append(
            f"Changing one {guarantee.unit} moves a sum by at most "
            f"{format_number(noise.sensitivity)}; the "
            f"noise's standard deviation is {format_number(noise.scale)}."
        )
    if run.parties > 1:
        said.append(point.dropouts)
    return " ".join(filter(None, said))


def describe_dp_sgd(run: RunSummary) -> str:
    """Describe the meaning of the parties' accounts in DP-SGD."""
    charged_outside = run.record_bounds is not None and run.record_bounds.charged == "outer"
    share = 0.0 if run.dp_sgd is None else run.dp_sgd.clipped_share
    accounts = (
        "These accounts hold against the server too; the run charged the bound by the server's "
        "noise on the sum."
        if charged_outside
        else "The run charges a record the steps of its party alone."
    )
    clipped = (
        f"A share of {share:g} of every step's privacy pays for the fraction of clipped gradients, "
        "which the run releases too. σ is what both releases come to together."
        if share
        else "The run doesn't tell how many gradients it clipped: that would be another release. "
        "With unit record `dp-sgd.clipped-fraction-share` makes it, within the same ε."
    )
    return (
        "In every step a party draws a Poisson batch at rate q, clips every record's gradient to "
        f"length C and adds Gaussian noise. {accounts} {clipped} Every ε here is stated at "
        f"δ = {format_cost(run.primary.delta)}, {guarantee_text.format_scope(run.primary)}."
    )


def describe_secure_sum(run: RunSummary, *, simulated: bool) -> str:
    """Describe which secure sum ran, and how it was checked."""
    aggregation = run.secure_aggregation
    if aggregation.backend == "masked":
        said = (
            "The masking protocol ran: each contribution left its party under pairwise masks that "
            "cancel in the sum, and only the sum was unmasked."
        )
        return said if not simulated else (
            f"{said} All parties and the server shared this one process, so the run shows the "
            "protocol's work and its result. It hides nothing: that takes separate machines."
        )  # fmt: skip
    if aggregation.backend != "ideal":
        return f"Secure aggregation: {aggregation.backend or 'not known before the run ends'}."
    checked = "" if aggregation.masked_check else " No masked round was run as a check."
    return (
        "The ideal functionality ran: it added the survivors' contributions directly, modulo "
        f"2^{aggregation.ring_bits or 'b'}, which gives the sum that masking gives. It hides no "
        f"contribution from the process that adds them.{checked}"
    )


def describe_guarantee(run: RunSummary, guarantee: GuaranteeSummary) -> str:
    """Describe the guarantee in one plain paragraph."""
    released = (
        f"all {format_number(run.rounds_done)} models this run released"
        if run.rounds_done > 1
        else "the model this run released"
    )
    one, whole = ("one record", "that record") if guarantee.unit is Unit.RECORD else (
        f"one {guarantee.unit}'s records", f"that {guarantee.unit}'s records"
    )  # fmt: skip
    without = "any other" if guarantee.neighbouring is Neighbouring.REPLACE_ONE else "left out"
    seeded = (
        "With noise from a seed this run promises nothing; this is what the same run promises with "
        "noise from the operating system's entropy. "
        if run.primary.noise.seeded
        else ""
    )
    slack = f", plus at most δ = {format_cost(guarantee.delta)}" if guarantee.delta else ""
    factor = "∞" if guarantee.epsilon > 700 else format_cost(math.exp(guarantee.epsilon))
    return (
        f"{seeded}Somebody who sees {released}, and who knows every other record, learns "
        f"little about {one}. Whatever they conclude is at most e^ε ≈ {factor} times as likely"
        f"{slack}, as it would have been had {whole} been {without}. That is "
        f"{guarantee_text.format_guarantee(guarantee)}. "
        "It doesn't promise that nothing is learned about people in general: what "
        "holds for many records is what the model is for."
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
            "Nobody has the seed. Seeded noise protects nobody: whoever has the seed can take the "
            "noise off again, and it is in the job below."
        )
    for of in run.guarantees:
        items += _list_adversaries(run, of)
    items.append(_describe_trust_model(run, simulated=simulated))
    items += [
        f"{_format_guarantee_prefix(run, of)}{_describe_sensitivity(run, of)}"
        for of in run.guarantees
    ]
    items += [
        f"{_format_guarantee_prefix(run, of)}Beyond what is proved it is assumed: {assumed}."
        for of in run.guarantees
        if (assumed := guarantee_text.format_assumptions(of))
    ]
    return items


def describe_public_facts(run: RunSummary) -> str:
    """Describe the facts that no noise covers."""
    least = f" ({format_number(run.min_records)})" if run.min_records else ""
    sizes = (
        "every party's number of records"
        if run.weights == "size"
        else f"the least number of records of a party{least}"
    )
    return f"{sizes}, the number of parties, who took part in which round, the schema and the job."


def _list_adversaries(run: RunSummary, guarantee: GuaranteeSummary) -> list[str]:
    """Return texts on the adversaries that the noise protects from, by the noise point."""
    own = guarantee is run.primary
    outside = own and run.record_bounds is not None and run.record_bounds.charged == "outer"
    holds = find_noise_point((run.guarantees[-1] if outside else guarantee).noise.point).holds
    items = [f"{_format_guarantee_prefix(run, guarantee)}{holds}"] if holds else []
    # With noise in shares, the release before round 1 holds against the server too.
    trusting = any(
        each.charged and each.adversary is Adversary.READERS for each in guarantee.accounts
    )
    if (
        own
        and run.components
        and find_noise_point(guarantee.noise.point).is_locally_private
        and trusting
    ):
        items.append(
            "The principal components, released once before round 1, are the exception: their "
            "noise is added where the sum is, and for a moment the server holds the parties' sum "
            "of second moments without it. Against the server the guarantee is that of the rounds."
        )
    if own and run.record_bounds is not None:
        shown = " Nobody may be shown a single update beside the models." if outside else ""
        items.append(f"{guarantee_text.format_bounds(run.record_bounds, guarantee)}{shown}")
    return items


def _format_guarantee_prefix(run: RunSummary, guarantee: GuaranteeSummary) -> str:
    """Return a prefix that names the guarantee if a run has two."""
    return (
        f"{guarantee_text.format_unit(guarantee).capitalize()}: " if len(run.guarantees) > 1 else ""
    )


def _describe_trust_model(run: RunSummary, *, simulated: bool) -> str:
    if run.secure_aggregation.backend != "masked":
        return (
            "Parties and server follow the protocol (semi-honest). Single contributions were not "
            "hidden from the process that added them up; the guarantee is about what was released."
        )
    own = (
        ", once each runs on its own machine; in this simulation one process held them all."
        if simulated
        else "."
    )
    return (
        "Parties and server follow the protocol (semi-honest), and fewer parties than its "
        f"threshold collude with the server. Then it sees the sum and no single contribution{own}"
    )


def _describe_ledger_scope(run: RunSummary) -> str:
    adds = "Every other release from the same records, earlier or later, adds to what was spent. "
    if run.ledger:
        known = run.data_accounts or ()
        left = [
            f"When this run ended, data set {guarantee_text.format_data_account(each)}."
            for each in known
        ]
        return " ".join([adds.strip(), *left]) + (
            " The ledger that this run shares keeps the total of the runs that use it; "
            "`parley ledger verify` checks it."
        )
    return adds + (
        "This run's ledger knows this run alone: runs that share one (`privacy.ledger`) are "
        "composed and held to one budget. `parley ledger verify` checks it."
    )


_ROWS = (
    "What one record can move is bounded before any noise is drawn: every row is scaled to "
    "Euclidean norm at most 1"
)


def _describe_sensitivity(run: RunSummary, guarantee: GuaranteeSummary) -> str:
    if guarantee_text.is_on_batches(guarantee) and guarantee.unit is Unit.RECORD:
        return (
            "What one record can move is bounded before any noise is drawn: its gradient is "
            "clipped, in every step. Batches are drawn at random, each record by itself, and "
            "nobody but their party learns which records were in one."
        )
    if guarantee.unit is Unit.PARTY:
        to = f" to length {format_number(guarantee.clip_norm)}" if guarantee.clip_norm else ""
        return (
            "What one party can move is bounded before any noise is drawn: its whole update is "
            f"clipped{to}."
        )
    row = ALGORITHMS.get(run.algorithm)
    return f"{_ROWS}{row.bounded if row else ''}."
