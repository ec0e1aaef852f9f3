"""Networks and files of their own at real parties."""

import numpy as np
import pytest
from plans import planned
from scenes import FEDAVG, Scene, counts

from parley.client.party.owner_policy import load_policy
from parley.client.party.party_session import PartySession
from parley.client.party.refusal_rules import RefusalRules
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.sampling.random_stream import Randomness
from parley.server.rounds.party_facts import format_served_name
from parley.simulations.engine.fast_engine import simulate


@pytest.mark.parametrize(
    "overrides",
    [
        (*FEDAVG, "privacy.unit=both", "privacy.party-epsilon=8", "parties.min-records=20"),
        (
            *FEDAVG,
            "privacy.unit=both",
            "parties.min-records=20",
            "privacy.party-epsilon=8",
            "privacy.epsilon=9",
            "dp-sgd.noise-multiplier=0.6",
        ),
    ],
    ids=["inner charged", "outer charged"],
)
def test_networks_train_at_real_parties_under_both_units(tmp_path, overrides):
    """Under either alone: `updates` of `tests/conformance/test_engines.py`."""
    scene = Scene(tmp_path, overrides)
    summary = scene.run()
    assert summary.status == "complete"
    assert counts(scene.lines()[1]) == (5, 0, 0, 5)
    whole = simulate(scene.job, out=tmp_path / "fast").summary
    for key in ("guarantees", "record_bounds", "dimension"):
        assert getattr(summary, key) == getattr(whole, key)
    charged = [entry.entry for entry in scene.party_entries(0)]
    units = [(number, unit) for number in (1, 2) for unit in ("record", "party")]
    assert [(each.index, each.facts["unit"]) for each in charged] == units


def test_real_parties_tell_the_clipped_fraction_that_their_own_steps_give(tmp_path):
    scene = Scene(tmp_path, (*FEDAVG, "dp-sgd.clipped-fraction-share=0.1", "privacy.epsilon=8"))
    summary = scene.run()
    job = scene.job
    whole = simulate(job, out=tmp_path / "fast").summary
    for key in ("guarantees", "dimension"):
        assert getattr(summary, key) == getattr(whole, key)
    told = summary.clipped_fraction
    assert told.last == scene.lines()[1]["clipped_fraction"]
    assert told.deviation == whole.clipped_fraction.deviation
    # Every party by itself, as the fast engine computes a block of one.
    experiment, algorithm, plan = planned(job)
    start = algorithm.init()
    encoded = [
        PartySession(
            block=experiment.block.take(np.array([party])),
            algorithm=algorithm,
            rules=RefusalRules(units=frozenset({Unit.RECORD})),
            randomness=Randomness.from_seed(5, party=party),
        )
        .answer(plan, start)
        .encoded[0]
        for party in range(5)
    ]
    average = plan.encoding.to_float(plan.encoding.decode(sum(encoded))) / 5
    told = algorithm.released(algorithm.update(start, average))
    assert told == {"clipped_fraction": scene.lines()[0]["clipped_fraction"]}
    facts = scene.party_entries(0)[0].entry.facts
    assert facts["clipped_share"] == 0.1


def test_parties_read_their_own_files_by_their_own_schemas(tmp_path):
    rows = np.random.default_rng(1).normal(size=(150, 2))
    schema = (
        '[columns]\na = { kind = "numeric", range = [-3, 3] }\n'
        'b = { kind = "numeric", range = [-3, 3] }\n'
        'sick = { kind = "label", positive = "yes", negative = "no" }\n'
    )
    (tmp_path / "schema.toml").write_text(schema)
    for party in range(5):
        own = rows[party * 30 : party * 30 + 30]
        lines = [f"{a:.6f},{b:.6f},{'yes' if a + b > 0 else 'no'}" for a, b in own]
        (tmp_path / f"site-{party}.csv").write_text("a,b,sick\n" + "\n".join(lines) + "\n")
    source = (
        f"data.source={tmp_path}/site-*.csv",
        f"data.schema={tmp_path}/schema.toml",
        "data.records=0",
        "data.test-fraction=0",
    )
    scene = Scene(tmp_path, source)
    name = format_served_name(scene.job)
    for party in range(5):
        own = load_policy(scene.homes[party] / "party.toml").data[name]
        raw = {
            "prepared": "",
            "path": str(tmp_path / f"site-{party}.csv"),
            "data_schema": str(tmp_path / "schema.toml"),
        }
        scene.policy(party, data={name: own.model_copy(update=raw)})
    scene.run()
    assert np.array_equal(scene.theta(), simulate(scene.job, out=tmp_path / "fast").theta)


def test_a_data_file_that_is_gone_is_one_partys_trouble(tmp_path):
    scene = Scene(tmp_path)
    (scene.homes[0] / "records.npz").unlink()
    scene.run()
    assert scene.lines()[0]["reasons"] == {"data-unreadable": 1}
    assert "records.npz" in (scene.homes[0] / "party.log").read_text()
