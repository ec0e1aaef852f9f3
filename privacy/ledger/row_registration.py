"""Registration of a data set's rows: which are new, and which data sets have them.

`parley.privacy.ledger.registration` calls it for data whose rows have digests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parley.privacy.ledger.account import BudgetAccount, Digests, KnownRows
from parley.privacy.ledger.block_composition import Blocks, compute_block_number
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.ledger_errors import LedgerConflict
from parley.privacy.ledger.record_digests import count_moved, find_known, format_block, load_row_key

if TYPE_CHECKING:
    from parley.privacy.ledger.table_access import LedgerWriter


@dataclass(frozen=True, kw_only=True)
class NewRows:
    """Rows that no account knows yet.

    Attributes:
        key: the digest key's name.
        digests: sorted digests of the rows, per block.
    """

    key: str
    digests: Mapping[str, Digests]

    def find_sharing_data_sets(self, writer: LedgerWriter) -> set[str]:
        """Return the names of the data sets that have one of the rows."""
        others = {key.dataset for key, own in writer.accounts.items() if own.rows is not None}
        return {
            each
            for own in self.digests.values()
            for each in others
            if find_known(writer.iterate_pieces(each), own).any()
        }

    def check_in_place(
        self, writer: LedgerWriter, name: str, known: Iterable[BudgetAccount]
    ) -> None:
        """Raise LedgerConflict for records that are not in the block in which they were charged."""
        pieces = writer.iterate_pieces(name)
        if count := count_moved(pieces, self.digests, list_charged_blocks(known)):
            raise LedgerConflict(f"{format_moved_rows(name, count)}.")

    def store(
        self, writer: LedgerWriter, name: str, known: Iterable[BudgetAccount], reads: Blocks
    ) -> KnownRows | None:
        """Store the rows that are read; return what is then known of the data set's rows."""
        read = {format_block(compute_block_number(each)) for each in reads} or self.digests.keys()
        new: dict[str, Digests] = {}
        for block in sorted(read & self.digests.keys()):
            own = self.digests[block]
            more = own[
                ~find_known((p for p in writer.iterate_pieces(name) if p.block == block), own)
            ]
            new |= {block: more} if len(more) else {}
        before = next((each.rows for each in known), None)
        return before if before and not new else writer.add_rows(name, self.key, new)


def digest_new_rows(writer: LedgerWriter, requested: DatasetBudget) -> NewRows | None:
    """Return the rows that are requested; None if they have no digests or an account knows them."""
    of = [own for own in writer.accounts.values() if own.rows is not None]
    if requested.rows is None or any(_is_known(writer, requested, own) for own in of):
        return None
    key = load_row_key(writer.key_path, (own.rows for own in of if own.rows))
    return NewRows(key=key.key_id, digests=key.digest_by_block(requested.rows))


def _is_known(writer: LedgerWriter, requested: DatasetBudget, account: BudgetAccount) -> bool:
    """Return whether an account knows all rows that are read."""
    reading = requested.reading_digest
    return requested.digests <= account.fingerprints and (
        not reading or (reading, account.rows) in writer.readings
    )


def list_charged_blocks(accounts: Iterable[BudgetAccount]) -> set[str]:
    """Return the blocks from which something was released, in the form in which rows are stored."""
    return {
        format_block(compute_block_number(each)) for own in accounts for each in own.charged.blocks
    }


def format_moved_rows(name: str, count: int) -> str:
    """Return the message about records that changed their block."""
    return (
        f"Expected every record of data set {name!r} in the block in which it was charged, got "
        f"{count} in another block, with a fresh budget there: restore the block of these records "
        "or remove them"
    )
