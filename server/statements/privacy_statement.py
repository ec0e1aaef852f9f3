"""Build the privacy statement of `model.safetensors`: a run's promise, in words and exact keys."""

from __future__ import annotations

from parley.safe_io.json_writing import format_json
from parley.safe_io.plurals import format_noun
from parley.server.records.run_summary import RunSummary
from parley.server.statements import guarantee_text


def build_privacy_statement(summary: RunSummary) -> dict[str, str]:
    """Return the promise as metadata of `model.safetensors`, as text; exact in the keys.

    A run with seeded noise promises nothing, and the statement contains that.
    """
    metadata = {"parley.version": summary.parley_version, "parley.run": summary.run_id}
    for prefix, of in zip(("parley.", "parley.party-"), summary.guarantees, strict=False):
        seeded = "none (seeded noise)" if summary.primary.noise.seeded else ""
        metadata |= {
            f"{prefix}epsilon": seeded or repr(of.epsilon),
            f"{prefix}delta": seeded or repr(of.delta),
            f"{prefix}unit": str(of.unit),
            f"{prefix}neighbouring": str(of.neighbouring),
            f"{prefix}assumptions": format_json(list(of.assumptions or ())),
        }
    said = _format_seeded(summary) if summary.primary.noise.seeded else _format_promised(summary)
    return metadata | {"parley.statement": said}


def _format_seeded(summary: RunSummary) -> str:
    costs = ", and ".join(
        guarantee_text.format_guarantee(of)
        + (f" (assuming: {assumed})" if (assumed := guarantee_text.format_assumptions(of)) else "")
        for of in summary.guarantees
    )
    return (
        "This model carries no privacy guarantee: its noise was drawn from a seed, to be "
        "repeatable. With noise from the operating system's entropy the same run would cost "
        f"{costs}."
    )


def _format_promised(summary: RunSummary) -> str:
    sentences = []
    counted = summary.clipped_fraction is not None
    for of in summary.guarantees:
        noise = guarantee_text.join_facts(
            guarantee_text.build_noise_facts(of, rounds=summary.rounds, counted=counted)
        )
        sentences.append(
            f"Differential privacy of {of.unit.words} over {summary.rounds_done} "
            f"{format_noun(summary.rounds_done, 'release')} of this run: "
            f"{guarantee_text.format_guarantee(of)}, {guarantee_text.format_adversaries(of)}. "
            f"Noise: {noise}."
        )
        if assumed := guarantee_text.format_assumptions(of):
            sentences.append(f"It assumes: {assumed}.")
    ahead = guarantee_text.format_components(summary)
    if ahead:
        sentences.append(f"Before them, {ahead}.")
    if summary.evaluation is not None and summary.evaluation.counts:
        sentences.append(
            "After them, one release of counts of held-out records by label and prediction, "
            "within the same account."
        )
    sentences.append(guarantee_text.format_bounds(summary.record_bounds, summary.primary))
    sentences.append("Other releases from the same records add to this.")
    return " ".join(filter(None, sentences))
