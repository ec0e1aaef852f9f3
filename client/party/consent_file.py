"""`party.toml` as a file: read with an error for each key, and written with each key's meaning.

>>> consent = Consent.model_validate(
...     {"data": {"ward": {"prepared": "ward.npz", "epsilon": 2.0, "delta": 1e-5}}}
... )
>>> parse_consent(render_consent(consent), source="party.toml") == consent
True
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path

from pydantic import ValidationError

from parley.client.contract import toml_text
from parley.client.contract.file_reading import text_of
from parley.client.contract.model_names import beside
from parley.client.contract.toml_reading import parse_toml
from parley.client.data.schema import toml_value
from parley.client.party.consent import Consent
from parley.client.party.data_set import DataSet, Part


class ConsentError(ValueError):
    """A `party.toml` that cannot be used: the key, what was expected, what came."""


def load_consent(path: Path) -> Consent:
    """The consent in the file at `path`.

    Raises:
        ConsentError: not there, not TOML, an unknown key (the nearest is named), a wrong value.
    """
    try:
        text = text_of(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConsentError(f"Expected the party's policy at {path}, got: {error}.") from error
    consent = parse_consent(text, source=str(path))
    # Files of models and algorithms are beside the policy, wherever the party was started.
    folder = path.resolve().parent
    own = {
        "models": tuple(beside(name, folder) for name in consent.models),
        "algorithms": tuple(beside(name, folder) for name in consent.algorithms),
        "features": tuple(beside(name, folder) for name in consent.features),
    }
    return consent.model_copy(update=own)


def parse_consent(text: str, *, source: str) -> Consent:
    """The consent in `text`; see `load_consent`."""
    try:
        return Consent.model_validate(parse_toml(text))
    except tomllib.TOMLDecodeError as error:
        raise ConsentError(f"{source}: Expected TOML, got an error: {error}.") from error
    except ValidationError as error:
        lines = [f"{source}: {_explained(fault['loc'], fault)}" for fault in error.errors()]
        raise ConsentError("\n".join(dict.fromkeys(lines))) from None


def _explained(place: tuple[int | str, ...], fault: object) -> str:
    details = fault if isinstance(fault, dict) else {}
    where = ".".join(str(part) for part in place)
    if details["type"] == "extra_forbidden":
        part: type[Part] = DataSet if place[0] == "data" else Consent
        keys = [info.alias or name for name, info in part.model_fields.items()]
        near = difflib.get_close_matches(str(place[-1]), keys, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]}?" if near else f" Expected one of {', '.join(keys)}."
        return f"Unknown key {where}.{hint}"
    said = str(details["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    if details["type"] == "value_error":
        return f"{where}: {said}"
    return f"Expected {where} to be {said[0].lower()}{said[1:]}, got {details['input']!r}."


def render_consent(consent: Consent) -> str:
    """The file's text, every key with its meaning; `parse_consent` gives the same back."""
    lines = ["# What this party agrees to. Only its owner writes here; no server can change it."]
    lines += _keys(consent)
    for name, dataset in consent.data.items():
        lines += ["", f"[data.{toml_text.key(name)}]", *_keys(dataset)]
    return "\n".join(lines) + "\n"


def _keys(part: Part) -> list[str]:
    lines = []
    for name, info in type(part).model_fields.items():
        value = getattr(part, name)
        if name == "data":
            continue
        lines += ["", f"# {info.description}"]
        key = info.alias or name
        lines.append(f"# {key} =" if value is None else f"{key} = {toml_value(value)}")
    return lines
