"""A session's parties as real processes: every batch is a run of one round, which they join.

To a party a release of queries is a job: it joins it with its queries, derives what they cost by
its own schema, pays from its own ledger and forgets the keys. The run's name is the session's with
the number of the release, so that a batch which is asked for again is the same release to it.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.queries import QueryRelease
from parley.client.algorithms.registry import describe_task
from parley.client.contract.agreement import Agreement
from parley.client.contract.canonical import canonical
from parley.client.contract.protocol import Reason
from parley.client.contract.roster import Deployment
from parley.secure_agg.interface import DropoutPolicy, KeyExchange
from parley.secure_agg.pairwise_server import Server
from parley.secure_agg.parameters import RunParameters
from parley.server.planning.queries import PlannedBatch
from parley.server.queries.cohort import QuerySum
from parley.server.rounds.asking import Traffic
from parley.server.rounds.inspection import PartyFacts, inspected
from parley.server.rounds.party_cohort import PartyCohort
from parley.server.rounds.party_status import PartyBoard
from parley.server.rounds.transport import Transport

RAW_COLUMNS = "columns"
"""How a request says that no label is read."""

_STATE = {"theta": np.zeros(0)}


def session_head(dataset: str, run_id: str) -> dict[str, Any]:
    """Which data a session is about."""
    return {
        "run": run_id,
        "dataset": dataset,
        "label": RAW_COLUMNS,
        "intercept": False,
        "features": {},
    }


@dataclass(kw_only=True)
class PartyQueries:
    """The parties of a deployment in a session; a `parley.server.queries.cohort.QueryCohort`.

    Attributes:
        transport: the way to them.
        deployment: who they are.
        board: who stands where.
        dataset: the name that they serve the data under.
        run_id: the session's.
        corrupt: c.
        timeout_s: what a party has to answer one request.
        facts: what each said of itself: `inspect` asks.
        declined: who takes no part.
    """

    transport: Transport
    deployment: Deployment
    board: PartyBoard
    dataset: str
    run_id: str
    corrupt: int
    timeout_s: float
    facts: dict[int, PartyFacts] = field(default_factory=dict)
    declined: dict[int, Reason] = field(default_factory=dict)
    most_rounds: int = 1
    trusting: bool = False

    def inspect(self, *, sizes: bool, needed: int) -> None:
        """Asks who is there, for their schema and, where it is public, their number of records.

        Raises:
            JobError: too few, or their columns differ.
        """
        head = {**session_head(self.dataset, self.run_id), "sizes": sizes}
        self.facts, self.declined = inspected(
            head,
            self.transport,
            self.deployment,
            self.board,
            Traffic(),
            needed=needed,
            timeout_s=self.timeout_s,
        )

    def ask(
        self, planned: PlannedBatch, state: dict[str, NDArray[np.float64]], *, attempt: int
    ) -> QuerySum:
        """One batch's sum; see `QueryCohort`."""
        del state
        # A batch that is asked for again is the same release to a party; another one, after a
        # release that failed, is another, and is paid for.
        question = [planned.batch.to_json(), planned.counting.to_json()]
        asked = hashlib.sha256(canonical(question)).hexdigest()[:16]
        own = f"{self.run_id}/{planned.plan.round_number}-{asked}"
        plan = replace(planned.plan.for_run(own), round_number=1)
        run = RunParameters.choose(
            parties=plan.parties,
            min_survivors=plan.min_survivors,
            run_id=secrets.token_bytes(16),
            rounds=2,  # the shares of one more travel with the last
            ring_bits=plan.encoding.ring_bits,
            dropouts=DropoutPolicy.ROBUST,
            confirm_survivors=True,
            key_exchange=KeyExchange.HYBRID,
            corrupt=self.corrupt,
        )
        task = QueryRelease(
            batch=planned.batch,
            neighbouring=plan.primary.neighbouring,
            counting=planned.counting,
        )
        head = session_head(self.dataset, own)
        cohort = PartyCohort(
            transport=self.transport,
            server=Server(
                run=run,
                identities=self.deployment.identities,
                deployment=bytes.fromhex(self.deployment.id),
            ),
            board=self.board,
            timeout_s=self.timeout_s,
            weights={i: float(facts.records or 0) for i, facts in self.facts.items()},
            agreement=Agreement(
                run_id=own,
                dataset=head["dataset"],
                label=head["label"],
                intercept=head["intercept"],
                schema=next(iter(self.facts.values())).schema,
                features=head["features"],
                identities=self.deployment.identities,
                parameters=run,
                task=describe_task(task),
                rounds=1,
                plan=plan,
            ),
            declined=dict(self.declined),
        )
        try:
            cohort.join(sorted(self.facts))
            total = cohort.aggregate(plan, dict(_STATE), attempt=0)
        finally:
            cohort.finish()
        del attempt
        names, absent = [each.name for each in self.deployment.parties], total.absent or ()
        return QuerySum(
            total=total.total,
            survivors=total.summed,
            records=None if planned.private else round(total.weight),
            present=tuple(at for at, name in enumerate(names) if name not in absent),
            bytes_up=total.bytes_up + cohort.setup.up,
            bytes_down=total.bytes_down + cohort.setup.down,
        )

    def close(self) -> None:
        """Every release has ended by itself."""
