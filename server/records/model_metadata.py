"""What `model.safetensors` says of itself: its tensors, how rows are read, and the promise."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.feature_map import features_statement
from parley.client.contract.model_state import components_in
from parley.safe_io.json_writing import json_text
from parley.safe_io.plurals import noun
from parley.server.model_file import MODEL_VERSION
from parley.server.records import guarantee_text

if TYPE_CHECKING:
    from parley.client.contract.model_state import State
    from parley.server.records.run_summary import RunSummary

_NO_FEATURES: Mapping[str, Any] = MappingProxyType({})


def model_tensors(theta: NDArray[np.float64], state: State) -> dict[str, NDArray[np.float64]]:
    """What `model.safetensors` holds: the model, and what its rows are projected on."""
    return {"theta": theta, **components_in(state)}


def model_description(
    task: Mapping[str, Any],
    *,
    label: str,
    intercept: bool,
    schema: str,
    features: Mapping[str, Any] = _NO_FEATURES,
) -> dict[str, str]:
    """The metadata of `model.safetensors` that a prediction needs: values alone, no code.

    Args:
        label: how labels are read: logistic, softmax, ridge or network.
        features: name, settings and digest of the public map of every record; empty: none.
    """
    description = {
        "version": MODEL_VERSION,
        "task": dict(task),
        "label": label,
        "intercept": intercept,
        "schema": schema,
        **({"features": dict(features)} if features else {}),
    }
    said = {"parley.features": features_statement(features)} if features else {}
    return {"parley.model": json_text(description), **said}


def privacy_statement(summary: RunSummary) -> dict[str, str]:
    """The metadata of `model.safetensors`: what was promised, as text; exact where it is a key's.

    A run with seeded noise promises nothing, and says so.
    """
    metadata = {"parley.version": summary.parley_version, "parley.run": summary.run_id}
    for prefix, of in zip(("parley.", "parley.party-"), summary.guarantees, strict=False):
        seeded = "none (seeded noise)" if summary.primary.noise.seeded else ""
        metadata |= {
            f"{prefix}epsilon": seeded or repr(of.epsilon),
            f"{prefix}delta": seeded or repr(of.delta),
            f"{prefix}unit": str(of.unit),
            f"{prefix}neighbouring": str(of.neighbouring),
            f"{prefix}assumptions": json_text(list(of.assumptions or ())),
        }
    said = _seeded(summary) if summary.primary.noise.seeded else _promised(summary)
    return metadata | {"parley.statement": said}


def _seeded(summary: RunSummary) -> str:
    costs = ", and ".join(
        guarantee_text.stated(of)
        + (f" (assuming: {assumed})" if (assumed := guarantee_text.assumed(of)) else "")
        for of in summary.guarantees
    )
    return (
        "This model carries no privacy guarantee: its noise was drawn from a seed, to be "
        "repeatable. With noise from the operating system's entropy the same run would cost "
        f"{costs}."
    )


def _promised(summary: RunSummary) -> str:
    sentences = []
    counted = summary.clipped_fraction is not None
    for of in summary.guarantees:
        noise = guarantee_text.join(
            guarantee_text.noise(of, rounds=summary.rounds, counted=counted)
        )
        sentences.append(
            f"Differential privacy of {of.unit.words} over {summary.rounds_done} "
            f"{noun(summary.rounds_done, 'release')} "
            f"of this run: {guarantee_text.stated(of)}, {guarantee_text.against(of)}. Noise: "
            f"{noise}."
        )
        if assumed := guarantee_text.assumed(of):
            sentences.append(f"It assumes: {assumed}.")
    ahead = guarantee_text.components(summary)
    if ahead:
        sentences.append(f"Before them, {ahead}.")
    if summary.evaluation is not None and summary.evaluation.counts:
        sentences.append(
            "After them, one release of counts of held-out records by label and what it says of "
            "them, within the same account."
        )
    sentences.append(guarantee_text.bounds(summary.record_bounds, summary.primary))
    sentences.append("Other releases from the same records add to this.")
    return " ".join(filter(None, sentences))
