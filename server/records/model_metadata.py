"""Build the metadata of `model.safetensors`: tensors, how to read rows, privacy statement."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.feature_map import describe_feature_map
from parley.client.contract.model_state import select_components
from parley.safe_io.json_writing import format_json
from parley.safe_io.plurals import format_noun
from parley.server.model_file import MODEL_VERSION
from parley.server.records import guarantee_text

if TYPE_CHECKING:
    from parley.client.contract.model_state import State
    from parley.server.records.run_summary import RunSummary

_NO_FEATURES: Mapping[str, Any] = MappingProxyType({})


def build_model_tensors(theta: NDArray[np.float64], state: State) -> dict[str, NDArray[np.float64]]:
    """Return the tensors of `model.safetensors`: the model, and the components for its rows."""
    return {"theta": theta, **select_components(state)}


def build_model_description(
    task: Mapping[str, Any],
    *,
    label: str,
    intercept: bool,
    schema: str,
    features: Mapping[str, Any] = _NO_FEATURES,
) -> dict[str, str]:
    """Return the metadata of `model.safetensors` that a prediction needs: only values, no code.

    Args:
        label: how labels are read: logistic, softmax, ridge or network.
        features: name, settings and digest of the public feature map; empty: none.
    """
    description = {
        "version": MODEL_VERSION,
        "task": dict(task),
        "label": label,
        "intercept": intercept,
        "schema": schema,
        **({"features": dict(features)} if features else {}),
    }
    said = {"parley.features": describe_feature_map(features)} if features else {}
    return {"parley.model": format_json(description), **said}


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
