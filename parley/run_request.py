"""What a caller of `parley.run`, `plan` and `sweep` asks for: a job, and the data that go with it.

>>> request = build_run_request({"algorithm.rounds": 3}, epsilon=2, parties=4)
>>> request.job.privacy.epsilon, request.job.parties.count, request.job.rounds
(2.0, 4, 3)
"""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parley.client.data.schema import Schema
from parley.client.own_code.own_code_names import is_own_code
from parley.keyword_keys import KEYWORD_KEYS
from parley.module_loading.plugin_table import load_attribute
from parley.safe_io.toml_reading import load_toml
from parley.server.jobs.job import FORMS, Job
from parley.server.jobs.job_file import load_job, locate_paths, parse_override
from parley.server.jobs.section_base import JobError
from parley.server.jobs.section_registry import MODELS
from parley.simulations.data.bundled_datasets import BUNDLED

_SECTIONS = {info.alias or name: name for name, info in Job.model_fields.items()}
_NETWORK_ALGORITHM = "fedavg"
_NAME_MODEL = "parley.passed_networks:name_model"
"""Imported only for a network that is passed as an object."""
_IS_FILE_LIST = "parley.client.data.file_format_overrides:is_file_list"
"""Imported only for a list of data."""


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A job and its data.

    Attributes:
        data: what was handed over in memory, or files that the job does not name; None: the job
            names its own.
        schema: of `data`, if it is no file of the job.
    """

    job: Job
    data: Any
    schema: Schema | str | Path | None
    label: str | None


def build_run_request(
    what: Any = None,
    y: Any = None,
    *,
    job: Any = None,
    data: Any = None,
    schema: Any = None,
    label: str | None = None,
    model: Any = None,
    overrides: Sequence[str] = (),
    reads_data: bool = True,
    **keywords: Any,
) -> RunRequest:
    """Sort out what a caller passed. A keyword wins over `job`, which wins over the defaults.

    Args:
        what: a job or data, as `is_job` decides.
        y: labels if `what` is X.
        overrides: `section.key=value` texts, which win over all others.
        reads_data: whether files without a schema may be read for one.
        keywords: the other words of `KEYWORD_KEYS`; None leaves a key as it is.

    Raises:
        JobError, SchemaError: two jobs, two data sets, or something that is neither.
    """
    if what is not None and is_job(what):
        if job is not None:
            raise JobError("Expected one job, got two: the first argument, and job=.")
        job = what
    elif what is not None:
        if data is not None:
            raise JobError("Expected the data once, got them twice: the first argument, and data=.")
        data = what
    if y is not None:
        if data is None:
            raise JobError("Expected X with y, got none: parley.run(X, y).")
        data = (data, y)
    tree = list_set_values(job)
    keys = {KEYWORD_KEYS[word]: value for word, value in keywords.items() if value is not None}
    if model is not None:
        named = isinstance(model, str)
        keys["model.kind"] = model if named else load_attribute(_NAME_MODEL)(model)
    if isinstance(data, list):
        keys.setdefault("parties.count", len(data))
    for name, value in keys.items():
        section, _, key = name.partition(".")
        tree.setdefault(section, {})[key] = value
    for text in overrides:
        (section, key, *rest), value = parse_override(text)
        tree.setdefault(section, {})[".".join((key, *rest))] = value
    if isinstance(schema, Mapping):
        schema, label = Schema.of(schema, label=label), None
    data, schema = _name_records(tree, data, schema, label, reads_data=reads_data)
    choose_network_algorithm(tree)
    return RunRequest(job=load_job(values=tree), data=data, schema=schema, label=label)


def _name_records(
    tree: dict[str, dict[str, Any]], data: Any, schema: Any, label: str | None, *, reads_data: bool
) -> tuple[Any, Any]:
    """Write into the job what it can name of data and schema; return the rest."""
    is_file_list = isinstance(data, list) and load_attribute(_IS_FILE_LIST)(data)
    section = tree.setdefault("data", {})
    if isinstance(schema, str | Path):
        if data is None or isinstance(data, str | Path) or is_file_list:
            section["schema"], schema = str(schema), None
    elif data is None and (schema is not None or label is not None):
        data = section.pop("source", None)
    if is_file_list:
        if not reads_data or (schema is None and section.get("schema")):
            section["files"], data = list(data), None
    elif isinstance(data, str | Path):
        named = bool(section.get("schema") or section.get("query")) or str(data) in BUNDLED
        # Files without a schema, or with one that is no file, are read like data in memory.
        absent = label is None and not glob.glob(str(data))
        if not reads_data or (schema is None and (named or absent)):
            section["source"], data = str(data), None
    if label is not None and data is None:
        _require_source_for_label(label, section)
    if not section:
        del tree["data"]
    return data, schema


def _require_source_for_label(label: str, section: Mapping[str, Any]) -> None:
    """Raise JobError if the job's data have their own label, or a schema that names it."""
    expected = f"Expected data with schema or label, got label = {label!r}"
    source = section.get("source") or ("" if section.get("files") else "breast-cancer")
    if section.get("schema"):
        raise JobError(
            f"{expected} and data.schema = {str(section['schema'])!r}, which names the label. "
            "Leave out one of them."
        )
    if str(source) in BUNDLED:
        raise JobError(
            f"{expected} and the bundled {str(source)!r}, which has its own. Name your records: "
            "--data FILE, in Python data=."
        )


def is_job(what: Any) -> bool:
    """Return whether it is a job: a `Job`, a .toml file, or a mapping of sections or dotted keys.

    >>> is_job("job.toml"), is_job({"privacy.epsilon": 2}), is_job({"age": [1, 2]})
    (True, True, False)
    """
    if isinstance(what, Job):
        return True
    if isinstance(what, str | Path):
        return str(what).endswith(".toml")
    return isinstance(what, Mapping) and bool(what) and all(
        isinstance(name, str) and _is_job_key(name, value) for name, value in what.items()
    )  # fmt: skip


def _is_job_key(name: str, value: Any) -> bool:
    section, dot, _ = name.partition(".")
    return section in _SECTIONS and (bool(dot) or isinstance(value, Mapping))


def list_set_values(job: Any) -> dict[str, dict[str, Any]]:
    """Return the keys that a job sets, by section. Raises JobError."""
    if job is None:
        return {}
    if isinstance(job, str | Path):
        load_job(job)  # with an error that names the file
        found = load_toml(Path(job))
        locate_paths(found, Path(job).parent)
        return found
    if isinstance(job, Job):
        return {
            section: values
            for section, attribute in _SECTIONS.items()
            if (values := _list_set_keys(getattr(job, attribute)))
        }
    if not isinstance(job, Mapping):
        raise JobError(
            "Expected job to be a Job, a job file, or keys such as "
            f'{{"algorithm.clip-norm": 1}}, got {type(job).__name__}.'
        )
    tree: dict[str, dict[str, Any]] = {}
    for name, value in job.items():
        section, dot, key = str(name).partition(".")
        if dot:
            tree.setdefault(section, {})[key] = value
        elif isinstance(value, Mapping):
            tree.setdefault(section, {}).update(value)
        else:
            raise JobError(f"Expected section.key, such as privacy.epsilon, got {name!r}.")
    return tree


def _list_set_keys(section: Any) -> dict[str, Any]:
    fields = type(section).model_fields
    plain = section.model_dump(by_alias=True)
    names = (fields[field].alias or field for field in section.model_fields_set if field in fields)
    return {name: plain[name] for name in names}


def choose_network_algorithm(tree: dict[str, dict[str, Any]]) -> None:
    """Train a network by federated averaging if the caller names no algorithm."""
    kind = tree.get("model", {}).get("kind")
    if not isinstance(kind, str) or "kind" in tree.get("algorithm", {}):
        return
    form = FORMS["model"].own_key if is_own_code(kind) else kind
    if form in MODELS and MODELS[form].learns == "network":
        tree.setdefault("algorithm", {})["kind"] = _NETWORK_ALGORITHM
