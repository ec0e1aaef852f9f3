"""Build the parties that a session asks: simulated ones in this process, or a deployment's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.analytics.session_settings import Settings, build_counting
from parley.client.algorithms.query_release import QueryRelease
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.roster import load_deployment
from parley.client.data.query_party_block import RawPartyBlock
from parley.client.data.schema import Schema
from parley.client.party.party_session import PartySession
from parley.client.party.refusal_rules import RefusalRules
from parley.client.queries.base import QueryError, QueryFacts
from parley.deploy.deployment_folder_checks import check_server
from parley.deploy.stream.grpc_server import GrpcServer, StreamTransport
from parley.privacy.accounting.threat_model import NOISE_POINTS, Neighbouring
from parley.privacy.sampling.random_stream import Randomness
from parley.secure_agg.ideal_sum import IdealSum, build_simulated_parameters
from parley.secure_agg.in_process_protocol import MaskedSum
from parley.secure_agg.interface import SecureSum
from parley.secure_agg.protocol_parameters import (
    RunParameters,
    choose_min_survivors,
    compute_assumed_corrupt,
)
from parley.server.planning.session_terms import SessionTerms
from parley.server.records.session_folder import SessionFolder
from parley.server.rounds.cohort import Cohort
from parley.server.rounds.connected_parties import RAW_COLUMNS, ConnectedParties, QueryParties
from parley.server.rounds.party_facts import compute_min_present
from parley.server.rounds.party_requests import Transport
from parley.server.rounds.party_status import PartyStates
from parley.simulations.engine.fault_script import parse_faults
from parley.simulations.engine.in_process_cohort import BlockCohort
from parley.simulations.engine.sharding import TableShard, WorkerSum
from parley.simulations.engine.streamed_sum import SumFunction, sum_parties

_ARRIVAL_TIMEOUT_S = 120.0
"""Seconds that a session waits for parties before it continues with enough of them."""


@dataclass(frozen=True, kw_only=True)
class SessionParties:
    """The parties of a session.

    Attributes:
        build_cohort: Function from a plan and its queries to the cohort that answers them.
        contents, rows: Digest of the records, and `[N, 3]` of each row, if the records are here.
        trusting: Whether the server may see an exact sum; only in a simulation.
    """

    build_cohort: Callable[[ReleasePlan, QueryRelease], Cohort]
    terms: SessionTerms
    data: str
    contents: str = ""
    rows: NDArray[np.uint64] | None = None
    trusting: bool = False


def build_simulated_parties(
    stack: ExitStack,
    settings: Settings,
    block: RawPartyBlock,
    shard: Callable[[int], list[TableShard]],
) -> SessionParties:
    """Build all parties in this process, or shard them over workers.

    Args:
        shard: Function from the number of workers to their shards.

    Raises:
        QueryError: the settings do not fit this number of parties.
        JobError: the cluster is missing, or a node lacks the records.
    """
    terms = build_terms(
        settings,
        schema=block.schema,
        sizes=block.sizes.tolist(),
        names=[str(party) for party in range(block.parties)],
        noise_point=settings.noise_point or "server",
    )
    _check_sum(settings, terms)
    faults = parse_faults(settings.faults, seed=settings.seed or 0)
    policy = RefusalRules(
        units=frozenset({terms.counting.unit}), neighbouring=frozenset(Neighbouring)
    )
    adding = ADDING[settings.engine](stack, settings, shard)

    @cache  # create the keys of the masked protocol once
    def secure_sum(ring_bits: int) -> SecureSum:
        parameters = build_simulated_parameters(
            parties=terms.parties,
            min_survivors=terms.min_survivors,
            ring_bits=ring_bits,
            corrupt=terms.corrupt,
        )
        return MaskedSum(parameters) if settings.masked else IdealSum(parameters)

    def cohort(plan: ReleasePlan, queries: QueryRelease) -> Cohort:
        columns: Any = block
        session = PartySession(
            block=columns,
            algorithm=queries,
            rules=policy,
            randomness=Randomness(seed=settings.seed, party=None),
        )
        secure = secure_sum(plan.encoding.ring_bits)
        return BlockCohort(session=session, secure_sum=secure, faults=faults, sum_function=adding)

    contents = str(block.contents)
    return SessionParties(
        build_cohort=cohort,
        terms=terms,
        data=contents,
        contents=contents,
        rows=block.row_digests if settings.ledger else None,
        trusting=True,
    )


def _check_sum(settings: Settings, terms: SessionTerms) -> None:
    """Check that there is a secure sum for these parties, before a release is charged.

    Raises:
        QueryError: there is none for so many survivors and colluders.
    """
    if settings.masked and terms.parties < 2:
        raise QueryError("Expected at least 2 parties with masked = true, got 1.")
    try:
        RunParameters.choose(
            run_id=bytes(16),
            parties=terms.parties,
            min_survivors=terms.min_survivors,
            corrupt=terms.corrupt,
        )
    except ValueError as error:
        raise QueryError(f"Secure aggregation: {error}") from error


def _start_ray_workers(
    stack: ExitStack, settings: Settings, shard: Callable[[int], list[TableShard]]
) -> SumFunction:
    from parley.deploy.ray_engine import start_ray_workers  # noqa: PLC0415 - start-up: an extra

    if settings.masked:
        raise QueryError("Expected masked = false with engine = 'ray', which adds without masks.")
    workers = start_ray_workers(
        settings.ray_address, lambda cores: shard(settings.workers or cores)
    )
    return WorkerSum(workers=stack.enter_context(workers))


ADDING: dict[str, Callable[..., SumFunction]] = {
    "fast": lambda *_: sum_parties,
    "ray": _start_ray_workers,
}
"""Sum function of a simulation's parties, by the value of `engine`."""


def connect_real_parties(
    stack: ExitStack,
    settings: Settings,
    schema: Schema,
    folder: SessionFolder,
    *,
    transport: Transport | None = None,
) -> SessionParties:
    """Connect to the parties of a deployment, over its port, which this process opens.

    Raises:
        QueryError: a setting is only for simulations, or the schema differs from the parties'.
        JobError: too few parties are connected.
        DeployError, ProcessError: the folder cannot be used, or the port is in use.
    """
    given = settings.model_dump(exclude_defaults=True)
    if simulated := sorted({"seed", "faults", "masked", "parties", "id", "engine"} & set(given)):
        raise QueryError(
            f"Expected no {simulated[0]} with real parties, got one: it is only for simulations. "
            "Real parties draw noise from entropy, mask every sum, and know which person each "
            "record belongs to."
        )
    if not settings.dataset:
        raise QueryError("Expected dataset, the parties' name for the data, got none.")
    home = Path(settings.deployment)
    if transport is None:
        server = check_server(home)
        port = GrpcServer(server.folder, server.deployment, listen=server.listen, port=server.port)
        transport, deployment = StreamTransport(stack.enter_context(port)), server.deployment
    else:
        deployment = load_deployment(home / "deployment.toml")
    names = [each.name for each in deployment.parties]
    corrupt, least = _resolve_bounds(settings, len(names))
    head = {"dataset": settings.dataset, "label": RAW_COLUMNS, "intercept": False}
    there = ConnectedParties(
        transport=transport,
        deployment=deployment,
        party_states=PartyStates(folder.path / "parties.json", names),
        data_head=head | {"features": {}, "blocks": []},
        needed=compute_min_present(len(names), survivors=least, corrupt=corrupt),
        timeout_s=_ARRIVAL_TIMEOUT_S,
    ).find(
        run_id=folder.run_id,
        sizes=not build_counting(settings).is_size_private(Neighbouring(settings.neighbouring)),
    )
    if there.first.schema != schema.digest:
        raise QueryError(
            f"Expected the parties' schema, of digest {there.first.schema[:12]}, got one of digest "
            f"{schema.digest[:12]}. Give the session a copy of their file."
        )
    known = {index: own.records or 1 for index, own in there.facts.items()}
    # Absent parties count as mean-sized for planning. An answer's N is that of its survivors.
    usual = round(sum(known.values()) / len(known))
    terms = build_terms(
        settings,
        schema=schema,
        sizes=[known.get(index, usual) for index in range(len(names))],
        names=names,
        noise_point=settings.noise_point or "share",
    )
    return SessionParties(
        build_cohort=lambda _, asked: QueryParties(parties=there, algorithm=asked, corrupt=corrupt),
        terms=terms,
        data=f"deployment:{deployment.consortium}:{settings.dataset}",
    )


def _resolve_bounds(settings: Settings, parties: int) -> tuple[int, int]:
    """Return the assumed number of corrupt parties c, and the minimum number of survivors."""
    corrupt = compute_assumed_corrupt(parties) if settings.corrupt is None else settings.corrupt
    if not 0 <= corrupt < max(parties, 2):
        raise QueryError(f"Expected corrupt from 0 to {parties - 1}, got {corrupt}.")
    wanted = settings.min_survivors
    if wanted is not None and wanted > parties:
        raise QueryError(f"Expected min_survivors from 1 to {parties}, got {wanted}.")
    return corrupt, choose_min_survivors(parties, corrupt=corrupt, requested=wanted)


def build_terms(
    settings: Settings,
    *,
    schema: Schema,
    sizes: Sequence[int],
    names: Sequence[str],
    noise_point: str,
) -> SessionTerms:
    """Return the public terms of a session with parties of these sizes, fixed for all its
    queries.
    """
    parties = len(sizes)
    neighbouring, counting = Neighbouring(settings.neighbouring), build_counting(settings)
    inside = counting.get_relation(neighbouring)
    private = counting.is_size_private(neighbouring)
    corrupt, survivors = _resolve_bounds(settings, parties)
    return SessionTerms(
        facts=QueryFacts(
            schema=schema, neighbouring=inside, records=None if private else int(np.sum(sizes))
        ),
        parties=parties,
        min_records=1 if private else min(sizes),
        most_records=settings.most_records if private else max(sizes),
        min_survivors=survivors,
        corrupt=corrupt,
        noise_point=NOISE_POINTS[noise_point],
        delta=settings.delta,
        seeded=settings.seed is not None,
        counting=counting,
        relation=neighbouring,
        sizes=() if private else tuple(sizes),
        names=tuple(names),
    )
