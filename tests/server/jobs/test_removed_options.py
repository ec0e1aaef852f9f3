"""Keys with one value left accept it; a job or policy that asks for less is refused with why."""

from __future__ import annotations

import pytest

from parley.client.party.owner_policy import parse_policy
from parley.server.jobs.job import JobError
from parley.server.jobs.job_file import load_job

LEFT = {"dropouts": "robust", "confirm-survivors": "true", "key-exchange": "hybrid"}
REMOVED = [
    ("dropouts", "optimistic", "a single dropout voided the round"),
    ("confirm-survivors", "false", "learn their difference"),
    ("key-exchange", "x25519", "quantum computer"),
]


def test_the_values_that_are_left_are_accepted() -> None:
    load_job(overrides=[f"secure-aggregation.{key}={value}" for key, value in LEFT.items()])
    parse_policy('confirm-survivors = true\nkey-exchange = "hybrid"\n', source="party.toml")


@pytest.mark.parametrize(("key", "value", "reason"), REMOVED)
def test_a_job_with_a_removed_value_is_refused_with_the_reason_and_the_remedy(
    key, value, reason
) -> None:
    with pytest.raises(JobError, match=f"(?s){key}.*{reason}.*Delete the key or write"):
        load_job(overrides=[f"secure-aggregation.{key}={value}"])


@pytest.mark.parametrize(("key", "value", "reason"), REMOVED[1:])
def test_a_policy_with_a_removed_value_is_refused_with_the_reason(key, value, reason) -> None:
    quoted = value if value == "false" else f'"{value}"'
    with pytest.raises(ValueError, match=f"(?s){key}.*{reason}"):
        parse_policy(f"{key} = {quoted}\n", source="party.toml")
