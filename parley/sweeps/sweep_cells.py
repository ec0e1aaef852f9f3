"""Read a sweep file and list its cells: a job, a grid over its keys, and a seed for each cell.

A sweep file is a job file with one more table:

    [sweep]
    seeds = 5                                     # repetitions, or a list of whole numbers
    [sweep.grid]                                  # every combination
    "privacy.epsilon" = [0.1, 0.5, 1.0]
    [[sweep.zip]]                                 # these move together
    "parties.count" = [100, 1000]
    "parties.min-records" = [500, 50]
    [sweep.methods.output]                        # named settings: an axis called "method"; they
                                                  # win over the grid's values of these keys
    "algorithm.kind" = "output-perturbation"
    [[sweep.where]]                               # leaves out the cells that have all of these
    "privacy.epsilon" = 0.1
    method = "output"

A cell's name is a digest of its whole job and its repetition. So is the seed of its noise. A value
that is added to the grid therefore changes no other cell. By default, cells draw the noise of all
shares at once (`run.noise-shares = "deal"`, the same distribution) and skip the check of the masks,
because a sweep compares neither.

    >>> values = {"sweep": {"seeds": 2, "grid": {"privacy.epsilon": [1, 2]}}}
    >>> [(cell.values, cell.repetition) for cell in build_sweep(values, source="doc").cells][:2]
    [({'privacy.epsilon': 1}, 1), ({'privacy.epsilon': 1}, 2)]
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import math
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from parley.privacy.ledger.hash_chain import encode_canonical_json
from parley.run_request import choose_network_algorithm
from parley.safe_io.deprecations import rename_keys
from parley.safe_io.os_errors import describe_cause
from parley.safe_io.toml_reading import load_toml
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import (
    load_job,
    locate_key,
    locate_paths,
    parse_override,
    render_job,
)
from parley.server.jobs.key_lookup import check_key
from parley.server.jobs.section_base import JobError
from parley.server.model_file import NON_PRIVATE

MAX_CELLS = 10_000
"""Maximum number of cells of a sweep without --yes."""

METHOD = "method"
"""Name of the axis of named settings."""

_ADDED_KEYS = ("data.files",)
"""Keys that a cell's digest contains only if they are set: cells of jobs without them keep their
names and seeds.
"""

_KEYS = ("grid", "zip", "methods", "where", "seeds", "non-private")

Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class SweepCell:
    """One run of a sweep.

    Attributes:
        values: value on each axis, in order; a method's value is its name.
        job: the job, with a seed; None if it is not valid, for the reason in `error`.
        name: name of its folder; a digest of the cell.
    """

    values: Values
    repetition: int
    job: Job | None
    error: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep: names of its axes, in order, and all runs.

    Figures show `non_private`, values from `NON_PRIVATE`, as dashed lines.
    """

    axes: tuple[str, ...]
    cells: tuple[SweepCell, ...]
    non_private: tuple[str, ...] = NON_PRIVATE[:1]


def load_sweep(
    path: str | Path,
    *,
    overrides: Sequence[str] = (),
    values: Mapping[str, Any] = MappingProxyType({}),
    max_cells: int | None = MAX_CELLS,
) -> Sweep:
    """Load the sweep in a file.

    Args:
        overrides: `key=value` of the job that all cells share.
        values: the same by dotted key.
        max_cells: maximum number of cells; None for any number.

    Raises:
        JobError: no such file, no TOML, an unknown key (the nearest one is named), or too many
            cells.
    """
    try:
        tree = load_toml(Path(path))
    except OSError as error:
        raise JobError(f"Cannot read sweep file {path}: {describe_cause(error)}.") from error
    except tomllib.TOMLDecodeError as error:
        raise JobError(f"{path} is not TOML: {error}.") from error
    try:
        rename_keys("job", tree)
    except ValueError as error:
        raise JobError(f"{path}: {error}") from error
    locate_paths(tree, Path(path).parent)
    shared = {}
    for text in overrides:
        keys, value = parse_override(text)
        shared[check_key(".".join(keys), where="--set")] = value
    shared |= values
    for name, value in shared.items():
        section, _, key = name.partition(".")
        tree.setdefault(section, {})[key] = value
    choose_network_algorithm(tree)
    sweep = build_sweep(tree, source=str(path), folder=Path(path).parent, max_cells=max_cells)
    if twice := [name for name in sweep.axes if name in shared]:
        raise JobError(
            f"{path}: Expected {twice[0]} as one value for all cells or on an axis, got both: "
            "leave it out of the command, or out of the sweep."
        )
    return sweep


def build_sweep(
    tree: Mapping[str, Any],
    *,
    source: str,
    folder: Path = Path(),
    max_cells: int | None = MAX_CELLS,
) -> Sweep:
    """Build the sweep from a file's tables; see `load_sweep`.

    Args:
        folder: paths on the axes are relative to it; those of the job are located already.
    """
    base = {section: content for section, content in tree.items() if section != "sweep"}
    table = tree.get("sweep")
    if not isinstance(table, Mapping):
        raise JobError(f"{source}: Expected a table [sweep], got none.")
    for key in table:
        if key not in _KEYS:
            hint = _format_hint(key, _KEYS, "sweep.")
            raise JobError(f"{source}: Unknown key sweep.{key}.{hint}")
    load_job(values=base)
    axes = _parse_axes(table, source, folder)
    names = tuple(name for axis in axes for name in axis[0].values)
    rules = [_parse_rule(rule, names, source) for rule in table.get("where", [])]
    seeds = _parse_seeds(table.get("seeds", 1), source)
    count = len(seeds) * math.prod(len(axis) for axis in axes)
    if max_cells is not None and count > max_cells:
        raise JobError(
            f"{source}: Expected at most {max_cells:,} cells, got {count:,}: --yes runs them all."
        )
    cells = tuple(
        _build_cell(base, points, repetition)
        for points in itertools.product(*axes)
        for repetition in seeds
        if not any(_is_met(rule, _merge_values(points)) for rule in rules)
    )
    if not cells:
        raise JobError(f"{source}: Expected at least one cell, sweep.where leaves out all.")
    return Sweep(axes=names, cells=cells, non_private=_parse_non_private(table, source))


def _parse_non_private(table: Mapping[str, Any], source: str) -> tuple[str, ...]:
    given = table.get("non-private", list(NON_PRIVATE[:1]))
    if not isinstance(given, list) or not set(map(str, given)) <= set(NON_PRIVATE):
        raise JobError(
            f"{source}: Expected sweep.non-private as a list of {', '.join(NON_PRIVATE)}, got "
            f"{given!r}."
        )
    return tuple(map(str, given))


@dataclass(frozen=True, kw_only=True)
class _Point:
    """One position on an axis: its name, and the settings that it changes."""

    values: Values
    overrides: Values


def _parse_axes(table: Mapping[str, Any], source: str, folder: Path) -> list[list[_Point]]:
    axes = []
    if methods := _require_mapping(table.get("methods", {}), f"{source}: sweep.methods"):
        points = []
        for name, given in methods.items():
            where = f"{source}: sweep.methods.{name}"
            overrides = _require_mapping(given, where)
            known = {check_key(key, where=where): value for key, value in overrides.items()}
            points.append(_Point(values={METHOD: name}, overrides=_locate_values(known, folder)))
        axes.append(points)
    for key, values in _require_mapping(table.get("grid", {}), f"{source}: sweep.grid").items():
        if isinstance(values, Mapping):
            raise JobError(
                f"{source}: sweep.grid: Expected a dotted key in quotes, such as "
                f'"{key}.{next(iter(values), "KEY")}" = […], got a table.'
            )
        axes.append(_parse_zip({key: values}, f"{source}: sweep.grid", folder))
    where = f"{source}: sweep.zip"
    axes += [
        _parse_zip(_require_mapping(group, where), where, folder) for group in table.get("zip", [])
    ]
    counts = Counter(name for axis in axes for name in axis[0].values)
    for name in (name for name, count in counts.items() if count > 1):
        raise JobError(f"{source}: Expected every key on one axis, got {name} on two.")
    return axes


def _locate_values(values: Mapping[str, Any], folder: Path) -> Values:
    return {key: locate_key(key, value, folder) for key, value in values.items()}


def _parse_zip(group: Mapping[str, Any], source: str, folder: Path) -> list[_Point]:
    lengths, group = set(), {check_key(key, where=source): each for key, each in group.items()}
    for key, values in group.items():
        if not isinstance(values, list) or not values:
            raise JobError(f"{source}: Expected a list of values for {key}, got {values!r}.")
        lengths.add(len(values))
    if len(lengths) != 1:
        got = ", ".join(f"{len(values)} of {key}" for key, values in group.items()) or "none"
        raise JobError(f"{source}: Expected as many values of each key, got {got}.")
    points = [dict(zip(group, each, strict=True)) for each in zip(*group.values(), strict=True)]
    return [_Point(values=point, overrides=_locate_values(point, folder)) for point in points]


def _parse_rule(rule: Any, names: tuple[str, ...], source: str) -> Values:
    given = _require_mapping(rule, f"{source}: sweep.where")
    for key in given:
        if key not in names:
            said = f"{source}: sweep.where names {key}, which is not swept."
            raise JobError(said + _format_hint(key, names, ""))
    return dict(given)


def _format_hint(key: object, choices: Sequence[str], prefix: str) -> str:
    near = difflib.get_close_matches(str(key), choices, n=1, cutoff=0.5)
    return f" Did you mean {prefix}{near[0]}?" if near else f" Expected {', '.join(choices)}."


def _merge_values(points: tuple[_Point, ...]) -> Values:
    return {name: value for point in points for name, value in point.values.items()}


def _is_met(rule: Values, values: Values) -> bool:
    return bool(rule) and all(values[name] == value for name, value in rule.items())


def _parse_seeds(value: Any, source: str) -> list[int]:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return list(range(1, value + 1))
    whole = isinstance(value, list) and all(type(each) is int and each >= 0 for each in value)
    if not whole or not value or len(set(value)) < len(value):
        raise JobError(
            f"{source}: Expected sweep.seeds as a number of repetitions or a list of different "
            f"whole numbers, got {value!r}."
        )
    return list(value)


def _require_mapping(value: Any, source: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise JobError(f'{source}: Expected "section.key" = …, got {value!r}.')
    return value


def _build_cell(base: Mapping[str, Any], points: tuple[_Point, ...], repetition: int) -> SweepCell:
    by_method = sorted(points, key=lambda point: METHOD in point.values)
    overrides = {key: value for point in by_method for key, value in point.overrides.items()}
    nested: dict[str, Values] = {section: dict(content) for section, content in base.items()}
    for key, value in overrides.items():
        section, name = key.split(".", 1)
        nested.setdefault(section, {})[name] = value
    # Shares of noise are dealt and masks are not checked, unless the file says otherwise.
    nested.setdefault("run", {}).setdefault("noise-shares", "deal")
    nested.setdefault("secure-aggregation", {}).setdefault("masked-check", False)
    error, job = "", None
    try:
        job = load_job(values=nested)
        text = render_job(job, comments=False, every_form=True, optional=_ADDED_KEYS)
    except JobError as refused:
        error, text = str(refused), encode_canonical_json([str(nested)])
    digest = hashlib.sha256(encode_canonical_json([text, repetition]).encode("ascii")).hexdigest()
    if job is not None:
        run = job.run.model_copy(update={"seed": int(digest[:15], 16)})
        job = job.model_copy(update={"run": run})
    return SweepCell(
        values=_merge_values(points), repetition=repetition, job=job, error=error, name=digest[:24]
    )
