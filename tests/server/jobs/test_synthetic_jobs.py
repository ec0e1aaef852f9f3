"""Schemas that no synthetic records can be made of: refused by a plan, in words, unpaid."""

import pytest

from parley.client.data.schema import SchemaError
from parley.planning.plan_job import plan
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError

LABEL = 'sick = { kind = "label", positive = "yes", negative = "no" }'
NUMBER = 'age = { kind = "numeric", range = [0, 100] }'
MANY = ", ".join(f'"c{at}"' for at in range(65_537))


@pytest.mark.parametrize(
    ("kind", "columns", "override", "said"),
    [
        (
            "marginals",
            ['id = { kind = "ignore" }', LABEL],
            "",
            "at least one column of kind numeric, categorical or array",
        ),
        (
            "marginals",
            ['a = { kind = "array", shape = [4, 4], range = [0, 1] }', LABEL],
            "",
            "got the array 'a'",
        ),
        (
            "marginals",
            ['a = { kind = "numeric", range = [0, 1], bins = 65537 }', LABEL],
            "",
            "less than or equal to 65536, got 65537",
        ),
        (
            "marginals",
            [f'a = {{ kind = "categorical", categories = [{MANY}] }}', LABEL],
            "",
            "at most 65536 values of a column that is counted, got 65537 of 'a'",
        ),
        (
            "random-features",
            ['a = { kind = "array", shape = [131072], range = [0, 1] }', LABEL],
            "algorithm.frequencies=10",
            "1 to 131071 columns",
        ),
        (
            "random-features",
            [NUMBER, 'sick = { kind = "label", range = [0, 1] }'],
            "",
            "to give positive and negative .* make it a column of kind numeric",
        ),
        (
            "marginals",
            [NUMBER, 'sick = { kind = "label", range = [0, 1] }'],
            "",
            "Or make it a column of kind numeric, and choose another label",
        ),
        ("random-features", [NUMBER, LABEL], "privacy.unit=both", "privacy.unit = 'record'"),
        ("random-features", [NUMBER, LABEL], "algorithm.length-scale=-1", "greater than 0"),
        ("random-features", [NUMBER, LABEL], "algorithm.length-scale=nan", "got nan"),
    ],
)
def test_what_no_records_can_be_made_of_is_refused_by_a_plan(
    tmp_path, kind, columns, override, said
):
    schema = tmp_path / "people.schema.toml"
    schema.write_text("\n".join(["[columns]", *columns]))
    overrides = [
        *(f"algorithm.kind={kind}", "model.kind=table", "data.source=people.csv"),
        *(f"data.schema={schema}", "parties.count=3", "parties.min-records=100"),
        *("privacy.epsilon=1", "privacy.delta=1e-5"),
    ]
    with pytest.raises((JobError, SchemaError), match=said):
        plan(load_job(overrides=[*overrides, *([override] if override else [])]))
