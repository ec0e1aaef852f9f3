"""At most k records of each person in one party, so that a person moves a sum k times as far.

A column of the file says whose a record is. Which k of a person's records are kept, a hash under
the party's own key decides: nobody without the key can place a record so that it stays, and the
same file keeps the same ones. The hash is of the person and of the record's place *among that
person's own*: were it of the place in the file, one person less would move everybody else's, and
with them more of the sum than k records.

    >>> persons = Persons(column="patient", most=2, key=b"k")
    >>> ids = np.array([named(persons, text) for text in ("a", "b", "a", "a")])
    >>> kept(persons, ids).tolist().count(True), bool(kept(persons, ids)[1])
    (3, True)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from parley.client.data.cells import plain_texts
from parley.client.data.columns import MISSING_TEXTS, IgnoreColumn
from parley.client.data.schema import Schema, SchemaError
from parley.client.data.table import Table

_LONGEST_KEY = 64


@dataclass(frozen=True, kw_only=True)
class Persons:
    """Whose a record is, by a column of kind ignore, and which k of one count, by a secret key."""

    column: str
    most: int
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if self.most < 1 or not 1 <= len(self.key) <= _LONGEST_KEY:
            raise ValueError(f"Expected records of a person >= 1 and a key, got {self.most}.")


def check_column(schema: Schema, column: str) -> None:
    """Refuses a column that is not there, or could be asked about."""
    known = schema.columns.get(column)
    if not isinstance(known, IgnoreColumn):
        got = f"none {column!r}" if known is None else f"{column!r}, of kind {known.kind}"
        raise SchemaError(
            f"Expected id, a column of kind ignore in the schema, got {got}: what says whose a "
            "record is must not be asked about."
        )


def owners_of(table: Table, persons: Persons) -> NDArray[np.bytes_]:
    """`[n]` whose each row is: 16 bytes under the key, for the text that stands for a person."""
    texts = plain_texts(table, persons.column).to_list()
    known = {text: named(persons, text) for text in set(texts)}
    empty = {*MISSING_TEXTS, *table.null_values} & known.keys()
    if empty:
        row = next(at for at, text in enumerate(texts) if text in empty)
        raise table.fault("whose record it is", "an empty value", row=row, column=persons.column)
    return np.array([known[text] for text in texts], dtype="S16")


def named(persons: Persons, text: str) -> bytes:
    """A person by the text that stands for them; two are the same with probability 2⁻¹²⁸."""
    return blake2b(text.encode(), key=persons.key, digest_size=16, person=b"parley/owner").digest()


def kept(persons: Persons, owners: NDArray[np.bytes_]) -> NDArray[np.bool_]:
    """`[n]` which records of one party count, of each owner at most k."""
    _, whose, count = np.unique(owners, return_inverse=True, return_counts=True)
    keep = np.ones(len(owners), dtype=np.bool_)
    many = np.flatnonzero(count[whose] > persons.most)
    if not len(many):
        return keep
    many = many[np.argsort(whose[many], kind="stable")]  # person by person, in the file's order
    own = _places(whose[many])
    drawn = np.array(
        [_drawn(persons, owners[row], int(at)) for row, at in zip(many, own, strict=True)],
        dtype=np.uint64,
    )
    order = np.lexsort((drawn, whose[many]))
    keep[many[order][_places(whose[many][order]) >= persons.most]] = False
    return keep


def _places(sorted_codes: NDArray[np.intp]) -> NDArray[np.intp]:
    """`[n]` of each among those of the same code, from 0."""
    begins = np.concatenate([[True], sorted_codes[1:] != sorted_codes[:-1]])
    at = np.arange(len(sorted_codes))
    places: NDArray[np.intp] = at - np.maximum.accumulate(np.where(begins, at, 0))
    return places


def _drawn(persons: Persons, owner: bytes, place: int) -> int:
    content = owner.ljust(16, b"\0") + place.to_bytes(8, "big")
    return int.from_bytes(
        blake2b(content, key=persons.key, digest_size=8, person=b"parley/kept").digest(), "big"
    )
