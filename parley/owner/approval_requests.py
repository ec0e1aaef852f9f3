"""Describe pending requests to an owner, in words that Parley derives from what the party would
join.

From the server come only names of columns, which the party's schema has, and the values with which
a query compares them. Each fact is computed as the party computes it: from the plan's events, the
ledger's account and the roster.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parley.analytics.answer import format_title
from parley.client.algorithms.registry import list_release_assumptions
from parley.client.contract.agreement import Agreement
from parley.client.contract.assumptions import select_assumptions
from parley.client.contract.refusals import Declined
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.roster import Deployment, load_deployment
from parley.client.data.schema import load_schema
from parley.client.own_code.own_code_names import is_own_code
from parley.client.party import owner_decisions
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.ledger_cache import LedgerCache
from parley.client.party.owner_approval import JobProposal, OwnerApprovals
from parley.client.party.owner_policy import OwnerPolicy, load_policy
from parley.client.party.party_folder import PartyFolder
from parley.client.party.request_lock import hold_request_lock
from parley.client.party.run_validation import build_accepted_algorithm, get_accepted_kind
from parley.presentation.disclosure_tables import build_attacker_table
from parley.presentation.document import Table
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.rounding import format_rounded_down
from parley.privacy.accounting.threat_model import Adversary
from parley.privacy.ledger.account import BudgetAccount
from parley.privacy.ledger.block_composition import Blocks
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.ledger import Ledger
from parley.secure_agg.primitives import derive_signing_public_key
from parley.server.records.guarantee_costs import compute_attacker_rates
from parley.server.statements.guarantee_text import (
    Fact,
    format_allowed,
    format_epsilon_delta,
    format_scope,
)
from parley.server.statements.number_format import format_epsilon

_MOST_NAMES, _WAIT_S = 60, 30.0


@dataclass(frozen=True, kw_only=True)
class ApprovalRequest:
    """One pending request to an owner.

    Attributes:
        name: 32 hex digits, which differ if any part of the request differs.
        price: Cost of an approval, in one sentence.
        yes: The same as the text of a button.
        attackers: Recognition rates, for each unit of privacy.
    """

    name: str
    dataset: str
    price: str
    yes: str
    facts: tuple[Fact, ...]
    attackers: tuple[Table, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain JSON values."""
        names = ("caption", "head", "rows")
        tables = [{name: getattr(each, name) for name in names} for each in self.attackers]
        facts = [[each.name, each.value] for each in self.facts]
        return {**vars(self), "facts": facts, "attackers": tables}


@dataclass(frozen=True, kw_only=True)
class OwnedParty:
    """A party's folder, open for its owner; `open_party` creates it."""

    folder: Path
    name: str
    policy: OwnerPolicy
    deployment: Deployment
    party_folder: PartyFolder
    ledger: Ledger

    def list_pending(self) -> tuple[JobProposal, ...]:
        """Return the pending job proposals."""
        approvals = OwnerApprovals(
            party_folder=self.party_folder,
            ledger=self.ledger,
            policy=self.policy,
            clock=time.time(),
        )
        return approvals.list_pending(self.deployment.identities)

    def list_requests(self) -> tuple[ApprovalRequest, ...]:
        """Return the pending requests in words."""
        return tuple(self.build_request(asked) for asked in self.list_pending())

    def decide(self, name: str, *, accepted: bool, reason: str = "") -> str:
        """Record a decision and return a confirmation; see `owner_decisions.record_decision`."""
        made = owner_decisions.record_decision(
            self.ledger, self.policy, self.list_pending(), name, accepted=accepted, reason=reason
        )
        said = "refused: this party takes no part"
        if made.accepted:
            said = "approved: this party takes part"
        return f"{name} is {said}. Recorded in the ledger at {made.at}."

    def build_request(self, proposal: JobProposal) -> ApprovalRequest:
        """Return one pending request in words."""
        dataset = self.policy.get_dataset(proposal.dataset)
        account = dataset.account or proposal.dataset
        totals = {each.key: each for each in self.ledger.list_accounts()}
        costs = [
            _ApprovalCost.from_proposal(self.ledger, proposal, totals[BudgetKey(account, unit)])
            for unit in dataset.totals
        ]
        facts = [
            *self._list_computed(proposal, dataset),
            *(fact for cost in costs for fact in cost.list_facts(several=len(costs) > 1)),
            self._build_assumptions(proposal),
            *self._list_others(proposal),
            *self._list_times(proposal),
        ]
        return ApprovalRequest(
            name=proposal.id,
            dataset=proposal.dataset,
            price=" ".join(cost.sentence for cost in costs),
            yes=f"Approve: spend {' and '.join(cost.spends for cost in costs)}",
            facts=tuple(facts),
            attackers=tuple(cost.attacker for cost in costs),
        )

    def _list_computed(self, proposal: JobProposal, dataset: DatasetConfig) -> Iterator[Fact]:
        """Yield facts on what is computed, and from which columns."""
        for agreed in proposal.stages:
            try:
                row = get_accepted_kind(self.policy, agreed.task.get("kind"))
                algorithm = build_accepted_algorithm(self.policy, agreed.task)
            except Declined as declined:
                said = f"nothing: party.toml now declines it ({declined.reason})"
                yield Fact("Computation", said)
                continue
            batch = getattr(algorithm, "batch", None)
            alone = bool(getattr(getattr(algorithm, "counting", None), "parties", 0))
            if batch is None:
                model = row.parse_size(agreed.task)[0]
                what = f"{row.title}{f', of a {model} model' if model else ''}"
                columns = self._format_columns(dataset, agreed)
            else:
                what = "; ".join(map(format_title, batch.queries))
                columns = ", ".join(sorted(batch.columns)) or "none: records are counted"
            own = " (code of your own)" if is_own_code(str(agreed.task["kind"])) else ""
            yield Fact("Computation", f"{what}{own}: {_format_releases(agreed, alone)}")
            records = (
                "the records held out" if row.after_rounds else f"the records of {proposal.dataset}"
            )
            yield Fact("Input", f"{records}, columns: {columns}")

    def _build_assumptions(self, proposal: JobProposal) -> Fact:
        """Return the guarantee's assumptions, from the algorithm, the user's own feature map, and
        blocks.
        """
        rests: dict[str, None] = {}
        for agreed in proposal.stages:
            with suppress(Declined):
                task = build_accepted_algorithm(self.policy, agreed.task)
                said = list_release_assumptions(task, agreed.features.get("name", ""))
                for unit in agreed.plan.units:
                    own = select_assumptions(unit, (*said, *agreed.plan.assumptions))
                    rests |= dict.fromkeys(own)
        return Fact("Assumptions", "; ".join(rests) or "nothing")

    def _format_columns(self, dataset: DatasetConfig, agreed: Agreement) -> str:
        """Return the columns from which a model is learned."""
        through = agreed.features.get("name", "")
        mapped = f", through the public feature map {through}" if through else ""
        if dataset.app_data:
            return f"whatever your own app reads (app-data = {dataset.app_data!r})"
        if dataset.prepared:
            return f"those of the prepared file, without names here{mapped}"
        schema = load_schema(self.folder / dataset.data_schema)
        names = list(schema.features)
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        listed = ", ".join(names[:_MOST_NAMES])
        label = "".join(f", and the label {name}" for name in schema.labels)
        return f"{listed}{more}{label}{mapped}"

    def _list_others(self, proposal: JobProposal) -> Iterator[Fact]:
        """Yield facts on the other parties and on the requesting server."""
        names = [party.name for party in self.deployment.parties if party.name != self.name]
        least = min(each.plan.min_survivors for each in proposal.stages)
        yield Fact(
            "Other parties",
            f"{', '.join(names[:_MOST_NAMES])}: at least {least} of all {len(names) + 1} in a sum",
        )
        yield Fact("Server", f"the server of this deployment, {self.deployment.server_address}")

    def _list_times(self, proposal: JobProposal) -> Iterator[Fact]:
        until = proposal.proposed_at + self.policy.approval_days * 24 * 3600
        yield Fact(
            "Asked",
            f"{_format_time(proposal.proposed_at)}; expires without approval at "
            f"{_format_time(until)}",
        )


@contextmanager
def open_party(folder: Path) -> Iterator[OwnedParty]:
    """Open the party in a folder for the `with` block.

    Raises:
        PartyFolderError, ConsentError, RosterError, LedgerError: what its owner must repair.
    """
    folder = folder.resolve()
    party_folder = PartyFolder.open(folder)
    deployment = load_deployment(folder / "deployment.toml")
    own = derive_signing_public_key(party_folder.load_identity())
    name = next((each.name for each in deployment.parties if each.identity == own), "")
    if not party_folder.ledger_path.exists():  # create it as the party does, for its owner only
        with (
            hold_request_lock(party_folder.path, wait_s=_WAIT_S),
            closing(LedgerCache(party_folder.ledger_path)) as kept,
        ):
            kept.get_ledger()
    with Ledger.open(party_folder.ledger_path) as ledger:
        yield OwnedParty(
            folder=folder,
            name=name,
            policy=load_policy(folder / "party.toml"),
            deployment=deployment,
            party_folder=party_folder,
            ledger=ledger,
        )


@dataclass(frozen=True, kw_only=True)
class _ApprovalCost:
    """The cost of an approval for one unit of privacy."""

    spent: Composition
    before: BudgetAccount
    after: BudgetAccount
    plans: tuple[ReleasePlan, ...]
    blocks: Blocks

    @classmethod
    def from_proposal(
        cls, ledger: Ledger, proposal: JobProposal, account: BudgetAccount
    ) -> _ApprovalCost:
        key = account.key
        claims = proposal.build_claims(ledger, key.dataset, key.unit)
        spent = Composition()
        for event, count in claims:
            spent = spent.add(event, count=count)
        return cls(
            spent=spent,
            before=account,
            after=account.with_hold(proposal.run_id, claims, proposal.blocks),
            blocks=proposal.blocks,
            plans=tuple(each.plan for each in proposal.stages),
        )

    @property
    def spends(self) -> str:
        """ε of the job."""
        budget = self.before.budget
        return (
            f"ε = {format_epsilon(self.spent.compute_lowest_epsilon(budget.delta)[1])} per "
            f"{budget.unit}"
        )

    @property
    def _left_epsilon(self) -> tuple[float, float]:
        budget, blocks = self.before.budget, self.blocks
        before, after = (each.compute_spent_or_held(blocks) for each in (self.before, self.after))
        return budget.compute_remaining(before), budget.compute_remaining(after)

    @property
    def _left(self) -> tuple[str, str]:
        before, after = self._left_epsilon
        return format_rounded_down(before), format_rounded_down(after)

    @property
    def weakest(self) -> Adversary:
        """The strongest adversary against which all of its releases hold."""
        unit = self.before.budget.unit
        known = (plan.get_charging_guarantee(unit).against for plan in self.plans)
        return min(known, key=tuple(Adversary).index)

    @property
    def sentence(self) -> str:
        """The cost of an approval in words."""
        before, after = self._left
        budget = self.before.budget
        epsilon = self.spent.compute_lowest_epsilon(budget.delta)[1]
        taken, why = self._left_epsilon[0] - self._left_epsilon[1], ""
        if taken < 0.99 * epsilon:
            why = (
                " The difference is less than the job's own ε: releases together cost less than "
                "the sum of their separate costs."
            )
        elif taken > 1.01 * epsilon:
            why = (
                " The difference is more than the job's own ε: combined with other releases, the "
                f"account charges more for it (certificate {budget.certificate})."
            )
        return (
            f"Approval spends {self.spends} of {budget.name}: ε = {before} left before, ε = "
            f"{after} left after.{why} Spent budget cannot be refunded."
        )

    def list_facts(self, *, several: bool) -> Iterator[Fact]:
        """Yield price, promise and budget, with unit, relation and adversary."""
        budget, unit = self.before.budget, self.before.budget.unit
        of = f", per {unit}" if several else ""
        epsilon = self.spent.compute_lowest_epsilon(budget.delta)[1]
        by = [plan.get_charging_guarantee(unit) for plan in self.plans]
        noise = {f"{each.mechanism.law}, added by {each.noise_point.added_by}" for each in by}
        yield Fact(
            f"Cost{of}", f"{format_epsilon_delta(epsilon, budget.delta)}, {format_scope(budget)}"
        )
        if self.blocks:
            named = ", ".join(map(repr, self.blocks))
            yield Fact("Records", f"only blocks {named} (as named in the job)")
        yield Fact(f"Protects against{of}", self.weakest.words)
        yield Fact(f"Noise{of}", "; ".join(sorted(noise)))
        if any(plan.seeded for plan in self.plans):
            yield Fact("Source of the noise", "a seed: it protects no one")
        before, after = self._left
        total = format_allowed(budget.epsilon, budget.delta)
        yield Fact(f"Left before{of}", f"ε = {before} of {total}")
        yield Fact(f"Left after{of}", f"ε = {after}")
        yield Fact(f"Budget holds{of}", budget.certificate.description)

    @property
    def attacker(self) -> Table:
        """Upper bounds on what an attacker recognises by this job."""
        budget, rates = self.before.budget, compute_attacker_rates(self.spent)
        table = build_attacker_table(rates, budget, self.weakest)
        return replace(table, caption=f"From this job only. {table.caption}")


def _format_releases(agreed: Agreement, alone: bool) -> str:
    plan, count = agreed.plan, agreed.rounds
    of = "of each party by itself" if alone else "summed over all parties"
    numbers = f"{plan.dimension:,} number{'' if plan.dimension == 1 else 's'}"
    if count == 1:
        return f"one release of {numbers}, {of}"
    return f"{count:,} releases of {numbers} each, {of}"


def _format_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
