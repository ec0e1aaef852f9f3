"""Who is there, and what they say of themselves before a run: all of it public.

Columns and classes set the model; numbers of records, which are public where one record is replaced
by another and no party is hidden, set weights and sensitivity. Nothing is asked of a record.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from parley.client.contract.decoding import DecodingError, facts_from
from parley.client.contract.protocol import WIRE_VERSION, Frame, Reason, Status
from parley.client.contract.roster import Deployment
from parley.secure_agg.parameters import derive
from parley.server.jobs.federation import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError
from parley.server.rounds.asking import Reply, Traffic, ask
from parley.server.rounds.party_status import PartyBoard, PartyStatus
from parley.server.rounds.transport import Transport, reply_bound

_ASK_AGAIN_S = 1.0
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class PartyFacts:
    """What a party says of itself before a run; all of it is public.

    Attributes:
        features: p, columns before an intercept.
        classes: K of its schema, 0 for −1/+1 labels and targets.
        records: n, where it is public, else None.
        schema: digest of what its columns and label mean, in hex.
        map: digest of the public map of features, in hex; empty: none.
    """

    features: int
    classes: int
    schema: str
    map: str = ""
    records: int | None = None

    def __post_init__(self) -> None:
        counts = 1 <= self.features < 2**31 and 0 <= self.classes < 2**31
        if not counts or not (self.records is None or 1 <= self.records < 2**40):
            raise ValueError("Expected numbers of columns, classes and records, got others.")
        if not all(map(_DIGEST.fullmatch, (self.schema, self.map or self.schema))):
            raise ValueError("Expected digests of schema and features in 64 hex digits.")


def dataset_name(job: Job) -> str:
    """The data's name in the server's ledger."""
    return job.privacy.dataset or job.data.source


def served_name(job: Job) -> str:
    """What the parties call the job's data: its name, or its source in a name's letters."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", dataset_name(job)).strip("-._")[-63:]
    return plain.lstrip("-._") or "data"


def data_head(job: Job, run_id: str) -> dict[str, Any]:
    """Which data a request is about, and how it is read."""
    return {
        "run": run_id,
        "dataset": served_name(job),
        "label": job.model.label,
        "intercept": job.model.has_intercept,
        "features": job.model.feature_map,
    }


def fewest_present(parties: int, *, survivors: int, corrupt: int, confirmed: bool = True) -> int:
    """With how many of m parties a round can begin: each needs t neighbours beside itself.

    Args:
        parties: m.
        survivors: least number of parties in a sum.
        corrupt: c.
        confirmed: whether survivors' lists are confirmed.

    Raises:
        JobError: no parameters of the protocol are safe for so many.
    """
    try:
        found = derive(parties, corrupt=corrupt, dropped=parties // 10, confirm_survivors=confirmed)
    except ValueError as error:
        raise JobError(f"Secure aggregation: {error}") from error
    return min(parties, max(survivors, found.threshold + 1))


def inspect(
    job: Job,
    transport: Transport,
    deployment: Deployment,
    board: PartyBoard,
    run_id: str,
    traffic: Traffic,
) -> tuple[dict[int, PartyFacts], dict[int, Reason]]:
    """What the parties that are there say of themselves, and who declines.

    Waits for everybody, as long as one request may take, then goes on with enough.
    """
    head = {
        **data_head(job, run_id),
        "sizes": not job.privacy.private_sizes,
    }
    least, settings = job.parties.min_records, job.secure_aggregation
    needed = fewest_present(
        len(deployment.parties),
        survivors=job.min_survivors,
        corrupt=job.corrupt,
        confirmed=settings.confirm_survivors and settings.dropouts != "optimistic",
    )
    return inspected(
        head,
        transport,
        deployment,
        board,
        traffic,
        needed=needed,
        timeout_s=job.run.stage_timeout,
        least=1 if least == "auto" else least,
    )


def inspected(
    asked: dict[str, Any],
    transport: Transport,
    deployment: Deployment,
    board: PartyBoard,
    traffic: Traffic,
    *,
    needed: int,
    timeout_s: float,
    least: int = 1,
) -> tuple[dict[int, PartyFacts], dict[int, Reason]]:
    """The same of any data: `asked` is the head of the question, without version and clock.

    Args:
        needed: how many parties have to be there.
        timeout_s: that they are waited for.
        least: records; who says that it has fewer takes no part.

    Raises:
        JobError: too few of them, or their columns differ.
    """
    everyone = set(range(len(deployment.parties)))
    board.stage("inspect", round_number=0)
    until = time.monotonic() + timeout_s
    facts: dict[int, PartyFacts] = {}
    declined: dict[int, Reason] = {}
    head = {"version": WIRE_VERSION, **asked, "clock": int(time.time())}
    while (waiting := everyone - set(facts) - set(declined)) and time.monotonic() < until:
        there = waiting & set(transport.online())
        if not there:
            time.sleep(_ASK_AGAIN_S)
            continue
        frames = {index: Frame(kind="inspect", head=head) for index in there}
        left = max(until - time.monotonic(), 1.0)
        for reply in ask(
            transport,
            frames,
            needed=there,
            timeout_s=left,
            traffic=traffic,
            largest=reply_bound(parties=len(everyone), dimension=0),
        ):
            try:
                facts[reply.party] = _facts(reply)
                board.party(reply.party, PartyStatus.ONLINE)
            except DecodingError:
                declined[reply.party] = reply.reason or Reason.PROTOCOL
                board.party(reply.party, PartyStatus.DECLINED, str(declined[reply.party]))
    for index, own in list(facts.items()):
        if own.records is not None and own.records < least:
            del facts[index]
            declined[index] = Reason.TOO_FEW_RECORDS
            board.party(index, PartyStatus.DECLINED, str(Reason.TOO_FEW_RECORDS))
    if len(facts) < needed:
        raise JobError(_too_few(deployment, facts, declined, needed))
    shapes = {(own.features, own.classes) for own in facts.values()}
    if len(shapes) > 1:
        listed = "; ".join(
            f"{deployment.parties[i].name}: {own.features} features, {own.classes} classes"
            for i, own in sorted(facts.items())
        )
        raise JobError(f"Expected the same columns at every party, got {listed}.")
    if len({own.schema for own in facts.values()}) > 1:
        listed = "; ".join(
            f"{deployment.parties[i].name}: {own.schema[:12]}" for i, own in sorted(facts.items())
        )
        raise JobError(
            "Expected one schema at every party (names, ranges and categories of columns, and the "
            f"label's meaning), got digests {listed}. Give every party the same schema file."
        )
    if len({own.map for own in facts.values()}) > 1:
        listed = "; ".join(
            f"{deployment.parties[i].name}: {own.map[:12]}" for i, own in sorted(facts.items())
        )
        raise JobError(
            f"Expected one map of features at every party, got digests {listed}. Give every party "
            "the same version of Parley and, for a map of your own, the same code and weights."
        )
    return facts, declined


def _facts(reply: Reply) -> PartyFacts:
    """The facts of the party that an answer came from.

    Raises:
        DecodingError: it has none, or another party's.
    """
    head = reply.frame.head
    if reply.status is not Status.OK or head.get("party") != reply.party:
        raise DecodingError(f"Expected the facts of party {reply.party}, got none.")
    return facts_from(PartyFacts, {each.name: head.get(each.name) for each in fields(PartyFacts)})


def _too_few(
    deployment: Deployment,
    facts: dict[int, PartyFacts],
    declined: dict[int, Reason],
    needed: int,
) -> str:
    names = [party.name for party in deployment.parties]
    missing = [name for index, name in enumerate(names) if index not in {*facts, *declined}]
    said = [f"{names[index]} declines ({reason})" for index, reason in sorted(declined.items())]
    if missing:
        said.append(f"offline: {', '.join(missing[:20])}{' …' if len(missing) > 20 else ''}")
    return (
        f"Expected at least {needed} of {len(names)} parties to take part, got {len(facts)}: "
        f"{'; '.join(said)}."
    )


def federation_of(job: Job, deployment: Deployment, facts: Mapping[int, PartyFacts]) -> Federation:
    """The public facts that the plan is made of; absent parties set none of them."""
    least, parties = job.parties.min_records, len(deployment.parties)
    sizes = [own.records for own in facts.values() if own.records is not None]
    if job.privacy.private_sizes and least != "auto":
        return Federation(
            parties=parties, min_records=least, total_records=least * parties, max_records=least
        )
    if len(sizes) < len(facts):
        raise JobError(
            "Expected every party to disclose its number of records (public under replace-one), "
            f"got {len(sizes)} of {len(facts)}."
        )
    if least != "auto":
        small = [
            f"{deployment.parties[i].name} ({own.records})"
            for i, own in sorted(facts.items())
            if own.records is not None and own.records < least
        ]
        if small:
            raise JobError(
                f"Expected every party to hold at least parties.min-records = {least} records, got "
                f"fewer of {', '.join(small)}."
            )
    known = Federation.of_sizes(np.array(sizes), None if least == "auto" else least)
    # As if the absent ones were of mean size: n̄ only scales the weights.
    return replace(
        known, parties=parties, total_records=round(known.total_records * parties / len(sizes))
    )
