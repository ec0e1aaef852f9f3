"""Define records that are written as JSON and read again: frozen, closed, equal after a round trip.

A key without a value is absent. A number that is not finite is null, because JSON has no form for
it (`parley.safe_io.json_writing`).
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)


class JsonRecordError(ValueError):
    """A text that is not the expected JSON; the message names the key and the actual value."""


_LONG_NUMBER = re.compile(r"[0-9]{300}")
"""Digits of a number that no float holds."""
_SHORT_TEXT = re.compile(r"[\w .:+-]{1,60}")


def _format_value(value: object) -> str:
    """Return a value for an error message. The file is untrusted, so that no value may contain
    markup.
    """
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "a number of more than 19 digits"
    if isinstance(value, str | int | float | None):
        if _SHORT_TEXT.fullmatch(str(value)):
            return repr(value)
        return f"a text of {len(str(value))} characters"
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list) else "another value"


def _convert_nonfinite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


OptionalFloat = Annotated[float | None, BeforeValidator(_convert_nonfinite)]
"""A number; None if it is not known or not finite."""


Epsilon = Annotated[float, BeforeValidator(lambda value: math.inf if value is None else value)]
"""A known ε; ∞, which JSON stores as null, if none is proved."""


class JsonRecord(BaseModel):
    """A frozen record with a JSON form."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @model_serializer(mode="wrap")
    def _drop_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        payload: dict[str, Any] = handler(self)
        for name, key in _list_optional_fields(type(self)):
            if getattr(self, name) is None:
                payload.pop(key, None)
        return payload

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain values for `format_json`."""
        return self.model_dump(mode="json", by_alias=True)

    @classmethod
    def parse(cls, text: str, where: object) -> Self:
        """Read what `to_json` returned.

        Raises:
            JsonRecordError: it is something else; the message names `where` and the first wrong
                key.
        """
        if _LONG_NUMBER.search(text):
            raise JsonRecordError(f"Expected {cls.__name__} as JSON in {where}: number too long.")
        try:
            return cls.model_validate_json(text, strict=True)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_context=False)
            # Another format explains all other errors.
            first = next((each for each in wrong if each["loc"] == ("format",)), wrong[0])
            key = ".".join(_format_value(part).strip("'") for part in first["loc"])
            shown = key and first["type"] != "missing"
            came = f", got {_format_value(first['input'])}" if shown else ""
            raise JsonRecordError(
                f"Expected {cls.__name__} as JSON in {where}: {f'{key}: ' if key else ''}"
                f"{first['msg']}{came}."
            ) from None

    def with_fields(self, **facts: Any) -> Self:
        """Return the record with some fields replaced, and all of them checked."""
        return type(self).model_validate({**dict(self), **facts})


@cache
def _list_optional_fields(facts: type[JsonRecord]) -> tuple[tuple[str, str], ...]:
    """Return the names of the fields that may be absent, with their keys."""
    fields = facts.model_fields.items()
    return tuple((name, each.alias or name) for name, each in fields if not each.is_required())
