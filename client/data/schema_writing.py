"""Write a schema as TOML, and its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import BaseModel

from parley.safe_io import toml_writing

_LABEL_VALUES = {"positive", "negative", "classes"}


def format_schema(schema: BaseModel) -> str:
    """Return a schema as a file's text, without defaults. `Schema.from_toml` is the inverse."""
    given = schema.model_dump(by_alias=True, exclude_defaults=True, exclude_none=True)
    scaling = schema.model_dump(include={"scaling"})
    own = scaling | {key: given[key] for key in ("drafted", "drafted-from") if key in given}
    sections = {"file": given.get("file", {}), "columns": given["columns"]}
    lines = _format_keys(own)
    for name, keys in sections.items():
        lines += ["", f"[{name}]", *_format_keys(keys)] if keys else []
    return "\n".join(lines) + "\n"


def _format_keys(keys: Mapping[str, object]) -> list[str]:
    format_key = toml_writing.format_toml_key
    return [f"{format_key(key)} = {format_toml_value(value)}" for key, value in keys.items()]


def format_toml_value(value: object) -> str:
    """Return a value of a schema as TOML, with a whole float as an integer.

    The values of a label keep their type, because a model predicts them unchanged.
    """
    return toml_writing.format_toml_value(_convert_whole_floats(value))


def _convert_whole_floats(value: object) -> object:
    if isinstance(value, Mapping):
        return {
            name: each if name in _LABEL_VALUES else _convert_whole_floats(each)
            for name, each in value.items()
        }
    if isinstance(value, float):
        return int(value) if abs(value) < 1e15 and value == int(value) else value
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_convert_whole_floats(item) for item in value]
    return value
