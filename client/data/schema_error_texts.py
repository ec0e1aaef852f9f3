"""Texts about the faults of a schema."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from pydantic import BaseModel
from pydantic_core import ErrorDetails


def format_fault(
    fault: ErrorDetails,
    schema: type[BaseModel],
    file: type[BaseModel],
    columns: Mapping[str, type[BaseModel]],
) -> str:
    """Format a fault as place, what was expected, what came.

    Args:
        schema, file, columns: the models of a schema, of its part `file`, and of each kind of
            column.
    """
    # A column's place is (columns, NAME, KIND, key, …). Pydantic adds the kind; the file has no
    # such level.
    key_path = list(fault["loc"])
    model = schema
    if key_path[:1] == ["file"]:
        model = file
    elif key_path[:1] == ["columns"] and len(key_path) >= 3:
        model = columns.get(str(key_path.pop(2)), schema)
    where = ".".join(str(part) for part in key_path)
    match fault["type"]:
        case "extra_forbidden":
            keys = [info.alias or name for name, info in model.model_fields.items()]
            matches = difflib.get_close_matches(str(key_path[-1]), keys, n=1, cutoff=0.5)
            hint = f"; the nearest is {matches[0]!r}" if matches else ""
            return f"Expected one of the keys {', '.join(keys)}{hint}, got {where}."
        case "missing":
            return f"Expected the key {where}, got none."
        case "union_tag_invalid" | "union_tag_not_found":
            got = fault["input"].get("kind", "") if isinstance(fault["input"], dict) else ""
            matches = difflib.get_close_matches(str(got), columns, n=1, cutoff=0.5)
            hint = f" (the nearest is {matches[0]!r})" if matches else ""
            return f"{where}: Expected kind {', '.join(columns)}, got {got!r}{hint}."
        case "string_pattern_mismatch":
            expected = "one ASCII character that is not a quotation mark or line end"
            return f"{where}: Expected {expected}, got {fault['input']!r}."
        case "value_error":
            return (f"{where}: " if where else "") + str(fault["msg"]).removeprefix("Value error, ")
        case _:
            expected = str(fault["msg"]).removeprefix("Input should be ")
            expected = expected.removeprefix("String should ")
            return f"{where}: Expected {expected}, got {fault['input']!r}."
