"""`RawPartyBlock`: the records of B parties as queries read them, in raw columns checked by schema.

Numbers are within their public range, categories are codes, and no label is needed. The public
facts about a column are its *field*: the texts of its cells, or its range.

An empty category becomes the schema's `missing`. Without one it goes to the cell `(other)`, if the
column has such a bucket, else to the cell `(missing)`. A label's cells are its values in the order
of the schema, `(other)` if a side is "rest", and `(missing)`. An empty number becomes the schema's
`missing`; without one it is an error. A number outside its range is clamped or refused, as the
schema defines.

>>> schema = Schema.from_toml('''
... [columns]
... age = { kind = "numeric", range = [0, 100] }
... sex = { kind = "categorical", categories = ["Female", "Male"] }
... sick = { kind = "label", positive = "yes", negative = "no" }
... ''')
>>> get_field(schema, "sex").texts, get_field(schema, "age")
(('Female', 'Male', '(missing)'), RangeField(low=0.0, high=100.0))
>>> from parley.client.data.memory_columns import build_memory_table
>>> rows = {"age": [50, 200], "sex": ["Male", ""], "sick": ["no", "yes"]}
>>> block = read_raw_party_block([build_memory_table(rows, schema=schema)], schema)
>>> block.columns["age"].tolist(), block.columns["sex"].tolist(), block.sizes.tolist()
([50.0, 100.0], [1, 2], [2])
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.block_row_selection import select_blocks
from parley.client.data.block_selection import Division, check_ignored
from parley.client.data.cell_parsing import (
    look_up,
    read_category_texts,
    read_label_texts,
    read_plain_texts,
    read_ranged_numbers,
)
from parley.client.data.column_types import (
    MISSING_TEXTS,
    OTHER,
    CategoricalColumn,
    LabelColumn,
    NumericColumn,
)
from parley.client.data.data_sources import Source, SqlQuery
from parley.client.data.multiset_digest import ContentDigest, sum_contents
from parley.client.data.party_block import PartyRecords
from parley.client.data.raw_table import RawTable
from parley.client.data.schema import Schema, SchemaError
from parley.client.data.table_digest import compute_row_order, digest_table
from parley.client.data.table_reading import read_tables

_MAX_KEY_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class PersonIds:
    """The column (of kind ignore) that identifies a record's person, and k, the limit per person.

    A secret key decides which k records of a person count.
    """

    column: str
    max_records: int
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if self.max_records < 1 or not 1 <= len(self.key) <= _MAX_KEY_BYTES:
            got = self.max_records
            raise ValueError(f"Expected records of a person >= 1 and a key, got {got}.")


def compute_owners(table: RawTable, persons: PersonIds) -> NDArray[np.bytes_]:
    """Return `[n]` each row's person: 16 bytes under the key, computed from the identifier."""
    texts = read_plain_texts(table, persons.column).to_list()
    owners_by_text = {text: hash_person(persons, text) for text in set(texts)}
    empty = {*MISSING_TEXTS, *table.null_values} & owners_by_text.keys()
    if empty:
        row = next(at for at, text in enumerate(texts) if text in empty)
        raise table.build_fault(
            "an identifier of the record's person", "an empty value", row=row, column=persons.column
        )
    return np.array([owners_by_text[text] for text in texts], dtype="S16")


def hash_person(persons: PersonIds, text: str) -> bytes:
    """Return a person's hash, from their identifier. Two collide with probability 2⁻¹²⁸."""
    return blake2b(text.encode(), key=persons.key, digest_size=16, person=b"parley/owner").digest()


def choose_kept(persons: PersonIds, owners: NDArray[np.bytes_]) -> NDArray[np.bool_]:
    """Return `[n]` which records of one party count: at most k of each person."""
    _, person, count = np.unique(owners, return_inverse=True, return_counts=True)
    keep = np.ones(len(owners), dtype=np.bool_)
    many = np.flatnonzero(count[person] > persons.max_records)
    if not len(many):
        return keep
    many = many[np.argsort(person[many], kind="stable")]  # person by person, in file order
    ranked = zip(owners[many], _rank_within(person[many]).tolist(), strict=True)
    priorities = np.array([_compute_priority(persons, *each) for each in ranked], np.uint64)
    order = np.lexsort((priorities, person[many]))
    keep[many[order][_rank_within(person[many][order]) >= persons.max_records]] = False
    return keep


def _rank_within(sorted_codes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return `[n]` each element's rank among those of the same code, from 0."""
    begins = np.concatenate([[True], sorted_codes[1:] != sorted_codes[:-1]])
    index = np.arange(len(sorted_codes))
    return np.asarray(index - np.maximum.accumulate(np.where(begins, index, 0)))


def _compute_priority(persons: PersonIds, owner: bytes, rank: int) -> int:
    content = owner.ljust(16, b"\0") + rank.to_bytes(8, "big")
    kept = blake2b(content, key=persons.key, digest_size=8, person=b"parley/kept")
    return int.from_bytes(kept.digest(), "big")


MISSING = "(missing)"


@dataclass(frozen=True, kw_only=True)
class CategoryField:
    """A column of categories: code k is the k-th text."""

    texts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RangeField:
    """A column of numbers in [low, high]."""

    low: float
    high: float


Field = CategoryField | RangeField


def list_fields(schema: Schema) -> dict[str, Field]:
    """Return every column that a query may name, with its field."""
    found = {name: _build_field(column) for name, column in schema.columns.items()}
    return {name: field for name, field in found.items() if field is not None}


def get_field(schema: Schema, name: str) -> Field:
    """Return the public facts about a column that queries may name.

    Raises:
        SchemaError: there is no such column, or its kind does not permit queries.
    """
    column = schema.columns.get(name)
    if column is None:
        near = difflib.get_close_matches(str(name), list(schema.columns), n=1, cutoff=0.5)
        hint = f" (the nearest is {near[0]!r})" if near else ""
        known = ", ".join(list_fields(schema))
        raise SchemaError(f"Expected a column of {known}, got {name!r:.80}{hint}.")
    field = _build_field(column)
    if field is None:
        expected = "Expected a column of kind numeric, categorical or label"
        raise SchemaError(f"{expected}, got {name!r}, of kind {column.kind}.")
    return field


def _build_field(column: Any) -> Field | None:
    match column:
        case NumericColumn():
            return RangeField(low=column.range[0], high=column.range[1])
        case CategoricalColumn():
            refilled = column.other or column.missing is not None
            return CategoryField(texts=column.cells if refilled else (*column.cells, MISSING))
        case LabelColumn(range=(low, high)) if not column.texts:
            return RangeField(low=low, high=high)
        case LabelColumn():
            rest = [OTHER] if "rest" in (column.positive, column.negative) else []
            return CategoryField(texts=(*column.texts, *rest, MISSING))
        case _:
            return None


@dataclass(frozen=True, kw_only=True, eq=False)
class RawPartyBlock(PartyRecords):
    """Raw columns of B parties, party after party.

    Attributes:
        columns: `[N]` each: codes (intp) of categories, numbers (float64) within their range.
        contents: digest of all that was read, for the ledger; None if unknown.
        owners: `[N]` each record's person, if persons are counted.
    """

    schema: Schema
    columns: Mapping[str, NDArray[Any]]
    contents: ContentDigest | None = None
    owners: NDArray[np.bytes_] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, values in self.columns.items():
            if values.shape != (self.records,):
                raise ValueError(f"Expected {self.records} values of {name!r}, got {values.shape}.")

    @property
    def records(self) -> int:
        """N, the number of records."""
        return int(self.offsets[-1])

    @property
    def row_digests(self) -> NDArray[np.uint64]:
        """`[K, 3]` digests by which a ledger recognises its records and its persons."""
        contents = self.contents
        rows = np.empty((0, 3), np.uint64) if contents is None else contents.digests
        if self.owners is None:
            return rows
        persons = np.unique(self.owners).view("<u8").reshape(-1, 2)
        return np.concatenate([rows, np.pad(persons, ((0, 0), (0, 1)))])

    @property
    def labels(self) -> NDArray[Any]:
        """An empty array: queries read columns."""
        return np.empty(0)

    def get_rows(self, party: int) -> slice:
        """Return the slice of a party's records."""
        return slice(int(self.offsets[party]), int(self.offsets[party + 1]))

    @property
    def record_bytes(self) -> int:
        """Approximate bytes per record."""
        return 8 * len(self.columns)

    def slice_parties(self, first: int, last: int) -> RawPartyBlock:
        """Return the block of parties `first` to `last` − 1."""
        rows = slice(int(self.offsets[first]), int(self.offsets[last]))
        offsets = self.offsets[first : last + 1] - rows.start
        return self._select_rows(rows, offsets, slice(first, last))

    def take(self, parties: NDArray[np.int64]) -> RawPartyBlock:
        """Return the block of the chosen parties, in the order given."""
        rows = np.concatenate([np.arange(self.records)[self.get_rows(party)] for party in parties])
        return self._select_rows(rows, np.cumsum([0, *self.sizes[parties]]), parties)

    def _select_rows(self, rows: Any, offsets: NDArray[np.int64], parties: Any) -> RawPartyBlock:
        return replace(
            self,
            columns={name: values[rows] for name, values in self.columns.items()},
            offsets=offsets,
            owners=None if self.owners is None else self.owners[rows],
            contents=None,
            positions=self.get_positions()[parties],
        )


def read_raw_party_block(
    parties: Sequence[Source],
    schema: Schema,
    *,
    persons: PersonIds | None = None,
    division: Division | None = None,
) -> RawPartyBlock:
    """Read the records of B files (or frames in memory), one per party.

    Args:
        persons: the persons of the records; `limit_person_records` drops a person's excess records.
        division: the division into blocks, and the blocks that are read.
    """
    keep = []
    if persons is not None:
        why = "queries must not read a person's identifier"
        check_ignored(schema, persons.column, key="id", why=why)
        keep.append(persons.column)
    if division is not None:
        division.check(schema)
        keep.append(division.column)
    fields = list_fields(schema)
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in fields}
    sizes, contents, owners = [], list[ContentDigest](), list[NDArray[np.bytes_]]()
    digests: list[NDArray[np.uint64]] = []
    for source in parties:
        rows = 0
        for table in read_tables(source, schema, keep=keep):
            if persons is not None:
                owners.append(compute_owners(table, persons))
            blocks, positions, read = select_blocks(table, division)
            contents.append(digest_table(table, schema, blocks))
            digests.append(contents[-1].digests[positions])
            rows += read.rows
            for name, values in parts.items():
                values.append(_read_values(read, name, fields[name], schema))
        sizes.append(rows)
    row_owners = np.concatenate(owners) if owners else None
    columns = {name: np.concatenate(pieces) for name, pieces in parts.items()}
    if len(parties) == 1 and isinstance(parties[0], SqlQuery):
        # Some of a person's records are chosen by position, so the person is part of the row order.
        ties = [] if row_owners is None else [row_owners.view("<u8")[::2]]
        order = compute_row_order(digests, ties)
        columns = {name: values[order] for name, values in columns.items()}
        row_owners = row_owners if row_owners is None else row_owners[order]
    return RawPartyBlock(
        schema=schema,
        columns=columns,
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        contents=sum_contents(contents),
        owners=row_owners,
    )


def limit_person_records(block: RawPartyBlock, persons: PersonIds) -> RawPartyBlock:
    """Return the block with at most k records of each person in each party."""
    if block.owners is None:
        raise ValueError("Expected a block with owners, got one without.")
    owners = [block.owners[block.get_rows(party)] for party in range(block.parties)]
    parts = [choose_kept(persons, each) for each in owners]
    keep = np.concatenate(parts)
    sizes = [int(part.sum()) for part in parts]
    return replace(
        block,
        columns={name: values[keep] for name, values in block.columns.items()},
        offsets=np.cumsum([0, *sizes]).astype(np.int64),
        owners=block.owners[keep],
    )


def _read_values(table: RawTable, name: str, field: Field, schema: Schema) -> NDArray[Any]:
    """Return `[n]` one column's codes, or its numbers within the range."""
    column: Any = schema.columns[name]
    if isinstance(field, RangeField):
        missing = column.missing if isinstance(column, NumericColumn) else None
        ends = (field.low, field.high)
        values, _ = read_ranged_numbers(table, name, ends, outside=column.outside, missing=missing)
        return np.clip(values.astype(np.float64), *ends)
    label = isinstance(column, LabelColumn)
    texts = read_label_texts(table, schema) if label else read_category_texts(table, name, column)
    codes = look_up(texts, column.texts)
    if MISSING in field.texts:
        codes[texts.is_null().to_numpy()] = field.texts.index(MISSING)
    if OTHER in field.texts:
        codes[codes < 0] = field.texts.index(OTHER)
    if (unknown := codes < 0).any():
        row = int(unknown.argmax())
        expected = f"one of {', '.join(map(repr, column.texts[:12]))}"
        got = "a value that the schema does not list"
        raise table.build_fault(expected, got, row=row, column=name)
    return codes.astype(np.intp)
