"""Define the base of all job sections: frozen, kebab-case keys, unknown keys refused.

`SectionForms` defines sections with another form for each `kind`: which form a text requests, and
which keys belong to which form. A job file may contain every key of every form, as `parley run
--print-job` prints them. A key of another form is refused only if it differs from its default; the
error names the kinds that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from parley.client.own_code.own_code_names import is_own_code
from parley.safe_io.boolean_for_number import is_truth_for_number

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
AtLeastOne = Annotated[int, Field(ge=1)]
Auto = Literal["auto"]
T = TypeVar("T")


class JobError(ValueError):
    """A job that cannot be run, with the key, the expected value and the actual one."""


class JobSection(BaseModel):
    """A section of a job file."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=False,
        strict=False,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_value(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true where a number is expected; it would count as 1."""
        if is_truth_for_number(value, cls.model_fields[str(info.field_name)].annotation):
            raise PydanticCustomError("truth_value", "Input should be a number, no truth value")
        return value


def replace_auto(value: T | Auto, otherwise: T) -> T:
    """Return the value, or `otherwise` if it is auto."""
    return otherwise if value == "auto" else value


def check_unchanged(job: Any, section: str, keys: tuple[str, ...], needs: str) -> None:
    """Refuse keys of a section that have no effect but were changed.

    Args:
        keys: attributes of the section; empty: all of them.
    """
    part = getattr(job, section)
    for name in keys or tuple(type(part).model_fields):
        field, value = type(part).model_fields[name], getattr(part, name)
        if value != field.default:
            key = f"{section.replace('_', '-')}.{field.alias or name}"
            raise ValueError(
                f"Expected {key} = {field.default!r} (it needs {needs}), got {value!r}."
            )


@dataclass(frozen=True, kw_only=True)
class SectionForms:
    """The forms of one section.

    Attributes:
        forms: kind → form; the form of your own code, which has many names, under `own_key`.
        is_own: whether a kind without a row in `forms` has that form.
    """

    section: str
    purpose: str
    forms: Mapping[str, type[JobSection]]
    default: str
    own_key: str
    is_own: Callable[[str], bool] = is_own_code

    def find_kind(self, section: Any) -> str | None:
        """Return the key of the form that a section requests, or None."""
        if isinstance(section, Mapping):
            kind = section.get("kind", self.default)
        else:
            kind = getattr(section, "kind", None)
        if not isinstance(kind, str):
            return None
        if kind != self.own_key and kind in self.forms:
            return kind
        return self.own_key if self.is_own(kind) else None

    def annotation(self) -> Any:
        """Return the type of the section's field: the form that its kind names, loaded then."""
        return Annotated[SerializeAsAny[JobSection], BeforeValidator(self.build_section)]

    def build_section(self, section: Any) -> Any:
        """Return a section, checked by the form of its kind."""
        kind = self.find_kind(section)
        if kind is None or isinstance(section, JobSection):
            return section  # an unknown kind was refused by `drop_other_forms`
        return self.forms[kind].model_validate(section)

    def build_default(self) -> Any:
        """Return the section of a job that has none."""
        return self.forms[self.default]()

    def list_keys(self) -> dict[str, FieldInfo]:
        """Return every key of every form, by its name in a file, in the table's order."""
        return {
            info.alias or name: info
            for form in self.forms.values()
            for name, info in form.model_fields.items()
        }

    def drop_other_forms(self, section: Any) -> Any:
        """Return a section without the keys of other forms; these may be present with their
        defaults.
        """
        if isinstance(section, JobSection):
            return section
        if not isinstance(section, Mapping):
            raise ValueError(f"Expected [{self.section}] to be a section, got {section!r}.")
        kind = self.find_kind(section)
        if kind is None:
            names = ", ".join(f"'{name}'" for name in self.forms)
            raise ValueError(
                f"Expected {self.section}.kind to be one of {names}, got {section.get('kind')!r}."
            )
        known = _list_aliases(self.forms[kind])
        if known.issuperset(section):
            return dict(section)
        every, kept = self.list_keys(), {}
        for key, value in section.items():
            if key in known or key not in every:  # an unknown key is refused as such
                kept[key] = value
            elif value != every[key].default:
                needs = [name for name, form in self.forms.items() if key in _list_aliases(form)]
                raise ValueError(
                    f"Expected {self.section}.{key} = {every[key].default!r} (it needs "
                    f"{self.section}.kind = {' or '.join(map(repr, needs))}), got {value!r}."
                )
        return kept

    def to_values(self, section: JobSection) -> dict[str, Any]:
        """Return every key of every form: the section's own values, and the others' defaults."""
        own = {info.alias or name: name for name, info in type(section).model_fields.items()}
        return {
            key: getattr(section, own[key]) if key in own else info.default
            for key, info in self.list_keys().items()
        }


def _list_aliases(form: type[JobSection]) -> set[str]:
    return {info.alias or name for name, info in form.model_fields.items()}
