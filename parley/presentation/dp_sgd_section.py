"""Describe DP-SGD in the parties: how they trained, and the account of each."""

from __future__ import annotations

from parley.presentation.document import Table
from parley.server.records.run_summary import DpSgdSummary, RunSummary
from parley.server.statements.guarantee_text import conversion, format_scope
from parley.server.statements.number_format import format_cost, format_epsilon, format_number

_MAX_SHOWN = 50
"""Maximum number of parties in the table of accounts."""


def build_account_table(run: RunSummary, facts: DpSgdSummary) -> Table:
    """Build the table of the parties' accounts, the largest first."""
    names = [name for name in ("rdp", "pld", "exact") if name in facts.largest]
    # Parties with most steps first: if many parties have the same account, a few rows are enough.
    order = sorted(facts.parties, key=lambda party: (-party.steps, party.party))
    caption = "Every party's account"
    if len(order) > _MAX_SHOWN:
        caption = f"The {_MAX_SHOWN} largest accounts of {format_number(len(order))} parties"
    rows = []
    for party in order[:_MAX_SHOWN]:
        costs = (format_epsilon(party.epsilon.get(name)) for name in names)
        sizes = format_number(party.records), format_number(party.steps)
        rows.append([str(party.party), *sizes, *costs])
    head = ["party", "records", "steps", *(f"ε by {conversion(n)}" for n in names)]
    return Table(caption=f"{caption}, ε {format_scope(run.primary)}", head=head, rows=rows)


def describe_dp_sgd(run: RunSummary) -> str:
    """Describe the meaning of the parties' accounts in DP-SGD."""
    charged_outside = run.record_bounds is not None and run.record_bounds.charged == "outer"
    share = 0.0 if run.dp_sgd is None else run.dp_sgd.clipped_share
    accounts = "The run charges a record only for the steps of its party."
    if charged_outside:
        accounts = (
            "These accounts also hold against the server. The run charged the bound from the "
            "server's noise on the sum."
        )
    clipped = (
        f"A share of {share:g} of every step's privacy budget pays for the fraction of clipped "
        "gradients, which is also released. σ is the combined noise multiplier of both releases."
        if share
        else (
            "The run does not report how many gradients it clipped: that would be another release. "
            "With unit record, set `dp-sgd.clipped-fraction-share` to release it within the same ε."
        )
    )
    return (
        "In every step a party draws a Poisson batch at rate q, clips every record's gradient to "
        f"length C and adds Gaussian noise. {accounts} {clipped} Every ε here is stated at "
        f"δ = {format_cost(run.primary.delta)}, {format_scope(run.primary)}."
    )
