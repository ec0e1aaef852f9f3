"""Draft of a schema, read from a file. It is for a person to review and not a private computation.

Ranges and categories disclose facts about the records they were read from, and no privacy budget
covers that. The draft warns of it at its head and next to every such column. Before publishing the
schema, a person must replace them by public knowledge. Texts that name a cell or a line are in
`remarks`, for the person at the terminal. They are never in the draft, which is meant to be shared.

A category or label of fewer than ten records is not named, except a label's usual words for yes and
no. Ranges are rounded outwards to one digit of their width. Medians, which become the centres, are
rounded to two digits, and so is a label's mean. If the tails, 1 % each, are more than half of a
range, the range leaves them out and a run clamps them. If the centre is in the lowest fifth of the
range, the logarithm is taken. Text of more than `max_categories` values, dates, constants and
columns that look like identifiers are set to "ignore", each with its reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.client.data.column_types import WHOLE_NUMBER, canonicalize_text
from parley.client.data.csv_detection import find_encoding_remedy
from parley.client.data.data_error import LABELS, DataError
from parley.client.data.data_sources import MemoryTable, TableSource, get_source_name
from parley.client.data.label_value_types import describe_label_fault
from parley.client.data.memory_limit import compute_memory_limit
from parley.client.data.raw_table import RawTable
from parley.client.data.schema_inference.column_profile import (
    ColumnProfile,
    TextCells,
    are_whole,
    count_distinct,
    drop_missing,
    find_decimal_mark,
    find_missing_mark,
    read_column_profile,
    read_text_cells,
)
from parley.client.data.schema_inference.date_detection import find_date_form
from parley.client.data.schema_inference.format_detection import (
    Entry,
    build_file_schema,
    detect_common_format,
    join_tables,
    read_whole,
)
from parley.client.data.schema_inference.text_columns import (
    AS_TEXT,
    DATES,
    MIN_RECORDS,
    POINTS,
    are_usual_words,
    build_text_entry,
    has_only_codes,
    split_label_sides,
)
from parley.client.data.schema_writing import format_toml_value
from parley.client.data.text_numbers import normalize_decimal_points
from parley.client.data.unreadable_numbers import describe_signs, find_signs, has_thousands_pattern
from parley.safe_io import toml_writing

_HEAD = """\
# A first schema, written by `parley schema infer` from {name} ({rows} records).
#
# REVIEW IT BEFORE USE. Ranges, centres and categories below were READ FROM THE DATA. They say
# something about the records (an extreme age, a rare diagnosis), and NO PRIVACY BUDGET COVERS
# THAT. Replace each by public knowledge: a questionnaire's answers, a sensor's range, a
# classification's codes. Then delete `drafted = true` below, and only then share this file with
# the other parties. Until then every ε is printed with the assumption that this schema is public,
# and real parties refuse it.
# What every key means: docs/schema.md.

# Rows are scaled to norm at most 1: "record" divides the longer ones by their own norm, "unit"
# divides every row by its own norm, "schema" divides all rows by one public factor.
scaling = "record"

drafted = true
drafted-from = {source}
"""

_IDENTIFIERS = {"id", "uuid", "ssn"}
_NUMBERED = _IDENTIFIERS | {"key", "index", "row", "name"}
_LEAST_IDENTIFIERS, _MANY_IDENTIFIERS = 10, 100
_DENSITY_FACTOR = 10
"""Ratio of N² to the width of N numbers' range. Above it, N numbers drawn at random are not all
different: the probability is below exp(−N² ⁄ 2R) = exp(−5).
"""
_MAX_CODES = 10
_NUMBER = r"[-+]?\d*[.,]?\d+(e[-+]?\d+)?"
_WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+"
_MAX_SHOWN = 5
_MAX_SOURCE_CHARS = 100
_MAX_VALUE = 1e299
_CELLS_AT_ONCE = 2**22
_MOST_CLASSES, _MOST_GRADES, _FEW_STEPS = 100, 11, 20
_TAIL_SHARE = 0.01
_ODD = "not a number (a run refuses the file until you correct or list them in file.null-values)"
_NEAR = "not a number, too many to read the column as numbers"


@dataclass(frozen=True, kw_only=True)
class ColumnReading:
    """How one column was read.

    Attributes:
        why: the reason. The schema shows it next to the column, so it quotes no cell and names no
            line.
        remarks: points for the owner to check, with lines and cells.
        doubt: what else the label may mean; empty if there is no doubt. It is part of `why`.
    """

    name: str
    entry: Entry
    why: str
    remarks: tuple[str, ...] = ()
    doubt: str = ""

    @property
    def is_ignored(self) -> bool:
        """Whether the column is never read."""
        return bool(self.entry["kind"] == "ignore")


@dataclass(frozen=True, kw_only=True)
class InferredSchema:
    """A first schema (TOML), the file's format, and the reading of each column."""

    text: str
    records: int
    label: str
    file: Entry
    columns: tuple[ColumnReading, ...]
    remarks: tuple[str, ...] = ()


def infer_schema(
    *sources: TableSource,
    label: str | None = None,
    header: bool = True,
    separator: str | None = None,
    encoding: str | None = None,
    max_categories: int = 50,
    max_gib: float = 8.0,
    keep_numbers: bool = False,
) -> InferredSchema:
    """Infer a schema that reads all of the files, and report how each column was read.

    Args:
        sources: files of the same columns and format, or one table in memory.
        label: the label's column; without it y of a pair (X, y), else the last column.
        header: whether a CSV's first line names the columns.
        separator, encoding: of a CSV, as keys of `file`; detected if not given.
        max_categories: maximum number of distinct values of a text column; one with more is
            ignored.
        max_gib: maximum memory of the file's cells.
        keep_numbers: whether each column of numbers becomes a feature, even a constant one: an
            array in front of a network keeps its width.
    """
    source_name = get_source_name(sources[0])
    if label is None and isinstance(sources[0], MemoryTable):
        label = _get_own_label(sources[0])
    memory_limit = compute_memory_limit(max_gib)
    memory_limit.check_free_memory(source_name)
    file_entry = detect_common_format(sources, header, separator, encoding)
    file_schema = build_file_schema(file_entry)
    parts = [read_whole(source, file_schema, label, memory_limit) for source in sources]
    table = join_tables(parts)
    if (csv := file_entry.get("format") == "csv") and file_entry["separator"] != ",":
        file_entry["decimal"] = find_decimal_mark(table.frame.get_columns())
    names = [*table.arrays, *table.frame.columns]
    is_label_named = label is not None
    label = names[-1] if label is None and names else label
    _check_label_types(sources, table, label)
    if label not in table.frame.columns:
        raise _build_label_error(str(label), names, source_name, header=csv and header)
    if table.frame.height == 0:
        raise DataError("at least one record", "none", path=source_name)
    decimal = file_entry.get("decimal", ".")
    if csv and header:
        _check_header_once(table, parts)
    reader = _ColumnReader(
        table=table,
        parts=parts,
        decimal=decimal,
        comma=csv and file_entry["separator"] == ",",
        max_categories=max_categories,
        keep_numbers=keep_numbers,
    )
    try:
        columns = tuple(reader.read_columns(names, str(label)))
    except DataError as error:
        if is_label_named or error.column != label:
            raise
        got = f"{error.got} (this is the last column: name another with --label, in Python label=)"
        raise DataError(error.expected, got, path=error.path, column=label) from error
    if all(column.entry["kind"] in {"ignore", "label"} for column in columns):
        reasons = "; ".join(f"{c.name!r}: {c.why}" for c in columns if c.name != label)
        got = f"only ones to ignore ({reasons})" if reasons else f"the label {label!r} alone"
        raise DataError("a column to learn from", got, path=source_name)
    if reader.null_values:
        file_entry["null-values"] = sorted(reader.null_values)
    names_of_files = ", ".join(dict.fromkeys(map(_get_display_name, sources)))
    return InferredSchema(
        text=_format_schema(names_of_files, table.frame.height, file_entry, columns),
        records=table.frame.height,
        label=label,
        file=file_entry,
        columns=columns,
        remarks=tuple(_list_csv_remarks(columns, table, sources, file_entry)) if csv else (),
    )


def _build_label_error(
    label: str, names: Sequence[str], path: str | Path, *, header: bool
) -> DataError:
    """Build the error of a label that is no column."""
    hint = " (is the file cut by another --separator?)" if len(names) == 1 else ""
    if header and any(re.fullmatch(_NUMBER, name) for name in names):
        hint = " (is the first line a record? --no-header then names the columns column_1, …)"
    candidates = get_close_matches(label, names, cutoff=0.4) or names
    return DataError(f"a label column among {candidates}{hint}", repr(label), path=path)


def _list_csv_remarks(
    columns: Sequence[ColumnReading], table: RawTable, sources: Sequence[TableSource], file: Entry
) -> Iterator[str]:
    """Yield what may be wrong with how whole CSV files were read."""
    if file["header"] and all(_is_name_a_cell(column, table) for column in columns):
        yield "The first line looks like a record. If it has no names, use --no-header."
    if len(columns) == 1:
        yield f"Only one column, {columns[0].name!r}. If there are more, set --separator."
    encoding = file["encoding"]
    remedies = (find_encoding_remedy(get_source_name(each), encoding) for each in sources)
    yield from dict.fromkeys(filter(None, remedies))


def _get_own_label(table: MemoryTable) -> str | None:
    """Return the label that data name: y of a pair, or a frame's last column, whatever its type.

    None if the last column is an array with several values per record.
    """
    name, cells = [*table.columns.items()][-1] if table.columns else ("", np.zeros(0))
    return table.label or (name if cells.ndim == 1 else None)


def _check_label_types(sources: Sequence[TableSource], table: RawTable, label: str | None) -> None:
    """Raise DataError if the label's values are not numbers, truth values or texts."""
    for source in sources:
        if isinstance(source, MemoryTable):
            source.check_label(str(label))
    if label is not None and label in table.arrays:
        cells = table.arrays[label]
        shape = f"an array of shape {list(cells.shape)}, not one label per record"
        got = describe_label_fault(cells) or shape
        raise DataError(LABELS, got, path=table.path, column=label)


def _get_display_name(source: TableSource) -> str:
    """Return the draft's name for the file, the database or the table in memory."""
    if isinstance(source, MemoryTable):
        return "records in memory"
    return Path(get_source_name(source)).name


def _check_header_once(table: RawTable, parts: Sequence[RawTable]) -> None:
    """Raise DataError if a line within a CSV repeats the names of the columns."""
    names = table.frame.columns
    for part in parts:
        again = np.ones(part.rows, bool)
        for name in names:
            again &= (part.get_column(name).str.strip_chars() == name).fill_null(False).to_numpy()
            if not again.any():
                break
        # Without a header, the first record may repeat. Names differ from the cells below them.
        if again.any() and any(_is_above_numbers(name, part.get_column(name)) for name in names):
            got = f"the same names again in {part.describe_rows(np.flatnonzero(again), _MAX_SHOWN)}"
            raise DataError("the names of the columns once", f"{got} (delete them)", path=part.path)


def _is_above_numbers(name: str, cells: pl.Series) -> bool:
    """Return whether a name is not a number while most cells below it are."""
    numbers = cells.str.strip_chars().cast(pl.Float64, strict=False).count()
    return re.fullmatch(_NUMBER, name) is None and 2 * numbers > len(cells)


def _format_schema(name: str, rows: int, file: Entry, columns: tuple[ColumnReading, ...]) -> str:
    shown = name if len(name) <= _MAX_SOURCE_CHARS else f"{name[:_MAX_SOURCE_CHARS]}…"
    comment = toml_writing.format_toml_comment(name)[2:]
    lines = [_HEAD.format(name=comment, rows=rows, source=format_toml_value(shown))]
    if file:
        lines += ["[file]", *(f"{key} = {format_toml_value(value)}" for key, value in file.items())]
        lines.append("")
    lines += ["[columns]"]
    for column in columns:
        entry = f"{toml_writing.format_toml_key(column.name)} = {format_toml_value(column.entry)}"
        lines += [toml_writing.format_toml_comment(column.why), entry]
    return "\n".join(lines) + "\n"


def _is_name_a_cell(column: ColumnReading, table: RawTable) -> bool:
    """Return whether a column's name could be one of its cells."""
    entry = column.entry
    lists = (entry.get(key, ()) for key in ("categories", "classes", "positive", "negative"))
    cells = [cell for each in lists if each != "rest" for cell in each]
    if "range" in entry or (cells and not any(isinstance(cell, str) for cell in cells)):
        return re.fullmatch(_NUMBER, column.name.strip()) is not None
    if entry["kind"] == "ignore":
        return True
    # A draft names only common categories, so look the name up among all cells.
    return column.name in table.get_column(column.name).cast(pl.String).to_list()


@dataclass(kw_only=True, repr=False)
class _ColumnReader:
    """A reader of one column after another that collects the texts that mean a missing value."""

    table: RawTable
    parts: Sequence[RawTable]
    decimal: str
    comma: bool
    max_categories: int
    keep_numbers: bool
    null_values: set[str] = field(default_factory=set)

    @property
    def _rows(self) -> int:
        return self.table.frame.height

    def read_columns(self, names: Sequence[str], label: str) -> Iterator[ColumnReading]:
        """Yield the reading of each column. Columns of text are read some at a time."""
        together = max(_CELLS_AT_ONCE // max(self._rows, 1), 1)
        for begin in range(0, len(names), together):
            group = names[begin : begin + together]
            untyped = [n for n in group if not (self.table.typed or n in self.table.arrays)]
            columns = {name: self.table.get_column(name) for name in untyped}
            texts = [name for name, column in columns.items() if column.dtype == pl.String]
            read = read_text_cells([columns[name] for name in texts], decimal=self.decimal)
            found = dict(zip(texts, read, strict=True))
            for name in group:
                yield self.read_column(name, is_label=name == label, texts=found.get(name))

    def read_column(self, name: str, *, is_label: bool, texts: TextCells | None) -> ColumnReading:
        """Return the reading of one column."""
        if name in self.table.arrays:
            entry, why = _build_array_entry(self.table.arrays[name], self._rows)
            return ColumnReading(name=name, entry=entry, why=why)
        series, doubt = self.table.get_column(name), ""
        untyped = not self.table.typed
        cells = read_column_profile(series, decimal=self.decimal, texts=untyped, cells=texts)
        if is_label:
            entry, why = _build_label_entry(cells, self.table.path, name)
            doubt = _explain_doubtful_label(series, cells.values, entry)
            why += f"; {doubt}" if doubt else ""
            if cells.missing_count:
                why += '; some are missing: missing = "drop" would leave such records out'
        elif self.keep_numbers and (kept := _build_kept_entry(cells.values)):
            entry, why = kept
        else:
            sizes = [part.rows for part in self.parts]
            entry, why = _build_column_entry(
                name, cells.values, cells.missing_count, self.max_categories, sizes
            )
        if why == AS_TEXT and not self.table.typed:
            why = POINTS
        if entry["kind"] != "ignore":
            self.null_values |= cells.missing.keys() - {""}
        if entry["kind"] == "numeric" and cells.missing_count:
            why += "; missing values become what `missing` says"
            low, high = entry["range"]
            entry["missing"] = entry.get("centre", (low + high) / 2)
        if len(cells.near):
            why += "; most cells are numbers, but more than 1 % are not"
        remarks = tuple(self._list_remarks(series, cells, entry, texts))
        return ColumnReading(name=name, entry=entry, why=why, remarks=remarks, doubt=doubt)

    def _list_remarks(
        self, series: pl.Series, cells: ColumnProfile, entry: Entry, texts: TextCells | None
    ) -> Iterator[str]:
        is_label = entry["kind"] == "label"
        if 0 < cells.missing_count < self._rows:
            kinds = ", ".join(f"{text or 'empty'} {n}" for text, n in cells.missing.items())
            shown = f"{float(f'{100 * cells.missing_count / self._rows:.2g}'):g}"
            remark = f"{cells.missing_count} of {self._rows} missing ({shown} %: {kinds})"
            if is_label:
                at = np.flatnonzero(cells.values.is_null().to_numpy())
                remark += f" in {self._format_positions(at)}: a run refuses the file unless the "
                remark += 'label says missing = "drop", which leaves such records out'
            words = [text for text in cells.missing if any(map(str.isalpha, text))]
            if words and cells.values.dtype == pl.String and entry["kind"] != "ignore":
                where = "labels" if is_label else "categories"
                word = format_toml_value(words[0])
                remark += f"; to keep {word} as one of the {where}, write it into "
                remark += "this column's list in the schema"
            yield remark
        if (mark := find_missing_mark(cells.values)) is not None:
            held = int((cells.values == mark).sum())
            yield (
                f"{mark:g} is in {held} of {self._rows} cells, far from all others. If "
                f'it is a missing value, set null-values = ["{mark:g}"] under [file], '
                "and this column's `missing` to its replacement"
            )
        for places, verdict in ((cells.odd, _ODD), (cells.near, _NEAR)):
            if len(places):
                quoted = ", ".join(_quote_short(series[int(at)]) for at in places[:_MAX_SHOWN])
                counted = f"{len(places)} of {self._rows} cells"
                yield f"{counted} {verdict}: {quoted} in {self._format_positions(places)}"
        yield from self._find_unlike_parts(series, entry)
        yield from self._find_doubtful_numbers(series, cells, entry, texts)

    def _find_unlike_parts(self, series: pl.Series, entry: Entry) -> Iterator[str]:
        """Yield the files that have numbers in a column which other files have as text."""
        if len(self.parts) == 1 or series.dtype != pl.String or "range" in entry:
            return
        numbers, texts, begin = [], [], 0
        for part in self.parts:
            part_series = series.slice(begin, part.rows)
            cells = read_column_profile(part_series, decimal=self.decimal, texts=True)
            if cells.values.dtype.is_numeric():
                numbers += [part.path] if cells.missing_count < part.rows else []
            else:
                found = normalize_decimal_points(part_series.str.strip_chars(), self.decimal)
                odd = found.cast(pl.Float64, strict=False).is_null() & cells.values.is_not_null()
                at = np.flatnonzero(odd.to_numpy())
                shown = ", ".join(_quote_short(part_series[int(row)]) for row in at[:_MAX_SHOWN])
                if len(at):
                    texts.append(f"{part.path} ({shown} in {part.describe_rows(at, _MAX_SHOWN)})")
            begin += part.rows
        if numbers and texts:
            yield (
                f"numbers in {', '.join(numbers)}, but text in {', '.join(texts)}: "
                "change them to numbers there, or the column is not used as numbers"
            )

    def _find_doubtful_numbers(
        self, series: pl.Series, cells: ColumnProfile, entry: Entry, texts: TextCells | None
    ) -> Iterator[str]:
        """Yield other possible meanings of a column's numbers."""
        values, present = cells.values, cells.present
        is_text = entry["kind"] == "categorical" and present.dtype == pl.String
        if is_text and not has_only_codes(present) and (signs := find_signs(present)):
            yield f"taken as categories: {describe_signs(signs)}"
        if "range" not in entry or not present.dtype.is_numeric():
            return
        if series.dtype == pl.String and (texts is None or texts.has_points):
            stripped = series.str.strip_chars() if texts is None else texts.present
            if values.null_count():
                stripped = stripped.filter(values.is_not_null())
            mark = self.decimal
            # If a comma separates cells, three decimals in every cell are a measurement's.
            if has_thousands_pattern(stripped, mark) and not (
                self.comma and bool(stripped.str.contains(mark, literal=True).all())
            ):
                name = "point" if mark == "." else "comma"
                yield (
                    f"every {name} precedes exactly three digits. If it is a thousands "
                    f"separator, not a decimal {name}, remove it from the file's cells"
                )
        mark_of_none = find_missing_mark(present)
        numbers = present if mark_of_none is None else present.filter(present != mark_of_none)
        distinct = count_distinct(numbers, _MAX_CODES + 1)
        few = 2 <= distinct <= _MAX_CODES and len(present) >= _MAX_CODES * distinct
        if entry["kind"] != "numeric" or not few:
            return
        whole = np.unique(numbers.to_numpy())
        if (whole == whole.round()).all() and not ((whole == 0) | (whole == 1)).all():
            listed = ", ".join(f"{value:.0f}" for value in whole.tolist())
            yield (
                f"{distinct} different whole numbers: if they are codes, not amounts, write "
                f'kind = "categorical", categories = [{listed}] for this column'
            )

    def _format_positions(self, rows: NDArray[np.int64]) -> str:
        """Return the positions of rows (from 0) in all files, with the first ones of each file."""
        if len(self.parts) == 1:
            return self.table.describe_rows(rows, _MAX_SHOWN)
        begin, positions = 0, []
        for part in self.parts:
            part_rows = rows[(rows >= begin) & (rows < begin + part.rows)] - begin
            if len(part_rows):
                positions.append(f"{part.path} {part.describe_rows(part_rows, _MAX_SHOWN)}")
            begin += part.rows
        return "; ".join(positions)


def _quote_short(cell: object) -> str:
    text = str(cell)
    return repr(text if len(text) <= 40 else text[:37] + "…")


def _build_array_entry(array: NDArray[Any], rows: int) -> tuple[Entry, str]:
    if array.dtype.kind in "mM":
        return {"kind": "ignore"}, DATES
    if array.ndim < 2 or array.dtype.kind not in "biuf" or len(array) != rows:
        why = f"dtype {array.dtype}, shape {array.shape}: not one row per record"
        return {"kind": "ignore"}, why
    if array.dtype.kind == "f" and not (np.abs(array) <= np.float64(1e299)).all():
        return {"kind": "ignore"}, "NaN or infinite values: clean them before use"
    if array.dtype == np.uint8:
        low, high, why = 0.0, 255.0, "uint8: the type's own range"
    else:
        low, high = _round_outwards(float(array.min()), float(array.max()))
        why = "range read from the data, rounded outwards: replace it by public knowledge"
    entry = {"kind": "array", "shape": list(array.shape[1:]), "range": [low, high], "centre": low}
    return entry, why


def _build_kept_entry(series: pl.Series) -> tuple[Entry, str] | None:
    """Return the entry of a column that keeps its position in a row; None if it has no numbers."""
    if series.dtype == pl.Boolean:
        series = series.cast(pl.UInt8)
    if not series.dtype.is_numeric():
        return None
    values = series.cast(pl.Float64).drop_nulls().to_numpy()
    if not (np.abs(values) <= _MAX_VALUE).all():
        return None
    if len(values) and values.min() < values.max():
        return _build_numeric_entry(series)
    value = float(values[0]) if len(values) else 0.0
    entry = {"kind": "numeric", "range": [value, value + max(1.0, abs(value))], "centre": value}
    return entry, "one value only: kept, so that rows keep their width"


def _build_column_entry(  # noqa: PLR0911 - one a kind of column
    name: str, series: pl.Series, missing_count: int, max_categories: int, sizes: Sequence[int]
) -> tuple[Entry, str]:
    present = drop_missing(series)
    distinct = count_distinct(present, _LEAST_IDENTIFIERS)
    if distinct < 2:
        if distinct and missing_count and len(series) - missing_count >= MIN_RECORDS:
            entry = {"kind": "categorical", "categories": _sort_values(series), "other": True}
            return entry, "one value or none: the bucket of other categories takes none"
        return {"kind": "ignore"}, _explain_constant(series) if distinct else "no values"
    codes = series.dtype == pl.String and has_only_codes(present)
    whole = _to_whole_numbers(present)
    if whole is not None and (form := find_date_form(whole)):
        return {"kind": "ignore"}, f"{DATES}; written as whole numbers, {form}"
    whole_numbers = codes or series.dtype.is_integer()
    if whole_numbers and (why := _explain_identifier(name, series, distinct, sizes)):
        return {"kind": "ignore"}, why
    if series.dtype in (pl.String, pl.Boolean):
        return build_text_entry(series, missing_count, max_categories)
    if series.dtype.is_temporal():
        return {"kind": "ignore"}, DATES
    if not series.dtype.is_numeric():
        return {"kind": "ignore"}, f"type {series.dtype}: neither number nor text"
    if (np.abs(present.cast(pl.Float64).to_numpy()) > _MAX_VALUE).any():
        return {"kind": "ignore"}, "infinite or nearly infinite values: clean them before use"
    return _build_numeric_entry(series)


def _build_numeric_entry(series: pl.Series) -> tuple[Entry, str]:
    """Return the entry of a column of at least two finite numbers."""
    values = drop_missing(series.cast(pl.Float64)).to_numpy()
    low, high = _round_outwards(float(values.min()), float(values.max()))
    entry: Entry = {"kind": "numeric"}
    why = "range and centre read from the data, rounded"
    if low >= 0 and high >= 1000 and high > 20 * float(np.quantile(values, 0.9)):
        entry |= {"transform": "log1p"}
        why += "; long tail, so log(1 + x) is taken"
    else:
        values = values[values != find_missing_mark(series)]
        low, high, cut = _compute_range(values)
        why += cut
    centre = min(max(_round_value(float(np.median(values))), low), high)
    if "transform" not in entry and 0 < centre - low <= (high - low) / 5:
        entry["transform"] = "log"
        why += "; long tail, so its logarithm is taken"
    if series.dtype.is_integer() and high - low <= _FEW_STEPS:
        entry["step"] = 1
    return entry | {"range": [low, high], "centre": centre}, why


def _explain_constant(series: pl.Series) -> str:
    """Return why a column of one value is ignored."""
    why = "one value only: nothing to learn from"
    if series.dtype.is_float() and abs(float(series.drop_nulls()[0])) >= 2**53:
        why += " (doubles have lost the last digits of codes: store those as text)"
    return why


def _to_whole_numbers(present: pl.Series) -> pl.Series | None:
    """Return whole numbers, however they are stored, as integers; None if they are not whole."""
    if present.dtype.is_integer():
        return present
    if present.dtype.is_float():
        return present.cast(pl.Int64) if are_whole(present) else None
    if present.dtype == pl.String and has_only_codes(present):
        return present.str.replace(WHOLE_NUMBER, "$1").cast(pl.Int64, strict=False)
    return None


def _explain_identifier(name: str, series: pl.Series, distinct: int, sizes: Sequence[int]) -> str:
    """Return why whole numbers identify a record or its person; empty if they do not.

    Args:
        series: whole numbers, or codes as texts; null for a missing one.
        sizes: number of records per file. A serial number may restart in each.
    """
    if distinct < _LEAST_IDENTIFIERS:
        return ""
    words = {word.lower() for word in re.findall(_WORD, name)}
    begins = np.cumsum([0, *sizes[:-1]])
    slices = zip(begins.tolist(), sizes, strict=True)
    parts = [drop_missing(series.slice(begin, rows)) for begin, rows in slices]
    once = all(part.n_unique() == len(part) for part in parts)
    if once and (words & _NUMBERED or series.dtype == pl.String or _is_serial(parts)):
        return "a different whole number in every record: an identifier?"
    return "whole numbers under an identifier's name" if words & _IDENTIFIERS else ""


def _is_serial(parts: Sequence[pl.Series]) -> bool:
    """Return whether whole numbers, distinct in each file, are serial numbers, not a measure."""
    longest = max(parts, key=len)
    if len(longest) >= _MANY_IDENTIFIERS:
        return True
    width = int(longest.max()) - int(longest.min())  # type: ignore[arg-type]
    dense = len(longest) ** 2 > _DENSITY_FACTOR * width
    return dense or all(bool((part.diff().drop_nulls() > 0).all()) for part in parts)


def _build_label_entry(cells: ColumnProfile, path: str | Path, name: str) -> tuple[Entry, str]:
    series = cells.values.drop_nulls()
    distinct = series.n_unique()
    if distinct < 2:
        got = f"{distinct}"
        if words := [text for text in cells.missing if any(map(str.isalpha, text))]:
            got += (
                f": {format_toml_value(words[0])} means a missing label, unless the label's list "
                "in a schema has it"
            )
        raise DataError("two labels or more", got, path=path, column=name)
    if series.dtype.is_float() and not bool(series.is_finite().all()):
        got = "an infinite one (leave its record out, or correct the label)"
        raise DataError("labels that are finite numbers", got, path=path, column=name)
    if sides := split_label_sides(_sort_values(series)):
        return _two_labels(series, *sides, path=path, name=name)
    number = series.dtype.is_numeric()
    if distinct <= (_MOST_GRADES if number else _MOST_CLASSES) and not series.dtype.is_float():
        return _label_classes(series, path=path, name=name)
    if not number:
        signs = find_signs(series.cast(pl.String))
        got = describe_signs(signs) if signs else f"{distinct} texts"
        raise DataError(f"at most {_MOST_CLASSES} labels", got, path=path, column=name)
    values = series.cast(pl.Float64).to_numpy()
    if not (np.abs(values) <= 1e299).all():
        raise DataError("labels of at most 1e299", "a larger one", path=path, column=name)
    values = values[values != find_missing_mark(series)]
    low, high, cut = _compute_range(values)
    why = "numbers, for ridge; range and centre read from the data"
    centre = _round_value(float(np.clip(values, low, high).mean()))
    numbers: Entry = {"range": [low, high], "centre": min(max(centre, low), high)}
    return {"kind": "label"} | numbers, why + cut


def _explain_doubtful_label(series: pl.Series, values: pl.Series, entry: Entry) -> str:
    """Return what else a label's numbers may mean; empty if there is no doubt."""
    if series.dtype.is_integer() and values.dtype == pl.String:
        return "whole numbers of 16 digits and more are codes: they are read and predicted as text"
    whole = _to_whole_numbers(values.drop_nulls())
    if "range" not in entry or whole is None:
        return ""
    distinct = whole.n_unique()
    if distinct > _MOST_CLASSES or len(whole) < MIN_RECORDS * distinct:
        return ""
    return (
        f"{distinct} different whole numbers, read as amounts: if they are classes, write "
        "classes = [...] for this label, or give them as text"
    )


def _two_labels(
    series: pl.Series, positive: list[Any], negative: list[Any], *, path: str | Path, name: str
) -> tuple[Entry, str]:
    """Return the entry of two labels. The one of few records is named "rest"."""
    sides = {"positive": positive, "negative": negative}
    usual = are_usual_words([*positive, *negative])  # these are public
    common = [side for side, own in sides.items() if usual or _is_common(series, own)]
    if not common:
        raise _no_common_label(path, name)
    entry: Entry = {"kind": "label"}
    entry |= {side: own if side in common else "rest" for side, own in sides.items()}
    distinct = series.n_unique()
    several = "two values" if distinct == len(sides) else f"{distinct} spellings of two values"
    if len(common) == 1:
        return entry, f"{several}, one of fewer than {MIN_RECORDS} records: it is not named"
    names = " or ".join(repr(canonicalize_text(each)) for each in positive)
    return entry, f"{several}: check that {names} is the positive one"


def _label_classes(series: pl.Series, *, path: str | Path, name: str) -> tuple[Entry, str]:
    """Return the entry of several labels, without the names of those of few records."""
    labels = _sort_values(series)
    common = [label for label in labels if _is_common(series, [label])]
    if not common:
        raise _no_common_label(path, name)
    why = f"{len(labels)} values"
    rare = len(labels) - len(common)
    if rare:
        why += f"; {rare} of fewer than {MIN_RECORDS} records "
        why += f"{'is' if rare == 1 else 'are'} not named"
    if len(common) == 1:
        return {"kind": "label", "positive": common, "negative": "rest"}, why
    if rare:
        why += ", and a run refuses their records: add them to `classes` if the list of labels is "
        why += "public, or leave the records out of the file"
    why += "; for softmax; for logistic write positive = [...] and "
    why += 'negative = "rest"' + "; for ridge a range" * series.dtype.is_numeric()
    return {"kind": "label", "classes": common}, why


def _is_common(series: pl.Series, labels: Sequence[Any]) -> bool:
    """Return whether the spellings of a label are in enough records for a draft to name it."""
    return int(series.is_in(labels).sum()) >= MIN_RECORDS


def _no_common_label(path: str | Path, name: str) -> DataError:
    expected = f"a label of at least {MIN_RECORDS} records, which a draft may name"
    got = "none: write the label's entry from public knowledge"
    return DataError(expected, got, path=path, column=name)


def _sort_values(series: pl.Series) -> list[Any]:
    values: Iterable[Any] = series.drop_nulls().unique().to_list()
    return sorted(values)


def _compute_range(values: NDArray[np.float64]) -> tuple[float, float, str]:
    """Return the range, without tails if they are more than half of it, and a note on that."""
    low, high = _round_outwards(float(values.min()), float(values.max()))
    first, last = _round_outwards(*map(float, np.quantile(values, [_TAIL_SHARE, 1 - _TAIL_SHARE])))
    if high - low <= 2 * (last - first) or not first < last:
        return low, high, ""
    return first, last, "; long tails, so that a few values beyond it become its ends"


def _round_value(value: float) -> float:
    """Round to two significant digits.

    >>> _round_value(0.0616), _round_value(1234), _round_value(0)
    (0.062, 1200.0, 0.0)
    """
    return float(f"{value:.1e}")


def _round_outwards(low: float, high: float) -> tuple[float, float]:
    """Return the range widened to one digit of its width.

    >>> (_round_outwards(17, 88), _round_outwards(0.013, 0.96), _round_outwards(-3.2, 250),
    ... _round_outwards(1983, 2021))
    ((10.0, 90.0), (0.0, 1.0), (-100.0, 300.0), (1980.0, 2030.0))
    """
    exponent = math.floor(math.log10(max(high - low, 1e-300)))
    first, last = math.floor(low / 10.0**exponent), math.ceil(high / 10.0**exponent)
    # Formatting keeps 3 × 10⁻¹ from becoming 0.30000000000000004.
    return float(f"{first}e{exponent}"), float(f"{last}e{exponent}")
