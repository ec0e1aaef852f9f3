"""What every section of a job is made of: frozen, kebab-case keys, unknown keys refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Auto = Literal["auto"]
T = TypeVar("T")


class JobError(ValueError):
    """A job that cannot be run, with the key, what was expected and what came."""


class Section(BaseModel):
    """A section of a job file."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=False,
        strict=False,
    )


def unless_auto(value: T | Auto, otherwise: T) -> T:
    """The value, or what auto stands for."""
    return otherwise if value == "auto" else value


def check_unchanged(job: Any, section: str, keys: tuple[str, ...], needs: str) -> None:
    """Refuses keys of a section that would do nothing, where they were changed.

    Args:
        keys: attributes of the section; none: all of them.
    """
    part = getattr(job, section)
    for name in keys or tuple(type(part).model_fields):
        field, value = type(part).model_fields[name], getattr(part, name)
        if value != field.default:
            key = f"{section.replace('_', '-')}.{field.alias or name}"
            raise ValueError(
                f"Expected {key} = {field.default!r} (it needs {needs}), got {value!r}."
            )
