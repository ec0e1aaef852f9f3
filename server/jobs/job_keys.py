"""List the keys of a job, with their fields and descriptions, and rename old ones."""

from __future__ import annotations

from pydantic.fields import FieldInfo

from parley.safe_io.attribute_docstrings import describe_fields
from parley.safe_io.deprecations import rename_key
from parley.server.jobs.job import FORMS, Job
from parley.server.jobs.section_base import JobError


def rename_job_key(name: str, where: str) -> str:
    """Return a key by its current name. The error begins with `where` the key was found."""
    try:
        return rename_key("job", name)
    except ValueError as error:
        raise JobError(f"{where}: {error}") from error


def get_purpose(section: str) -> str:
    """Return a section's purpose, in one line."""
    if section in FORMS:
        return FORMS[section].purpose
    return type(getattr(Job(), section.replace("-", "_"))).__doc__ or ""


def list_keys() -> dict[str, dict[str, FieldInfo]]:
    """Return every section and key by its name in a file, for all forms."""
    return list_own_keys(Job()) | {name: forms.list_keys() for name, forms in FORMS.items()}


def list_own_keys(job: Job) -> dict[str, dict[str, FieldInfo]]:
    """Return every section and key of a job by its name in a file."""
    return {
        info.alias or name: {
            key.alias or field: key for field, key in type(getattr(job, name)).model_fields.items()
        }
        for name, info in Job.model_fields.items()
    }


def describe_keys(job: Job, *, every_form: bool) -> dict[str, dict[str, str]]:
    """Return the description of every section's keys: of all forms, or of the job's own."""
    found: dict[str, dict[str, str]] = {}
    for name, info in Job.model_fields.items():
        several = every_form and name in FORMS
        forms = FORMS[name].forms.values() if several else [type(getattr(job, name))]
        found[info.alias or name] = {
            form.model_fields[field].alias or field: text
            for form in forms
            for field, text in describe_fields(form).items()
        }
    return found
