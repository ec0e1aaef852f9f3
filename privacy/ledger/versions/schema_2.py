"""Version 2: totals count events; a data set has what runs hold and what it is known by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from parley.privacy.ledger.store import Reader
from parley.privacy.ledger.tables import DATASETS

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "2"
down_revision = "1"


def upgrade(op: Operations) -> None:
    """Adds the two columns, and writes each total as the log's events."""
    rows = Reader(op.get_bind()).rows()
    for name in ("held", "known"):
        op.add_column(DATASETS.name, sa.Column(name, sa.Text))
    for row in rows:
        op.execute(sa.update(DATASETS).where(DATASETS.c.name == row["name"]).values(row))
