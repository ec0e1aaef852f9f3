"""Build the owner's overview: pending requests, remaining budgets, and recent jobs with their
costs.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from parley.client.algorithms.registry import get_title
from parley.owner.approval_requests import ApprovalRequest, OwnedParty
from parley.presentation.document import Code, Document, Facts, Table, Text, build_section
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.rounding import format_exact, format_rounded_down
from parley.privacy.ledger.approvals import OwnerDecision
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.ledger.recorded_entries import EntryState
from parley.server.statements import guarantee_text
from parley.server.statements.data_account_text import format_block
from parley.server.statements.number_format import format_epsilon

Row = dict[str, str]
"""A line of a table: heading → text."""

_MAX_RUNS = 12
"""Maximum number of runs shown; `parley ledger show` has all of them."""


def list_budgets(party: OwnedParty) -> list[Row]:
    """Return a row per budget: data set, spent, left, and when the owner is asked."""
    accounts = {each.key: each for each in party.ledger.list_accounts()}
    rows = []
    for name, dataset in party.policy.data.items():
        above = dataset.approval_above
        asked = "never" if above is None else f"above ε = {format_exact(above)}"
        for unit, total in dataset.totals.items():
            own = accounts.get(BudgetKey(dataset.account or name, unit))
            spent = 0.0 if own is None else own.epsilon
            left = format_rounded_down(total.epsilon if own is None else own.remaining)
            if own is not None and (blocks := own.compute_by_block()):
                each = {format_block(at): one for at, (_, one) in blocks.items()}
                left = ", ".join(f"{name} {format_rounded_down(one)}" for name, one in each.items())
            rows.append(
                {
                    "data set": name,
                    "per": str(unit),
                    "may spend": guarantee_text.format_allowed(total.epsilon, total.delta),
                    "spent ε": format_epsilon(spent),
                    "left ε": left,
                    "you are asked": "every time" if above == 0 else asked,
                }
            )
    return rows


def list_notes(party: OwnedParty) -> list[str]:
    """Return for which analysts each open budget holds, and the figures of what was spent."""
    names: dict[str, dict[str, None]] = {}
    for account in party.ledger.list_accounts():
        names.setdefault(account.budget.certificate.description, {})[account.budget.name] = None
    holding = [f"{', '.join(own)}: the budget holds {promise}." for promise, own in names.items()]
    return [*holding, f"Spent and paid: {guarantee_text.FIXED_RELEASES_NOTE}."]


def list_runs(party: OwnedParty) -> list[Row]:
    """Return a row for each of the latest runs that were charged or decided, the newest first."""
    deltas = {each.key: each.budget.delta for each in party.ledger.list_accounts()}
    charged: dict[tuple[str, str], list[tuple[str, LedgerEntry]]] = {}
    for each in party.ledger.list_entries():
        if each.state is not EntryState.VOIDED:
            key = each.entry.run_id, each.entry.dataset
            charged.setdefault(key, []).append((each.reserved_at, each.entry))
    decisions = {(each.run_id, each.dataset): each for each in party.ledger.list_decisions()}
    rows = []
    for key in charged.keys() | decisions.keys():
        own, decision = charged.get(key, []), decisions.get(key)
        rows.append(
            {
                "at": own[0][0] if own else decision.at if decision else "",
                "data set": key[1],
                "what": ", ".join({get_title(str(e.facts["mechanism"])): 0 for _, e in own}),
                "paid": _format_spent([entry for _, entry in own], deltas),
                "your decision": _format_decision(decision),
                "run": key[0],
            }
        )
    rows.sort(key=lambda row: row["at"], reverse=True)
    return [{**row, "at": row["at"][:16].replace("T", " ")} for row in rows[:_MAX_RUNS]]


def _format_spent(entries: list[LedgerEntry], deltas: dict[BudgetKey, float]) -> str:
    """Return ε of a run's releases, for every unit."""
    texts = []
    for key in dict.fromkeys(each.key for each in entries):
        spent = Composition.from_events(each.event for each in entries if each.key == key)
        epsilon = spent.compute_lowest_epsilon(deltas[key])[1]
        texts.append(f"ε = {format_epsilon(epsilon)} per {key.unit}")
    return ", ".join(texts) or "nothing"


def _format_decision(decision: OwnerDecision | None) -> str:
    if decision is None:
        return "not asked"
    why = f": {decision.reason}" if decision.reason else ""
    return f"{'yes' if decision.accepted else 'no'}{why}"


def build_status(party: OwnedParty) -> dict[str, Any]:
    """Return the overview as plain JSON values, which the page shows, too."""
    return {
        "party": party.name,
        "server": party.deployment.server_address,
        "waits": [offer.to_json() for offer in party.list_requests()],
        "budgets": list_budgets(party),
        "notes": list_notes(party),
        "runs": list_runs(party),
    }


def build_owner_document(party: OwnedParty) -> Document:
    """Build the overview: what is left, what was paid, and what waits for an approval."""
    requests = party.list_requests()
    waiting = [Text(f"{each.name}  {each.dataset}: {each.price}") for each in requests]
    hint = "Nothing waits for your approval."
    if requests:
        hint = f"`parley owner pending {shlex.quote(str(party.folder))}` describes each."
    return Document(
        headline=f"{party.name}, of the deployment of {party.deployment.server_address}",
        sections=[
            build_section("Remaining budgets", _build_table(list_budgets(party))),
            build_section("Recent jobs, the newest first", _build_table(list_runs(party))),
            build_section("", *(Text(note, "fine") for note in list_notes(party))),
            build_section("Pending approvals", *waiting, Text(hint)),
        ],
    )


def build_approval_document(request: ApprovalRequest, folder: Path) -> Document:
    """Build what one pending request would compute and cost, and the commands that decide it."""
    place = shlex.quote(str(folder))
    commands = [f"parley owner {word} {place} {request.name}" for word in ("accept", "refuse")]
    return Document(
        headline=f"{request.name}  {request.dataset}",
        lede=request.price,
        sections=[
            build_section("", Facts(request.facts)),
            build_section("", *request.attackers, Code("\n".join(commands))),
        ],
    )


def _build_table(rows: list[Row]) -> Table | Text:
    if not rows:
        return Text("None yet.")
    return Table(head=list(rows[0]), rows=[list(row.values()) for row in rows], prose=True)
