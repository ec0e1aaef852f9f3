"""The descriptions of a settings class are the docstrings below its fields."""

from pydantic import BaseModel, Field

from parley.client.party.owner_policy import OwnerPolicy
from parley.safe_io.attribute_docstrings import describe_fields
from parley.server.jobs.job import FORMS, Job


class Base(BaseModel):
    first: int = 1
    """Number of
    parties.
    """

    second: int = Field(2, ge=1, description="Stated.")


class Settings(Base):
    third: str = ""
    fourth: float = 0.5
    """Share."""

    def unrelated(self) -> None:
        """Not a field."""


def test_a_fields_description_is_stated_or_the_docstring_below_it_in_one_line():
    assert describe_fields(Settings) == {
        "first": "Number of parties.",
        "second": "Stated.",
        "third": "",
        "fourth": "Share.",
    }


def test_each_key_of_a_job_and_of_a_policy_has_a_description():
    forms = [form for form in FORMS.values() for form in form.forms.values()]
    sections = [info.annotation for name, info in Job.model_fields.items() if name not in FORMS]
    for section in (*forms, *sections, OwnerPolicy):
        assert all(describe_fields(section).values()), section
