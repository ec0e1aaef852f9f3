"""Write a party's policy as the text of a `party.toml`, and describe faults of such a text.

Only what creates a party's folder writes one. A party's process reads it
(`parley.client.party.owner_policy`), and needs neither.
"""

from __future__ import annotations

import difflib

from parley.client.data.schema_writing import format_toml_value
from parley.client.party.dataset_config import DatasetConfig, PolicySection
from parley.client.party.owner_policy import OwnerPolicy
from parley.safe_io import toml_writing
from parley.safe_io.attribute_docstrings import describe_fields


def format_policy(policy: OwnerPolicy) -> str:
    """Return the file's text, with the meaning of every key. `parse_policy` is the inverse."""
    lines = ["# This party's policy. Only its owner edits it; no server can change it."]
    lines += _format_keys(policy)
    for name, dataset in policy.data.items():
        lines += ["", f"[data.{toml_writing.format_toml_key(name)}]", *_format_keys(dataset)]
    return "\n".join(lines) + "\n"


def _format_keys(section: PolicySection) -> list[str]:
    lines, descriptions = [], describe_fields(type(section))
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        if name == "data":
            continue
        lines += ["", f"# {descriptions[name]}"]
        key = info.alias or name
        lines.append(f"# {key} =" if value is None else f"{key} = {format_toml_value(value)}")
    return lines


def format_fault(key_path: tuple[int | str, ...], fault: object) -> str:
    """Return what is wrong with a key, what was expected, and the nearest known key."""
    details = fault if isinstance(fault, dict) else {}
    where = ".".join(str(section) for section in key_path)
    if details["type"] == "extra_forbidden":
        section: type[PolicySection] = DatasetConfig if key_path[0] == "data" else OwnerPolicy
        keys = [info.alias or name for name, info in section.model_fields.items()]
        matches = difflib.get_close_matches(str(key_path[-1]), keys, n=1, cutoff=0.5)
        hint = f" Did you mean {matches[0]}?" if matches else f" Expected one of {', '.join(keys)}."
        return f"Unknown key {where}.{hint}"
    message = str(details["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    if details["type"] == "value_error":
        return f"{where}: {message}" if where else message
    return f"Expected {where} to be {message[0].lower()}{message[1:]}, got {details['input']!r}."
