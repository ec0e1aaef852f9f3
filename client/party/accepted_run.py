"""`AcceptedRun`: a checked agreement with its algorithm, its records and the round's model.

Only `accept_run` creates an `AcceptedRun`. It takes the agreement, the party's own policy and its
own records. A server's input reaches a computation only as a field of the agreement, and the masks
are keyed by the agreement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.contract.agreement import Agreement
from parley.client.contract.feature_map_reference import parse_feature_map
from parley.client.contract.model_state_encoding import State
from parley.client.contract.refusals import Declined, Reason, decline_errors
from parley.client.party.loaded_dataset import LoadedDataset
from parley.client.party.owner_policy import OwnerPolicy
from parley.client.party.plan_verification import check_computation
from parley.client.party.run_validation import (
    build_accepted_algorithm,
    check_components,
    check_plan,
    get_accepted_kind,
)
from parley.client.party.tensor_decoding import decode_components, decode_model_state
from parley.privacy.ledger.block_composition import Blocks, parse_blocks

DataLoader = Callable[[str, str, bool, Mapping[str, Any], Blocks], LoadedDataset]


@dataclass(frozen=True, kw_only=True)
class AcceptedRun:
    """An agreement that this party computes for.

    Attributes:
        data: the party's records, projected on the agreement's components if it has any.
        state: the model that it starts from; empty before the first round.
    """

    agreement: Agreement
    algorithm: FederatedAlgorithm
    data: LoadedDataset
    state: State


def accept_run(
    policy: OwnerPolicy, agreement: Agreement, load_data: Callable[[Agreement, bool], LoadedDataset]
) -> AcceptedRun:
    """Check the policy, then the task, then what only this party's facts can decide.

    Args:
        load_data: loads the records that an agreement names; True: those that are held out.

    Raises:
        Declined: the policy, the task or the party's facts do not permit the run.
    """
    check_plan(policy, agreement)
    algorithm = build_accepted_algorithm(policy, agreement.task)
    kind = get_accepted_kind(policy, algorithm.kind)
    components = decode_components(agreement)
    check_components(agreement.task, has_components=components is not None)
    full_data, blocks = load_data(agreement, kind.after_rounds), agreement.plan.blocks
    if full_data.blocks != blocks:  # the charged blocks come from the records, not from the request
        raise Declined(Reason.DATA_UNREADABLE, f"Expected blocks {blocks}, got {full_data.blocks}.")
    data = full_data.project_onto(components)
    facts = data.facts  # from here on only public facts are used
    algorithm = kind.bind(algorithm, facts.columns)
    if kind.answers_queries:
        from parley.client.party.query_validation import check_queries  # noqa: PLC0415 - a training job needs no query

        check_queries(policy, policy.get_dataset(agreement.dataset), algorithm)
    check_computation(policy, agreement.plan, algorithm, kind, facts)
    if facts.schema != agreement.schema:
        expected = f"Expected schema {facts.schema}"
        raise Declined(Reason.SCHEMA, f"{expected}, got {agreement.schema!r:.80}.")
    agreed = agreement.features.get("digest", "")
    if facts.map != agreed:
        raise Declined(Reason.MODEL, f"Expected feature digest {facts.map!r}, got {agreed!r:.80}.")
    state: State = {}
    if agreement.serial:
        state = decode_model_state(agreement.state, algorithm)
        kind.check_state(algorithm, state)
    return AcceptedRun(agreement=agreement, algorithm=algorithm, data=data, state=state)


def describe_data(
    request: Mapping[str, Any], policy: OwnerPolicy, clock: float, load_data: DataLoader
) -> dict[str, Any]:
    """Return columns, classes and, if it is public, the number of records; no fact about a record.

    Args:
        request: head of an `inspect` request, of checked types.
        load_data: loads the data by name, label reading, intercept, public feature map and blocks.

    Raises:
        Declined: the clocks differ, the data set is unknown, sizes are private, or blocks are
            malformed.
    """
    server_clock = request["clock"]
    if not abs(server_clock - clock) <= policy.clock_skew_s:
        expected = f"Expected clocks within {policy.clock_skew_s:g} s"
        apart = f"{server_clock - clock:+.0f} s apart"
        raise Declined(Reason.CLOCK_SKEW, f"{expected}, they are {apart}.")
    dataset = policy.get_dataset(request["dataset"])
    if request["sizes"] and not policy.is_size_disclosed(dataset):
        why = "the policy does not disclose them"
        raise Declined(Reason.SIZES_NOT_DISCLOSED, f"Expected no request for sizes: {why}.")
    features = parse_feature_map(request["features"], agreed=False)
    with decline_errors(Reason.PROTOCOL, ValueError):
        blocks = parse_blocks(request["blocks"])
    reading = request["dataset"], request["label"], request["intercept"]
    facts = load_data(*reading, features, blocks).facts
    return {
        "features": facts.features,
        "classes": facts.classes,
        "schema": facts.schema,
        "map": facts.map,
        "records": facts.records if request["sizes"] else None,
        "asks": dataset.approval_above is not None,
        "clock": clock,
    }
