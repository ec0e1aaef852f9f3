"""What follows from an agreement, once it was examined: algorithm, records and model of one round.

`accept` is the only way to make an `Accepted`, and takes the agreement, the party's own
policy and its own records: nothing that a server says reaches a computation but as a field of the
agreement, which the masks are keyed by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.contract.agreement import Agreement
from parley.client.contract.feature_map import features_from
from parley.client.contract.model_state import State
from parley.client.contract.party_protocol import Declined, Reason
from parley.client.party.dataset_loader import Holding
from parley.client.party.owner_policy import Consent
from parley.client.party.plan_verification import check_computation
from parley.client.party.run_validation import (
    accepted_kind,
    check_components,
    check_plan,
    check_queries,
    task_of,
)
from parley.client.party.tensor_decoding import components_from, state_from
from parley.privacy.ledger.block_composition import Blocks, checked_blocks


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """An agreement that this party computes for.

    Attributes:
        holding: the party's records, projected on its components if it has some.
        state: the model that it starts from; empty where it is for no round yet.
    """

    agreement: Agreement
    algorithm: FederatedAlgorithm
    holding: Holding
    state: State


def accept(
    consent: Consent,
    agreement: Agreement,
    *,
    holding_of: Callable[[Agreement, bool], Holding],
) -> Accepted:
    """Policy, then the task, then what only this party's facts can tell.

    Args:
        holding_of: reads the records that an agreement names; True: those that are held out.
    """
    check_plan(consent, agreement)
    algorithm = task_of(consent, agreement.task)
    kind = accepted_kind(consent, algorithm.kind)
    components = components_from(agreement)
    check_components(agreement.task, given=components is not None)
    held, blocks = holding_of(agreement, kind.after), agreement.plan.blocks
    if held.blocks != blocks:  # what is charged is said by the records themselves
        raise Declined(Reason.DATA_UNREADABLE, f"Expected blocks {blocks}, got {held.blocks}.")
    holding = held.on(components)
    facts = holding.facts  # from here on nothing is looked at but what is public
    algorithm = kind.bind(algorithm, facts.columns)
    check_queries(consent, consent.dataset(agreement.dataset), algorithm)
    check_computation(consent, agreement.plan, algorithm, kind, facts)
    if facts.schema != agreement.schema:
        raise Declined(
            Reason.SCHEMA, f"Expected the schema {facts.schema}, got {agreement.schema!r:.80}."
        )
    agreed = agreement.features.get("digest", "")
    if facts.map != agreed:
        raise Declined(
            Reason.MODEL, f"Expected features of digest {facts.map!r}, got {agreed!r:.80}."
        )
    state: State = {}
    if agreement.serial:
        state = state_from(agreement.state, algorithm)
        kind.check_state(algorithm, state)
    return Accepted(agreement=agreement, algorithm=algorithm, holding=holding, state=state)


def public_facts(
    asked: Mapping[str, Any],
    consent: Consent,
    *,
    clock: float,
    holding_of: Callable[[str, str, bool, Mapping[str, Any], Blocks], Holding],
) -> dict[str, Any]:
    """Columns, classes and, where it is public, the number of records; nothing about a record.

    Args:
        asked: head of an `inspect` request, of checked types.
        holding_of: the data by name, reading of the label, intercept, public map of features, and
            blocks.
    """
    theirs = asked["clock"]
    if not abs(theirs - clock) <= consent.clock_skew_s:
        raise Declined(
            Reason.CLOCK_SKEW,
            f"Expected clocks within {consent.clock_skew_s:g} s, they are "
            f"{theirs - clock:+.0f} s apart.",
        )
    dataset = consent.dataset(asked["dataset"])
    if asked["sizes"] and not consent.discloses_size(dataset):
        raise Declined(Reason.SIZES_NOT_DISCLOSED, "Expected no question about sizes.")
    features = features_from(asked["features"], agreed=False)
    try:
        blocks = checked_blocks(asked["blocks"])
    except ValueError as error:
        raise Declined(Reason.PROTOCOL, str(error)) from error
    named = asked["dataset"], asked["label"], asked["intercept"]
    facts = holding_of(*named, features, blocks).facts
    return {
        "features": facts.features,
        "classes": facts.classes,
        "schema": facts.schema,
        "map": facts.map,
        "records": facts.records if asked["sizes"] else None,
        "asks": dataset.approval_above is not None,
        "clock": clock,
    }
