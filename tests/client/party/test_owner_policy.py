"""The owner's file: every key explained, unknown ones refused, a faulty value named."""

import pytest

from parley.client.party.owner_policy import (
    OwnerPolicy,
    PolicyError,
    load_policy,
    parse_policy,
)
from parley.client.party.policy_writing import format_policy

GIVEN = {
    "min-survivors": 3,
    "models": ["logistic", "wards.models:small"],
    "data": {
        "ward": {
            "path": "ward.csv",
            "schema": "ward.toml",
            "epsilon": 2,
            "delta": 1e-6,
            "epsilon-per-job": 0.5,
        },
        "x.y": {"prepared": "rows.npz", "epsilon": 1, "delta": 0, "classes": 10, "unit": "party"},
    },
}


def test_a_rendered_file_is_read_back_the_same_and_explains_every_key(tmp_path):
    consent = OwnerPolicy.model_validate(GIVEN)
    text = format_policy(consent)
    path = tmp_path / "party.toml"
    path.write_text(text)
    assert load_policy(path) == consent
    lines = text.splitlines()
    keys = [at for at, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    assert len(keys) > 25
    assert all(lines[at - 1].startswith("# ") for at in keys)
    assert consent.get_own_code("models") == {"wards.models:small": "wards.models:small"}
    jobs = [
        [t.epsilon_per_job for t in consent.data[name].totals.values()] for name in consent.data
    ]
    assert jobs == [[0.5], [1]]


def test_the_defaults_are_those_of_a_real_party():
    consent = parse_policy("", source="party.toml")
    assert (consent.confirm_survivors, consent.key_exchange) == (True, "hybrid")
    assert not consent.allow_seeded_noise
    assert consent.seed is None
    assert "laplace-as-printed" not in consent.laws
    assert "as-printed" not in consent.calibrations
    assert not consent.get_own_code("models")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("min-survivers = 3", "Unknown key min-survivers. Did you mean min-survivors?"),
        ("min_survivors = 3", "Unknown key min_survivors. Did you mean min-survivors?"),
        ("min-survivors = 0", "Expected min-survivors to be greater than or equal to 1, got 0."),
        ("laws = ['none']", "Expected laws.0 to be"),
        ("version = 2", "Expected version to be 1, got 2."),
        ("seed = 3", "Expected allow-seeded-noise = true with a seed, got false."),
        ("x = [", "Expected TOML"),
        ("[data.a]\nepsilon = 1\ndelta = 0", "Expected one of path, source, prepared and app-data"),
        ("[data.a]\nepsilon = 1\ndelta = 0\npath = 'a.csv'", "Expected a schema with path"),
        ("[data.a]\nprepared = 'a.npz'\ndelta = 0", "data.a.epsilon"),
        ("[data.a]\nprepared = 'a'\nepsilon = true\ndelta = 0", "to be a number, no truth value"),
        ("[data.a]\nprepared = 'a'\nepsilon = inf\ndelta = 0", "data.a.epsilon"),
        ("[data.a]\nprepared = 'a'\nepsilon = 1\ndelta = 1", "data.a.delta"),
        ("[data.a]\nprepared = 'a'\nepsilon = 1\ndelta = 0\nclases = 2", "Did you mean classes?"),
        ("[data.'a b']\nprepared = 'a'\nepsilon = 1\ndelta = 0", "data.a b"),
    ],
)
def test_a_faulty_file_is_explained(text, message):
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, source="party.toml")
    assert str(caught.value).startswith("party.toml: ")
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(PolicyError, match="nowhere"):
        load_policy(tmp_path / "nowhere")
