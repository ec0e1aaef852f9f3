"""The account of one budget: the budget, its spent part, and the parts that running runs hold.

An account changes only by the functions here. The ledger applies them when it writes a record and
again when it replays the log. The row in the table of accounts is a copy: the `digest` of all rows
is part of every record's hashed content, so a row is accepted only if the end of the chain vouches
for it.

Before its first round a run *holds* what all its rounds will need. Its releases are then charged
against the hold, so runs that share a ledger cannot starve each other half-way. The run returns
what it does not use. Returning a hold early is always safe, because every later release is checked
against the budget separately.

Steps of DP-SGD have a useful bound only as a whole plan. An account whose certificate holds under
full adaptivity charges all of a job's steps as one event when they are held (`PlannedSteps`), and
returns none of it. The job's releases belong to that plan and cost no more.

    >>> from parley.privacy.accounting.privacy_events import Pure
    >>> from parley.privacy.accounting.threat_model import Neighbouring, Unit
    >>> day = Pure(epsilon=0.1)
    >>> account = BudgetAccount(budget=DatasetBudget(
    ...     name="adult", fingerprint="sha256:0c4a", unit=Unit.RECORD,
    ...     neighbouring=Neighbouring.REPLACE_ONE, epsilon=1.0, delta=0.0,
    ... ))
    >>> account = account.with_hold("r1", ((day, 6),)).with_release("r1", day)
    >>> (account.spent.releases, account.spent_or_held.releases,
    ... account.can_hold(((day, 5),), run_id="r2"))
    (1, 6, False)
    >>> (account.count_fitting(((day, 5),), run_id="r2"),
    ... BudgetAccount.from_row(account.to_row()) == account)
    (4, True)
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parley.module_loading.plugin_table import load_attribute
from parley.privacy.accounting.account_admission import AccountCertificate, is_planned
from parley.privacy.accounting.budget_capacity import find_largest_count
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import PlannedSteps, PrivacyEvent, parse_event
from parley.privacy.accounting.rounding import check_whole
from parley.privacy.ledger.block_composition import OTHER_BLOCKS, Blocks, SpentByBlock
from parley.privacy.ledger.budget import BudgetKey, DatasetBudget
from parley.privacy.ledger.hash_chain import encode_canonical_json

_MAX_FINGERPRINTS = 64
"""Maximum number of stored fingerprints; a growing table has a new one every night."""

Claims: TypeAlias = tuple[tuple[PrivacyEvent, int], ...]
"""Future releases: events with the number of each."""


class RunHold(NamedTuple):
    """The releases that a run has set aside, and the blocks that it reads.

    `planned` contains the releases that were charged as one job and not made yet.
    """

    claims: Claims
    blocks: Blocks
    planned: Claims = ()


_SAMPLED = "parley.privacy.accounting.subsampled_gaussian"
"""Plans of sampled steps, which other jobs do not import."""


Digests = NDArray[np.uint64]
"""Sorted, keyed digests of rows."""


class DigestPiece(NamedTuple):
    """Sorted digests of rows as they are stored, all of one block."""

    block: str
    digests: bytes


@dataclass(frozen=True, kw_only=True)
class KnownRows:
    """Summary of the digests that an account has of its rows.

    Attributes:
        key: identifies the digest key, without revealing anything else about it.
        pieces: number of pieces.
        digest: SHA-256 over all pieces in order.
    """

    key: str
    pieces: int
    digest: str

    @classmethod
    def from_json(cls, value: Any) -> Self | None:
        """Parse the result of `vars`; None if no rows are known."""
        return None if value is None else cls(**value)


@dataclass(frozen=True, kw_only=True)
class BudgetAccount:
    """A registered budget.

    Attributes:
        charged: all releases that were reserved and not voided, by block.
        held: run → what it has set aside for releases that it has not reserved yet.
        known: other fingerprints by which the same data were recognised, in order; only the latest
            if its rows also identify them.
        rows: summary of its known rows; None if there are none.
    """

    budget: DatasetBudget
    charged: SpentByBlock = field(default_factory=SpentByBlock)
    held: Mapping[str, RunHold] = field(default_factory=lambda: MappingProxyType({}))
    known: tuple[str, ...] = ()
    rows: KnownRows | None = None

    @property
    def key(self) -> BudgetKey:
        """The key of the budget in the ledger."""
        return self.budget.key

    @property
    def fingerprints(self) -> frozenset[str]:
        """All fingerprints of the data."""
        return frozenset((self.budget.fingerprint, *self.known))

    @property
    def spent(self) -> Composition:
        """Upper bound on the spending of each record: that of the block that spent most."""
        return self.charged.find_largest(self.budget.compute_epsilon)

    @property
    def epsilon(self) -> float:
        """The spent ε, by the account's certificate."""
        return self.budget.compute_epsilon(self.spent)

    @property
    def spent_or_held(self) -> Composition:
        """`spent` plus all runs' holds: the part that another run cannot have of every block."""
        return self.compute_spent_or_held(())

    def compute_spent_or_held(self, blocks: Blocks) -> Composition:
        """Return what is spent or held of these blocks."""
        return self._spent_or_held.find_largest(self.budget.compute_epsilon, blocks)

    @property
    def _spent_or_held(self) -> SpentByBlock:
        taken = self.charged
        for own in self.held.values():
            for event, count in own.claims:
                taken = taken.add(event, own.blocks, count)
        return taken

    @property
    def held_counts(self) -> dict[str, int]:
        """Run → number of releases that it holds."""
        counts = {run: sum(count for _, count in own.claims) for run, own in self.held.items()}
        return {run: count for run, count in counts.items() if count}

    def is_closed_to(self, run_id: str) -> bool:
        """Return whether the account is only for the plan of another run."""
        plan = self.budget.certificate is AccountCertificate.PLAN
        return plan and bool(self.held) and run_id not in self.held

    @property
    def remaining(self) -> float:
        """ε minus what is spent or held, for the block with the least."""
        return self.budget.compute_remaining(self.spent_or_held)

    def compute_by_block(self, blocks: Blocks = ()) -> dict[str, tuple[Composition, float]]:
        """Return what each block has spent, and its remaining ε; empty if none was ever named.

        Args:
            blocks: additional blocks. `OTHER_BLOCKS`, all blocks that were not named, is always
                included.
        """
        taken = self._spent_or_held
        names = sorted({*self.charged.blocks, *taken.blocks, *blocks})
        if not names:
            return {}
        spent = self.charged.get_compositions((*names, OTHER_BLOCKS))
        gone = taken.get_compositions((*names, OTHER_BLOCKS))
        return {name: (spent[name], self.budget.compute_remaining(gone[name])) for name in spent}

    def to_json(self) -> dict[str, Any]:
        """Return what is spent and left, as plain JSON values; ε by the account's certificate."""
        delta = self.budget.delta
        return {
            "budget": self.budget.to_json(),
            "releases": self.spent.releases,
            "rho": self.spent.rho,
            "certificate": str(self.budget.certificate),
            "holds": self.budget.certificate.validity,
            "epsilon": self.compute_epsilons(self.spent),
            "held": self.held_counts,
            "remaining": {"epsilon": self.remaining, "delta": delta},
            "blocks": {
                name: {
                    "epsilon": self.compute_epsilons(spent),
                    "remaining": {"epsilon": left, "delta": delta},
                }
                for name, (spent, left) in self.compute_by_block().items()
            },
        }

    def compute_epsilons(self, spent: Composition) -> dict[str, float]:
        """Return the charged ε: by the certificate, or by every accountant for a plan."""
        if self.budget.certificate.is_adaptive:
            epsilon = self.budget.compute_epsilon(spent)
            return {str(self.budget.certificate): epsilon} if math.isfinite(epsilon) else {}
        return spent.compute_epsilons(self.budget.delta)

    def has_held(self, run_id: str, event: PrivacyEvent, blocks: Blocks) -> bool:
        """Return whether the run already holds this release."""
        own = self._get_hold(run_id, blocks)
        return event in dict(own.planned if self.must_plan(event) else own.claims)

    def must_plan(self, event: PrivacyEvent) -> bool:
        """Return whether releases of this kind are charged together when a job begins."""
        return self.budget.certificate.is_adaptive and is_planned(event)

    def compute_planned_charges(
        self, run_id: str, claims: Claims, blocks: Blocks
    ) -> tuple[PlannedSteps, ...]:
        """Return the charges for holding `claims`: one job per kind that was not planned yet."""
        charged, planned = self.charged, list[PlannedSteps]()
        for event, count in self._list_unplanned(run_id, claims, blocks):
            spent = set(charged.get_compositions(blocks).values())
            delta = min(self.budget.compute_next_delta(each) for each in spent)
            planned.append(load_attribute(f"{_SAMPLED}:build_planned_steps")(event, count, delta))
            charged = charged.add(planned[-1], blocks)
        return tuple(planned)

    def _list_unplanned(self, run_id: str, claims: Claims, blocks: Blocks) -> Claims:
        before = dict(self._get_hold(run_id, blocks).planned)
        more = ((e, n - before.get(e, 0)) for e, n in claims if self.must_plan(e))
        return tuple((event, count) for event, count in more if count > 0)

    def _get_hold(self, run_id: str, blocks: Blocks) -> RunHold:
        """Return what the run holds of exactly these blocks."""
        own = self.held.get(run_id)
        return own if own is not None and own.blocks == blocks else RunHold((), blocks)

    def is_within_budget(self, blocks: Blocks) -> bool:
        """Return whether each of the blocks is within the budget."""
        return all(
            self.budget.can_admit(each)
            for each in set(self._spent_or_held.get_compositions(blocks).values())
        )

    def can_hold(self, claims: Claims, blocks: Blocks = (), *, run_id: str) -> bool:
        """Return whether a run may hold `claims` instead of its current hold."""
        return self.with_hold(run_id, claims, blocks).is_within_budget(blocks)

    def count_fitting(self, claims: Claims, blocks: Blocks = (), *, run_id: str) -> int:
        """Return how many releases of the last kind in `claims` would fit after the others."""
        *ahead, (event, count) = claims
        return find_largest_count(
            lambda more: self.can_hold((*ahead, (event, more)), blocks, run_id=run_id),
            maximum=count,
        )

    def with_hold(
        self,
        run_id: str,
        claims: Claims,
        blocks: Blocks = (),
        planned: Sequence[PlannedSteps] | None = None,
    ) -> BudgetAccount:
        """Return the account after a run replaced its hold by `claims`; empty claims end the hold.

        Args:
            planned: the jobs charged at once, as they were recorded; None: compute them.

        Raises:
            ValueError: the planned jobs are not what the claims need.
        """
        if not claims and run_id in self.held:
            blocks = self.held[run_id].blocks
        if planned is None:
            planned = self.compute_planned_charges(run_id, claims, blocks)
        elif [(p.event, p.count) for p in planned] != [
            *self._list_unplanned(run_id, claims, blocks)
        ]:
            raise ValueError("Expected every planned job of a hold to be charged with it.")
        for job in planned:
            load_attribute(f"{_SAMPLED}:check_planned")(job)
        charged, left = self.charged, dict(self._get_hold(run_id, blocks).planned)
        for job in planned:
            charged = charged.add(job, blocks)
            left[job.event] = left.get(job.event, 0) + job.count
        own = tuple((e, n) for e, n in claims if n and not self.must_plan(e))
        after = replace(self, charged=charged)
        return after._replace_hold(run_id, RunHold(own, blocks, tuple(left.items())))

    def _replace_hold(self, run_id: str, own: RunHold) -> BudgetAccount:
        """Return the account with this hold of a run; an empty hold is removed.

        A plan's account keeps its run.
        """
        held = {run: each for run, each in self.held.items() if run != run_id}
        if own.claims or own.planned or self.budget.certificate is AccountCertificate.PLAN:
            held[run_id] = own
        return replace(self, held=MappingProxyType(held))

    def with_release(self, run_id: str, event: PrivacyEvent, blocks: Blocks = ()) -> BudgetAccount:
        """Return the account after a reservation, taken from the run's hold if possible."""
        own = self.held.get(run_id, RunHold((), blocks))
        if self.must_plan(event):
            if not self.has_held(run_id, event, blocks):
                raise ValueError("Expected a step of a planned job, got another.")
            left = own._replace(planned=_remove_claim(own.planned, event))
            return self._replace_hold(run_id, left)
        after = replace(self, charged=self.charged.add(event, blocks))
        if self.has_held(run_id, event, blocks):
            own = own._replace(claims=_remove_claim(own.claims, event))
        return after._replace_hold(run_id, own)

    def with_voided(self, run_id: str, event: PrivacyEvent, blocks: Blocks = ()) -> BudgetAccount:
        """Return the account after a reservation was voided; a planned one returns to its plan."""
        if self.must_plan(event):
            own = self.held.get(run_id, RunHold((), blocks))
            if own.blocks != blocks:
                # The run's hold on other blocks must not move to these: it was not checked against
                # their budget.
                return self
            left = dict(self._get_hold(run_id, blocks).planned)
            left[event] = left.get(event, 0) + 1
            return self._replace_hold(run_id, own._replace(planned=tuple(left.items())))
        return replace(self, charged=self.charged.remove(event, blocks))

    def with_fingerprints(
        self, fingerprints: Iterable[str], rows: KnownRows | None = None
    ) -> BudgetAccount:
        """Return the account with more fingerprints of the same data and new known rows."""
        new = sorted(set(fingerprints) - self.fingerprints - {""})
        known, rows = (*self.known, *new), rows or self.rows
        return replace(self, known=known[-_MAX_FINGERPRINTS:] if rows else known, rows=rows)

    def with_raised_budget(self, *, epsilon: float, delta: float) -> BudgetAccount:
        """Return the account with a larger budget, which a person chose."""
        budget = self.budget
        grows = epsilon > budget.epsilon or delta > budget.delta
        if epsilon < budget.epsilon or delta < budget.delta or not grows:
            raise ValueError(f"Expected a budget above {budget.guarantee}, got {epsilon}, {delta}.")
        return replace(self, budget=replace(budget, epsilon=epsilon, delta=delta))

    def to_row(self) -> dict[str, str]:
        """Return the account as texts, in a unique form."""
        held = {
            run: {"claims": encode_claims(own.claims), "blocks": list(own.blocks)}
            | ({"planned": encode_claims(own.planned)} if own.planned else {})
            for run, own in self.held.items()
        }
        return {
            "name": self.budget.name,
            "unit": str(self.budget.unit),
            "fingerprint": self.budget.fingerprint,
            "budget": encode_canonical_json(self.budget.to_json()),
            "spent": encode_canonical_json(self.charged.to_json()),
            "held": encode_canonical_json(held),
            "known": encode_canonical_json(list(self.known)),
            "rows": encode_canonical_json(self.rows and vars(self.rows)),
        }

    @classmethod
    def from_row(cls, row: Mapping[str, str]) -> Self:
        """Parse a row of `to_row`; raise ValueError, KeyError or TypeError for anything else."""
        held = {
            run: RunHold(
                parse_claims(own["claims"]),
                tuple(own["blocks"]),
                parse_claims(own.get("planned", ())),
            )
            for run, own in json.loads(row["held"]).items()
        }
        return cls(
            budget=DatasetBudget.from_json(json.loads(row["budget"])),
            charged=SpentByBlock.from_json(json.loads(row["spent"])),
            held=MappingProxyType(held),
            known=tuple(json.loads(row["known"])),
            rows=KnownRows.from_json(json.loads(row["rows"])),
        )


def digest_accounts(rows: Iterable[Mapping[str, str]]) -> str:
    """Return the SHA-256 of the rows of all accounts, ordered by name and unit."""
    columns = ("name", "unit", "fingerprint", "budget", "spent", "held", "known", "rows")
    ordered = sorted([row[column] for column in columns] for row in rows)
    return sha256(encode_canonical_json(ordered).encode("ascii")).hexdigest()


def encode_claims(claims: Claims) -> list[dict[str, object]]:
    """Return plain JSON values."""
    return [{"event": event.to_json(), "count": count} for event, count in claims]


def parse_claims(values: Iterable[Mapping[str, object]]) -> Claims:
    """Parse the result of `encode_claims`; raise ValueError, KeyError or TypeError otherwise."""
    return tuple((parse_event(v["event"]), check_whole("count", v["count"])) for v in values)


def _remove_claim(claims: Claims, event: PrivacyEvent) -> Claims:
    """Return the claims without one release of this kind."""
    fewer = ((each, n - (each == event)) for each, n in claims)
    return tuple((each, n) for each, n in fewer if n)
