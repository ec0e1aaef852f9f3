"""Whom a session asks: parties in this process, or those of a deployment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parley.analytics.settings import counting_of
from parley.client.contract.roster import Deployment, load_deployment
from parley.client.data.schema import Schema
from parley.client.data.table_block import TableBlock
from parley.client.queries.base import Facts, QueryError
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.accounting.noise_points import NOISE_POINTS
from parley.privacy.sampling.randomness import Randomness
from parley.secure_agg.parameters import assumed_corrupt
from parley.server.planning.query_terms import Terms
from parley.server.queries.cohort import QueryCohort
from parley.server.queries.folder import SessionFolder
from parley.server.queries.party_queries import PartyQueries
from parley.server.rounds.inspection import PartyFacts, fewest_present
from parley.server.rounds.party_status import PartyBoard
from parley.server.rounds.transport import Transport
from parley.simulations.engine.faults import parse_faults
from parley.simulations.engine.query_cohort import BlockQueries
from parley.simulations.engine.query_dealing import DealtQueries, TableShard
from parley.simulations.engine.query_sums import QueryAdding, queries_summed

if TYPE_CHECKING:
    from parley.analytics.settings import Settings

_COME_S = 120.0
"""So long a session waits for parties before it goes on with enough of them."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The parties of a session.

    Attributes:
        cohort: the way to ask them.
        terms: what is public of them, and settled.
        data: names the records in a ledger.
        contents: digest of the records, where they are here.
    """

    cohort: QueryCohort
    terms: Terms
    data: str
    contents: str = ""


def simulated_parties(
    stack: ExitStack,
    settings: Settings,
    block: TableBlock,
    dealt: Callable[[int], list[TableShard]],
) -> Asked:
    """All parties in this process, or dealt to workers.

    Args:
        stack: ends the workers.
        settings: of the session.
        block: the parties' records.
        dealt: how many workers there are → their shards.

    Raises:
        QueryError: settings that do not go with so many parties.
        JobError: no such cluster, or a node without the records.
    """
    terms = _terms(
        settings,
        schema=block.schema,
        parties=block.parties,
        sizes=block.sizes.tolist(),
        names=[str(party) for party in range(block.parties)],
        noise_point=settings.noise_point or "server",
    )
    cohort = BlockQueries(
        block=block,
        corrupt=terms.corrupt,
        masked=settings.masked,
        faults=parse_faults(settings.faults, seed=settings.seed or 0),
        randomness=Randomness(seed=settings.seed, party=None),
        adding=ADDING[settings.engine](stack, settings, dealt),
    )
    contents = str(block.contents)
    return Asked(cohort=cohort, terms=terms, data=contents, contents=contents)


def _over_ray(
    stack: ExitStack, settings: Settings, dealt: Callable[[int], list[TableShard]]
) -> QueryAdding:
    from parley.deploy.ray_engine import ray_workers  # noqa: PLC0415 - start-up: an extra

    if settings.masked:
        raise QueryError("Expected masked = false with engine = 'ray', which adds in the open.")
    workers = ray_workers(settings.ray_address, lambda cores: dealt(settings.workers or cores))
    return DealtQueries(workers=stack.enter_context(workers))


ADDING: dict[str, Callable[..., QueryAdding]] = {
    "fast": lambda *_: queries_summed,
    "ray": _over_ray,
}
"""How a simulation's parties are added up, by the name that `engine` takes."""


def real_parties(
    stack: ExitStack,
    settings: Settings,
    schema: Schema,
    folder: SessionFolder,
    *,
    home: Path,
    transport: Transport | None = None,
) -> Asked:
    """The parties of a deployment, over its port, which this process opens.

    Args:
        stack: closes the port.
        settings: of the session.
        schema: the server's copy of the parties'.
        folder: of the session.
        home: the server's folder.
        transport: another way to them.

    Raises:
        QueryError: settings of a simulation, or a schema that is not the parties'.
        JobError: too few parties are there.
        DeployError, ProcessError: a folder that cannot be used, or somebody else has the port.
    """
    given = settings.model_dump(exclude_defaults=True)
    if simulated := sorted({"seed", "faults", "masked", "parties", "id", "engine"} & set(given)):
        raise QueryError(
            f"Expected no {simulated[0]} with real parties, got one: it is a simulation's. Real "
            "parties draw noise from entropy, mask every sum, and say themselves whose their "
            "records are."
        )
    if not settings.dataset:
        raise QueryError("Expected dataset, the name that parties serve the data under, got none.")
    if transport is None:
        transport, deployment = _opened(stack, home)
    else:
        deployment = load_deployment(home / "deployment.toml")
    count = len(deployment.parties)
    corrupt, least = _bounds(settings, count)
    cohort = PartyQueries(
        transport=transport,
        deployment=deployment,
        board=PartyBoard(folder.path / "parties.json", [each.name for each in deployment.parties]),
        dataset=settings.dataset,
        run_id=folder.run_id,
        corrupt=corrupt,
        timeout_s=_COME_S,
    )
    private = counting_of(settings).private(Neighbouring(settings.neighbouring))
    needed = fewest_present(count, survivors=least, corrupt=corrupt)
    cohort.inspect(sizes=not private, needed=needed)
    theirs = next(iter(cohort.facts.values())).schema
    if theirs != schema.digest:
        raise QueryError(
            f"Expected the schema of the parties, of digest {theirs[:12]}, got one of digest "
            f"{schema.digest[:12]}: give the session a copy of their file."
        )
    known = [facts.records or 1 for facts in cohort.facts.values()]
    # As if the absent ones were of mean size; N of an answer is that of its survivors.
    absent = [round(sum(known) / len(known))] * (count - len(known))
    terms = _terms(
        settings,
        schema=schema,
        parties=count,
        sizes=_placed(cohort.facts, count, absent[0] if absent else 1),
        names=[each.name for each in deployment.parties],
        noise_point=settings.noise_point or "share",
    )
    return Asked(
        cohort=cohort,
        terms=terms,
        data=f"deployment:{deployment.consortium}:{settings.dataset}",
    )


def _placed(facts: Mapping[int, PartyFacts], parties: int, usual: int) -> list[int]:
    """Sizes in the order of the roster."""
    sizes = {index: own.records or 1 for index, own in facts.items()}
    return [sizes.get(index, usual) for index in range(parties)]


def _opened(stack: ExitStack, home: Path) -> tuple[Transport, Deployment]:
    from parley.deploy.folders import check_server  # noqa: PLC0415 - start-up: `query` of a file's parties needs no gRPC
    from parley.deploy.stream.port import Port  # noqa: PLC0415 - start-up: `query` of a file's parties needs no gRPC
    from parley.deploy.stream.transport import StreamTransport  # noqa: PLC0415 - start-up: `query` of a file's parties needs no gRPC

    server = check_server(home)
    port = Port(server.folder, server.deployment, listen=server.listen, port=server.port)
    return StreamTransport(stack.enter_context(port)), server.deployment


def _bounds(settings: Settings, parties: int) -> tuple[int, int]:
    """c, and the least number of survivors."""
    corrupt = assumed_corrupt(parties) if settings.corrupt is None else settings.corrupt
    if not 0 <= corrupt < max(parties, 2):
        raise QueryError(f"Expected corrupt from 0 to {parties - 1}, got {corrupt}.")
    least = max(-(-2 * parties // 3), (parties + corrupt) // 2 + 1) if parties > 1 else 1
    survivors = settings.min_survivors or least
    if survivors > parties:
        raise QueryError(f"Expected min_survivors from 1 to {parties}, got {survivors}.")
    return corrupt, survivors


def _terms(
    settings: Settings,
    *,
    schema: Schema,
    parties: int,
    sizes: Sequence[int],
    names: Sequence[str],
    noise_point: str,
) -> Terms:
    neighbouring, counting = Neighbouring(settings.neighbouring), counting_of(settings)
    inside = counting.relation(neighbouring)
    private = counting.private(neighbouring)
    corrupt, survivors = _bounds(settings, parties)
    return Terms(
        facts=Facts(
            schema=schema,
            neighbouring=inside,
            records=None if private else int(np.sum(sizes)),
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
