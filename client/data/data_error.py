"""`DataError`: an error that names the cell of a table that does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from parley.privacy.ledger.block_composition import Blocks

_MAX_FAULTS = 20
"""Maximum number of columns that an error lists, with one fault each."""


class DataError(ValueError):
    """Error for data that do not fit the schema.

    The message may quote a cell: it is for the person who holds the file, at their terminal.
    `log_message` names the place and what was expected, but no value. It is for the party's own
    log. `row` is a CSV's line or the number of the row, counted from 1.
    """

    def __init__(
        self,
        expected: str,
        got: str | None = None,
        *,
        path: str | Path,
        row: int | None = None,
        column: str | None = None,
        unit: str = "line",
    ) -> None:
        self.path, self.row, self.column = str(path), row, column
        self.expected, self.got = expected, got
        place = [self.path]
        if row is not None:
            place.append(f"{unit} {row}")
        if column is not None:
            place.append(f"column {column!r}")
        tail = "" if got is None else f", got {got}"
        super().__init__(f"{', '.join(place)}: Expected {expected}{tail}.")
        self.log_message = f"{', '.join(place)}: Expected {expected}; the data differ from that."

    def add_remedy(self, sentence: str) -> None:
        """Add a sentence that contains no value of a record; "" for none."""
        if sentence and sentence not in str(self):
            self.args = (f"{self} {sentence}",)
            self.log_message = f"{self.log_message} {sentence}"

    @classmethod
    def combine(cls, faults: Sequence[DataError]) -> DataError:
        """Return one error that lists several, one per line. A single error stays unchanged."""
        first, more = faults[0], len(faults) - _MAX_FAULTS
        if len(faults) == 1:
            return first
        row, column = first.row, first.column
        combined = cls(first.expected, first.got, path=first.path, row=row, column=column)
        tail = [f"and {more} more columns"] if more > 0 else []
        combined.args = ("\n".join([*map(str, faults[:_MAX_FAULTS]), *tail]),)
        messages = [fault.log_message for fault in faults[:_MAX_FAULTS]]
        combined.log_message = "\n".join([*messages, *tail])
        return combined


class NoRecords(DataError):
    """Error if there is no record in the blocks that are read."""

    def __init__(self, blocks: Blocks, *, path: str | Path) -> None:
        super().__init__(f"at least one record in blocks {', '.join(blocks)}", "none", path=path)


LABELS = "labels that are numbers, truth values or texts"
