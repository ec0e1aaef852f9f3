"""Version 3: an account for each budget, named by data and unit, in place of the data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from parley.privacy.ledger.store import Reader

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "3"
down_revision = "2"


def upgrade(op: Operations) -> None:
    """Records get a unit, which those that are there leave empty: their hashes stand."""
    accounts = Reader(op.get_bind()).stored_accounts()
    op.add_column("parley_ledger_records", sa.Column("unit", sa.Text))
    op.drop_table("parley_ledger_datasets")
    texts = ("fingerprint", "budget", "spent", "held", "known", "formerly")
    table = op.create_table(
        "parley_ledger_accounts",
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("name", "unit")),
        *(sa.Column(name, sa.Text, nullable=False) for name in texts),
        sa.UniqueConstraint("fingerprint", "unit"),
    )
    op.bulk_insert(table, [account.row() for account in accounts.values()])
