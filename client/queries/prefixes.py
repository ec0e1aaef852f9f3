"""One level of a prefix tree over whole numbers: `prefixes`, for values that nobody can list.

A value of D digits to a base is a path from the root; a text is such a number, too (`codes_of`). A
record adds 1 to the cell of its value's next digits, where its first ones are among those that are
asked about, else nothing. Δ as of a count in groups: 1 of a record that comes or goes; 2 and √2 of
one that is replaced, which may leave one cell for another. The prefixes are public: who asks chose
them by noisy answers (`parley.analytics.prefix_tree`).

    >>> codes_of(["cab", "b"], "abc", 4).tolist()
    [216, 128]
    >>> text_of(216, "abc", 4), text_of(216 // 4, "abc", 3)
    ('cab', 'cab')
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.schema import Schema
from parley.client.data.table_block import TableBlock
from parley.client.queries.base import (
    ColumnQuery,
    Facts,
    Integers,
    Noise,
    Norms,
    QueryError,
    State,
    Table,
    groups_of,
    numeric,
    selected,
)
from parley.client.queries.count import cell_norms, cell_table
from parley.privacy.accounting.guarantee import Neighbouring

LARGEST = 2**53
"""Values are below it: whole numbers are exact doubles."""
MOST_PREFIXES = 64
"""That a question lists."""


@dataclass(frozen=True, kw_only=True)
class Prefixes(ColumnQuery):
    """Records by the next digits of a whole number, below prefixes that are asked about.

    Attributes:
        base: of the digits, at least 2.
        digits: D, of a whole value.
        taken: how many of them a prefix has.
        more: how many are counted behind it.
        prefixes: increasing, at most 64; none, where nothing is taken.
    """

    kind: ClassVar[str] = "prefixes"
    counts: ClassVar[bool] = True

    base: int
    digits: int
    taken: int = 0
    more: int = 1
    prefixes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        base, digits, taken, more = self.base, self.digits, self.taken, self.more
        if not (2 <= base <= 2**16 and 1 <= digits <= 53 and base**digits <= LARGEST):
            raise QueryError(
                f"Expected a base from 2 to 2^16 and digits whose values are below 2^53, got "
                f"{digits} digits to the base {base}."
            )
        if not (taken >= 0 and more >= 1 and taken + more <= digits):
            raise QueryError(
                f"Expected prefixes of 0 to {digits - 1} digits and at least one more, {digits} at "
                f"most together, got {taken} and {more}."
            )
        listed, rising = self.prefixes, all(a < b for a, b in pairwise(self.prefixes))
        if not (bool(listed) == (taken > 0) and len(listed) <= MOST_PREFIXES and rising):
            raise QueryError(
                f"Expected 1 to {MOST_PREFIXES} increasing prefixes, and none of no digits, got "
                f"{len(listed)} of {taken} digits."
            )
        if listed and not 0 <= listed[0] <= listed[-1] < base**taken:
            raise QueryError(f"Expected prefixes of {taken} digits to the base {base}, got others.")
        if self.by:
            raise QueryError("Expected prefixes without groups, got some: use where.")

    @property
    def selects(self) -> bool:
        """See `Query.selects`: values below other prefixes count for nothing."""
        return self.where is not None or self.taken > 0

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        known, most = numeric(schema, self.column), self.base**self.digits - 1
        if known.low < 0 or known.high > most:
            raise QueryError(
                f"Expected a column of numbers from 0 to {most}, {self.digits} digits to the base "
                f"{self.base}, got {self.column!r}, in [{known.low:g}, {known.high:g}]."
            )

    def cells(self, schema: Schema) -> int:
        """Those below every prefix."""
        del schema
        return max(len(self.prefixes), 1) * int(self.base**self.more)

    def norms(self, schema: Schema, neighbouring: Neighbouring, weight: int) -> Norms:
        """As the module says."""
        return cell_norms(self.cells(schema), neighbouring, weight)

    def vectors(self, block: TableBlock, weight: int, state: State) -> Iterator[Integers]:
        """See `Query.vectors`."""
        del state
        below, cells = self.base**self.more, self.cells(block.schema)
        shortened = self.base ** (self.digits - self.taken - self.more)
        nodes = np.floor(block.columns[self.column]).astype(np.int64) // shortened
        listed = np.array(self.prefixes or (0,), dtype=np.int64)
        places = np.searchsorted(listed, nodes // below).clip(max=len(listed) - 1)
        asked = listed[places] == nodes // below
        codes = places * below + nodes % below
        for own, _ in selected(self, block, groups_of(block.schema, ())):
            counted = own[asked[own]]
            yield np.bincount(codes[counted], minlength=cells) * weight

    def nodes(self) -> NDArray[np.int64]:
        """`[d]` the number that each cell's digits write."""
        below = self.base**self.more
        listed = np.array(self.prefixes or (0,), dtype=np.int64)
        found: NDArray[np.int64] = (listed[:, None] * below + np.arange(below)).ravel()
        return found

    def answer(self, noisy: Integers, weight: int, noise: Noise, facts: Facts) -> Table:
        """See `Query.answer`."""
        keys: Table = {"prefix": self.nodes()}
        return cell_table(keys, noisy, weight, noise, records=facts.records)

    def samples(self, facts: Facts) -> bool:
        """See `Query.samples`."""
        del facts
        return True


def codes_of(texts: Sequence[str], alphabet: str, digits: int) -> NDArray[np.int64]:
    """`[N]` texts as whole numbers, a digit a letter to the base of one more than there are.

    A text that is longer is cut; digit 0 is what stands behind a shorter one.

    Raises:
        ValueError: a letter that the alphabet does not have.
    """
    known = {letter: k for k, letter in enumerate(alphabet, start=1)}
    base = len(known) + 1
    if base != len(alphabet) + 1 or base**digits > LARGEST:
        raise ValueError(
            f"Expected letters once each, and values below 2^53, got {len(alphabet)} letters and "
            f"{digits} digits."
        )
    found = np.zeros(len(texts), dtype=np.int64)
    for place, text in enumerate(texts):
        code = 0
        for letter in text[:digits]:
            if letter not in known:
                raise ValueError(f"Expected letters of the alphabet alone in text {place + 1}.")
            code = code * base + known[letter]
        found[place] = code * base ** max(digits - len(text), 0)
    return found


def text_of(code: int, alphabet: str, digits: int) -> str:
    """The text that a number of so many digits writes: the inverse of `codes_of`."""
    letters = []
    for _ in range(digits):
        code, digit = divmod(int(code), len(alphabet) + 1)
        letters.append(alphabet[digit - 1] if digit else "")
    return "".join(reversed(letters))
