"""What `model.safetensors` says of itself: its tensors, and the promise in its metadata."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm, State
from parley.server.records.summary import RunSummary

__all__ = ["model_tensors", "privacy_statement"]


def model_tensors(algorithm: FederatedAlgorithm, state: State) -> dict[str, NDArray[np.float64]]:
    """What `model.safetensors` holds: the model, and what its rows are projected on."""
    kept = {name: state[name] for name in ("components",) if name in state}
    return {"theta": algorithm.model_of(state), **kept}


def privacy_statement(summary: RunSummary) -> dict[str, str]:
    """The metadata of `model.safetensors`: what was promised, as text."""
    noise, party = summary.noise, summary.party_level
    if noise.seeded:
        return {
            "parley.version": summary.parley_version,
            "parley.run": summary.run_id,
            "parley.epsilon": "none (seeded noise)",
            "parley.delta": "none (seeded noise)",
            "parley.unit": summary.unit,
            "parley.neighbouring": summary.neighbouring,
            **_party_budget(summary),
            "parley.statement": (
                "This model carries no privacy guarantee: its noise was drawn from a seed, to be "
                "repeatable. With noise from the operating system's entropy the same run would "
                f"cost epsilon {summary.epsilon!r} at delta {summary.delta!r}"
                + (
                    f" for one record, and epsilon {party.epsilon!r} at delta "
                    f"{party.delta!r} for everything one party holds."
                    if party
                    else "."
                )
            ),
        }
    where = (
        "on the sum of every batch's clipped gradients, drawn from the operating system's entropy "
        "in each party. "
        if noise.point == "party"
        else f"on the average over {summary.parties} parties, drawn from the operating "
        "system's entropy and added by the server, which is trusted to add it. "
    )
    statement = (
        f"({summary.epsilon!r}, {summary.delta!r})-differential privacy of one "
        f"{summary.unit}, {summary.neighbouring} neighbours, over "
        f"{summary.rounds_done} releases of this run; {noise.law} noise of scale "
        f"{noise.scale:.6g} {where}"
    )
    if summary.components is not None:
        statement += (
            "Before them, within the same bound, one release of the records' second moments "
            "(principal components), whose noise was added by the server, which is trusted to "
            "add it. "
        )
    if party is not None:
        statement += (
            f"And ({party.epsilon!r}, {party.delta!r})-differential privacy of everything "
            f"that one {party.unit} holds, {party.neighbouring} neighbours: updates are "
            f"clipped to L2 norm {party.clip_norm:g}, and {party.noise.law} noise of "
            f"scale {party.noise.scale_of_sum:.6g} is added to their sum by the server, "
            "which is trusted to add it. "
        )
        bounds = summary.record_bounds
        if bounds is not None and bounds.charged == "outer":
            statement += (
                "The record's bound is that of the server's noise too; by the parties' own noise "
                f"alone it is epsilon {bounds.inner.epsilon!r}. "
            )
    return {
        "parley.version": summary.parley_version,
        "parley.run": summary.run_id,
        "parley.epsilon": repr(summary.epsilon),
        "parley.delta": repr(summary.delta),
        "parley.unit": summary.unit,
        "parley.neighbouring": summary.neighbouring,
        **_party_budget(summary),
        "parley.statement": f"{statement}Other releases from the same records add to this.",
    }


def _party_budget(summary: RunSummary) -> dict[str, str]:
    """The second guarantee's figures, where there are two."""
    party = summary.party_level
    if party is None:
        return {}
    seeded = "none (seeded noise)" if summary.noise.seeded else ""
    return {
        "parley.party-epsilon": seeded or repr(party.epsilon),
        "parley.party-delta": seeded or repr(party.delta),
        "parley.party-unit": party.unit,
        "parley.party-neighbouring": party.neighbouring,
    }
