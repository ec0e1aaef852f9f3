"""Whether a key names a file or code is a property of its type, of every key that there is."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel, Field

from parley.analytics.session_settings import Settings
from parley.server.jobs.external_references import CODE, ReferenceKind, Text, find_reference_kinds
from parley.server.jobs.job import FORMS, Job
from parley.server.jobs.job_file import load_job
from parley.server.jobs.machine_references import (
    check_submission,
    find_code_references,
    find_machine_references,
)
from parley.server.jobs.section_base import JobError, JobSection

FREE = (str, bytes, Any, object, dict)


def free(annotation, declared):
    """Whether a type holds a free text that no `ReferenceKind` speaks for."""
    if get_origin(annotation) is Literal:
        return False
    declared = declared or any(
        isinstance(each, ReferenceKind) for each in getattr(annotation, "__metadata__", ())
    )
    if annotation in FREE or get_origin(annotation) in FREE:
        return not declared
    return any(free(each, declared) for each in get_args(annotation))


def sections():
    """Every model whose keys a submission may set: each form of each section, and a session's."""
    for name, info in Job.model_fields.items():
        forms = FORMS[name].forms.values() if name in FORMS else [info.annotation]
        yield from forms
    yield Settings


def undeclared(model):
    for name, info in model.model_fields.items():
        inner = [each for each in (info.annotation,) if isinstance(each, type)]
        if any(issubclass(each, BaseModel) for each in inner):
            yield from (f"{name}.{each}" for each in undeclared(*inner))
        elif free(info.annotation, any(isinstance(each, ReferenceKind) for each in info.metadata)):
            yield name


@pytest.mark.parametrize("model", [*sections()], ids=lambda model: model.__name__)
def test_every_text_of_a_submission_has_a_type_that_says_what_it_names(model):
    assert list(undeclared(model)) == []


def test_a_new_key_without_such_a_type_is_found():
    class New(JobSection):
        plain: str = ""
        maybe: list[str] | Literal["auto"] = "auto"
        anything: dict[str, Any] = Field({})
        said: Text = ""
        word: Literal["a", "b"] = "a"
        words: list[Text] = Field([])

    assert list(undeclared(New)) == ["plain", "maybe", "anything"]


def named_keys():
    for model in sections():
        for name, info in model.model_fields.items():
            for each in find_reference_kinds(info):
                if each.what:
                    yield model, name, each.what


@pytest.mark.parametrize(
    ("model", "name", "what"),
    [*named_keys()],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_every_such_key_is_refused_from_elsewhere_with_key_value_and_remedy(model, name, what):
    given = model.model_construct(epsilon=1.0).model_copy(update={name: "/srv/it.py:f"})
    key = model.model_fields[name].alias or name
    with pytest.raises(JobError) as refused:
        check_submission(given)
    assert f"Expected no {what} in {key} " in str(refused.value)
    assert "'/srv/it.py:f'" in str(refused.value)
    assert "on the server's machine" in str(refused.value)
    assert [each.key for each in find_code_references(given)] == [key] * (what == CODE)


def test_the_keys_that_an_attack_used_are_among_them():
    found = {(model.__name__, name) for model, name, _ in named_keys()}
    assert found >= {
        *(
            ("OwnLossSection", "loss"),
            ("OwnResidualLossSection", "loss"),
            ("LogisticSection", "features"),
        ),
        *(
            ("OwnNetworkSection", "kind"),
            ("OwnAlgorithmSection", "kind"),
            ("PcaMlpSection", "pca_file"),
        ),
        *(("DataSection", name) for name in ("source", "data_schema")),
        *(("DataSection", name) for name in ("test_source", "test_schema")),
        *(("RunSection", name) for name in ("out", "prepared", "ray_address")),
        *(("PrivacySection", "ledger"), ("Settings", "ledger"), ("Settings", "deployment")),
        ("Settings", "ray_address"),
    }


@pytest.mark.parametrize("source", ["ward", "ward-2.v1", "breast-cancer", "Ward 3"])
def test_a_job_that_names_a_data_set_alone_comes_from_anywhere(source):
    assert find_machine_references(load_job(overrides=[f"data.source={source}"])) == []


@pytest.mark.parametrize("source", ["/etc/passwd", "a/b.csv", "party-*.csv", "..", "C:\\x", "~x"])
def test_a_source_that_is_a_path_names_a_file(source):
    job = load_job(overrides=[f"data.source='{source}'"])
    assert [each.key for each in find_machine_references(job)] == ["data.source"]
