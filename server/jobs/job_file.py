"""Read and write job files: TOML to a checked `Job` and back, with errors that name the key.

An unknown key is refused, and the error names the nearest valid one. Any key can be overridden by
its dotted name (`privacy.epsilon=2`).

    >>> job = load_job(overrides=["parties.count=3", "privacy.epsilon=2"])
    >>> job.parties.count, job.privacy.epsilon, job.algorithm.kind
    (3, 2.0, 'gradient-perturbation')
    >>> load_job(overrides=["privacy.epsilom=2"])
    Traceback (most recent call last):
    ...
    parley.server.jobs.section_base.JobError: Unknown key privacy.epsilom. Did you mean privacy.e...
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from parley.safe_io.deprecations import rename_keys
from parley.safe_io.error_translation import translate_errors
from parley.safe_io.os_errors import describe_cause
from parley.safe_io.toml_reading import load_toml, parse_toml
from parley.safe_io.toml_writing import format_toml_value
from parley.server.jobs.external_references import locate_value
from parley.server.jobs.job import FORMS, Job
from parley.server.jobs.job_keys import (
    describe_keys,
    get_purpose,
    list_keys,
    list_own_keys,
    rename_job_key,
)
from parley.server.jobs.section_base import JobError

MODEL_BY_LABEL_KEY = {"positive": "logistic", "classes": "softmax", "range": "ridge"}
"""Key of a schema's label → `model.kind` if the job sets none."""

_TABLE_HINT = " To run on a table, use --set data.source=TABLE --set data.schema=SCHEMA."


def load_job(
    path: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
    stored: bool = False,
) -> Job:
    """Read a job: defaults, then the file, then `values` (nested), then `key=value` overrides.

    Relative paths in the file are relative to its folder, others to the working directory. With
    `stored`, Parley wrote the file: its paths stay, and old names of keys are read for the whole
    major version. Raises JobError.
    """
    tree = {} if path is None else _read_job_file(Path(path))
    with translate_errors(ValueError, JobError):
        rename_keys("job", tree, stored=stored)
        if path is not None and not stored:
            locate_paths(tree, Path(path).parent)
        given = {section: dict(content) for section, content in (values or {}).items()}
        rename_keys("job", given, stored=stored)
    for section, content in given.items():
        tree.setdefault(section, {}).update(content)
    for text in overrides:
        keys, value = parse_override(text)
        keys = rename_job_key(".".join(keys), "--set").split(".")
        node = tree
        for key in keys[:-1]:
            node = node.setdefault(key, {})
            if not isinstance(node, dict):
                raise JobError(f"Expected a key inside a section, got {'.'.join(keys)}.")
        node[keys[-1]] = value
    if count := _count_files(tree):
        tree.setdefault("parties", {})["count"] = count
    if kind := _find_model_kind(tree):
        tree.setdefault("model", {})["kind"] = kind
    try:
        return Job.model_validate(tree)
    except ValidationError as error:
        from parley.server.jobs.key_lookup import explain_invalid_job  # noqa: PLC0415 - spares its code for a valid job

        raise JobError(explain_invalid_job(error)) from error


def _read_job_file(path: Path) -> dict[str, Any]:
    try:
        tree = load_toml(path)
    except OSError as error:
        raise JobError(f"Cannot read job file {path}: {describe_cause(error)}.") from error
    except tomllib.TOMLDecodeError as error:
        hint = "" if path.suffix == ".toml" else _TABLE_HINT
        raise JobError(f"{path} is not TOML: {error}.{hint}") from error
    if "columns" in tree:
        raise JobError(f"{path} is a schema, not a job. Use --set data.schema={path}.")
    return tree


def locate_paths(tree: dict[str, Any], folder: Path) -> None:
    """Write the relative paths of a job file below its folder, in place."""
    for section, values in tree.items():
        if isinstance(values, dict):
            for key, value in values.items():
                if info := _find_key(section, key, values):
                    values[key] = locate_value(value, info, folder)


def locate_key(name: str, value: Any, folder: Path) -> Any:
    """Return the value of a dotted key, with its relative paths below `folder`."""
    section, _, key = name.partition(".")
    info = list_keys().get(section, {}).get(key)
    return value if info is None else locate_value(value, info, folder)


def _find_key(section: str, key: str, values: Mapping[str, Any]) -> FieldInfo | None:
    """Return a key of a section by its name in a file; None if it has none. Only a form that the
    section names is imported if the key is in it.
    """
    if section not in FORMS:
        return list_own_keys(Job()).get(section, {}).get(key)
    forms = FORMS[section]
    own = forms.forms[forms.find_kind(values) or forms.default].model_fields
    found = next((info for name, info in own.items() if (info.alias or name) == key), None)
    return found or forms.list_keys().get(key)


def _find_model_kind(tree: Mapping[str, Any]) -> str:
    """Return the kind of model for the label of the job's schema; empty if the job sets one.

    A schema that cannot be read is refused when records are read by it.
    """
    model, data = (tree.get(section, {}) for section in ("model", "data"))
    if not isinstance(model, dict) or "kind" in model or not isinstance(data, dict):
        return ""
    try:
        columns = load_toml(Path(str(data.get("schema", ""))))["columns"]
        keys = {key for each in columns.values() if each["kind"] == "label" for key in each}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return ""
    return next((kind for key, kind in MODEL_BY_LABEL_KEY.items() if key in keys), "")


def _count_files(tree: Mapping[str, Any]) -> int:
    """Return the number of files of a job that lists one per party; 0 if it sets the number."""
    data, parties = (tree.get(section, {}) for section in ("data", "parties"))
    if not isinstance(data, dict) or not isinstance(parties, dict) or "count" in parties:
        return 0
    files = data.get("files", ())
    return len(files) if isinstance(files, list) else 0


def parse_override(text: str) -> tuple[list[str], Any]:
    """Parse `privacy.epsilon=2` to (["privacy", "epsilon"], 2); a bare word is a string."""
    name, equals, raw = text.partition("=")
    keys = [key.strip() for key in name.split(".")]
    if not equals or len(keys) < 2 or not all(keys):
        raise JobError(f"Expected section.key=value, e.g. privacy.epsilon=2, got {text!r}.")
    try:
        return keys, parse_toml(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return keys, raw.strip()


def render_job(
    job: Job, *, comments: bool = True, every_form: bool = False, optional: Collection[str] = ()
) -> str:
    """Return the job as TOML with every key, each under a comment that describes it.

    Args:
        every_form: Include the keys of other models and algorithms, at their defaults.
        optional: Dotted keys to leave out if they are at their defaults.

    >>> load_job(values=parse_toml(render_job(load_job()))) == load_job()
    True
    """
    lines: list[str] = []
    values = job.to_values(every_form=every_form)
    descriptions = describe_keys(job, every_form=every_form) if comments else {}
    for section, keys in (list_keys() if every_form else list_own_keys(job)).items():
        lines.append(f"[{section}]" + (f"  # {get_purpose(section)}" if comments else ""))
        for key, field in keys.items():
            if f"{section}.{key}" in optional and values[section][key] == field.default:
                continue
            if comments:
                lines += [f"# {line}" for line in textwrap.wrap(descriptions[section][key], 96)]
            lines.append(f"{key} = {format_toml_value(values[section][key])}")
        lines.append("")
    return "\n".join(lines)
