"""From a job to the tables that are counted, by the public schema alone."""

from __future__ import annotations

from parley.client.algorithms.own import AnyRows
from parley.client.algorithms.pair_tables import MOST_CELLS, PairTables, cells_of, named_pairs
from parley.client.data.codes import CodedColumn, coded_columns
from parley.client.data.schema import Schema, SchemaError
from parley.privacy.accounting.guarantee import Neighbouring
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError
from parley.server.jobs.synthetic import Marginals
from parley.server.planning.federation import Federation

_MOST_RECORDS = 2.0**24
"""Records of a party beyond which its counts are clamped, where its own number is private."""


def schema_of(federation: Federation | None, kind: str) -> Schema:
    """The schema that the parties' records are of.

    Raises:
        JobError: the server has none.
    """
    if federation is None or not federation.schema:
        raise JobError(
            f"Expected the parties' schema with {kind} (it says which values are summed), got "
            "none: name a copy of it at the server, data.schema."
        )
    return Schema.from_toml(federation.schema)


def sum_bound(job: Job, federation: Federation | None) -> float:
    """What no entry of a party's sum is beyond, where each record adds 1 at most."""
    private = job.privacy.neighbouring == "add-or-remove-one"
    largest = float(federation.max_records) if federation and not private else _MOST_RECORDS
    return max(largest, 1.0)


def pair_tables(
    job: Job, settings: Marginals, model: AnyRows, federation: Federation | None
) -> PairTables:
    """The tables of a job.

    Raises:
        JobError: unknown or repeated pairs, too many cells, or another schema than the parties'.
    """
    try:
        columns = coded_columns(schema_of(federation, settings.kind))
    except SchemaError as error:
        raise JobError(str(error)) from error
    sizes = tuple(column.size for column in columns)
    if model.features != sum(sizes[:-1]):
        raise JobError(
            f"Expected records of {sum(sizes[:-1])} codes, as data.schema says, got "
            f"{model.features}: give the server a copy of the parties' schema."
        )
    pairs = _pairs(settings, [column.name for column in columns])
    _check_cells(columns, sizes, pairs)
    return PairTables(
        sizes=sizes,
        pairs=pairs,
        neighbouring=Neighbouring(job.privacy.neighbouring),
        bound=sum_bound(job, federation),
    )


def _pairs(settings: Marginals, names: list[str]) -> tuple[tuple[int, ...], ...]:
    if isinstance(settings.pairs, str):
        return named_pairs(settings.pairs, len(names))
    pairs = []
    for pair in settings.pairs:
        if unknown := [name for name in pair if name not in names]:
            raise JobError(
                f"Expected algorithm.pairs of the schema's columns ({', '.join(names)}), got "
                f"{unknown[0]!r}."
            )
        i, j = sorted(names.index(name) for name in pair)
        if i == j or (i, j) in pairs:
            raise JobError(f"Expected different pairs of two columns, got {list(pair)}.")
        pairs.append((i, j))
    if not pairs:
        raise JobError("Expected at least one pair in algorithm.pairs, got none.")
    return tuple(sorted(pairs))


def _check_cells(
    columns: tuple[CodedColumn, ...], sizes: tuple[int, ...], pairs: tuple[tuple[int, ...], ...]
) -> None:
    cells = cells_of(sizes, pairs)
    if cells > MOST_CELLS:
        widest = sorted(columns, key=lambda column: -column.size)[:3]
        named = ", ".join(f"{column.name} ({column.size:,} values)" for column in widest)
        raise JobError(
            f"Expected at most {MOST_CELLS:,} cells of all tables, got {cells:,}. The largest "
            f"columns are {named}: fewer bins or categories, or algorithm.pairs = 'label'."
        )
