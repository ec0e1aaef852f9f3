"""A number of records that a budget hides: no answer tells it, nor on which side of one it is."""

import numpy as np
import pytest

from parley.client.contract.protocol import encode_frame

TRAINED = ("algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[3]", "dp-sgd.local-steps=2")
TRAINED += ("privacy.noise=gaussian", "dp-sgd.sampling-rate=0.3", "parties.min-records=5")
SUMMED = ("algorithm.kind=distributed-dp-sgd", *TRAINED[1:], "dp-sgd.local-steps=1")
SUMMED += ("dp-sgd.sampling-rate=0.9",)
PARTY = ("privacy.unit=party", "dp-sgd.party-clip-norm=0.5")
BOTH = ("privacy.unit=both", "privacy.epsilon=9", "privacy.party-epsilon=9")
BOTH += ("dp-sgd.noise-multiplier=0.6", "privacy.record-bound=inner")
BOTH += ("dp-sgd.party-clip-norm=0.5",)

WAYS = {
    "party": ((*TRAINED, *PARTY), {"unit": "party"}),
    "party, sums": ((*SUMMED, *PARTY), {"unit": "party"}),
    "both": ((*TRAINED, *BOTH), {"party-epsilon": 50.0, "party-delta": 1e-5}),
    "one more or less": (
        (*TRAINED, "privacy.neighbouring=add-or-remove-one"),
        {"neighbouring": "add-or-remove-one"},
    ),
}


def held(wired, root, way, sizes):
    overrides, data = WAYS[way]
    root.mkdir()
    return wired.World(root, overrides=overrides, sizes=sizes, reopen=False, **data)


@pytest.mark.parametrize("way", WAYS)
def test_a_number_that_the_budget_hides_is_not_told_for_the_asking(tmp_path, wired, way):
    world = held(wired, tmp_path / "w", way, wired.SIZES)
    assert wired.reason(world.inspect()) == "sizes-not-disclosed"
    assert wired.ok(world.inspect(sizes=False)).head["records"] is None


@pytest.mark.parametrize("way", WAYS)
def test_no_least_number_of_a_servers_choice_is_a_question_about_the_partys_own(
    tmp_path, wired, way
):
    heard = []
    for records in (40, 41):
        world = held(wired, tmp_path / str(records), way, (records, 50, 60))
        plan, answers = world.plan.to_json(), []
        for turn, least in enumerate((5, 41, 10**6)):
            asked = {**plan, "min_records": least, "mean_records": float(least)}
            reply = world.ask(0, "join", **world.join_head(f"{turn:032x}", plan=asked))
            answers.append((reply.head["status"], reply.head.get("reason")))
        heard.append(answers)
        assert "records" not in (world.folders[0] / "party.log").read_text()
    assert heard == [[("ok", None)] * 3] * 2


@pytest.mark.parametrize("way", WAYS)
def test_a_party_of_one_record_is_in_the_sum_like_any_other(tmp_path, wired, way):
    world = held(wired, tmp_path / "w", way, (1, 50, 60))
    world.join()
    requests = world.round_requests(1, prepare=None)
    replies = [wired.ok(world.raw(i, encode_frame(one))) for i, one in requests.items()]
    assert len({len(encode_frame(reply)) for reply in replies}) == 1
    for reply in replies:
        world.server.on_vector(reply.blobs[0])
    assert world.opened().any()


def test_whether_a_wide_map_fits_is_decided_by_a_public_number(tmp_path, wired):
    """Else the width that a server names finds the party's own number by bisection."""
    import polars as pl

    from parley.client.contract.protocol import Declined
    from parley.client.features.table import build_map
    from parley.client.party.data_set import DataSet
    from parley.client.party.dataset import load_holding

    schema = """
[file]
max-gib = 0.001
[columns]
age = { kind = "numeric", range = [0, 100] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
    (tmp_path / "s.toml").write_text(schema)
    heard = []
    for records in (30, 300):
        rows = {"age": np.arange(records) % 100, "sick": ["yes", "no"] * (records // 2)}
        pl.DataFrame(rows).write_csv(tmp_path / "r.csv")
        for width in (16, 400):
            made = build_map("random-fourier", {"features": width}, own={})
            given = {"path": "r.csv", "schema": "s.toml", "epsilon": 1.0, "delta": 1e-5}
            dataset = DataSet.model_validate({**given, "unit": "party", "most-records": 500})
            try:
                load_holding(dataset, tmp_path, label="logistic", intercept=True, features=made)
                heard.append("ok")
            except Declined as error:
                heard.append(str(error.reason))
    assert heard == ["ok", "data-unreadable"] * 2
    dataset = dataset.model_copy(update={"most_records": 299})
    with pytest.raises(Declined, match="most-records = 299"):
        load_holding(dataset, tmp_path, label="logistic", intercept=True)


def test_what_dp_sgd_is_proved_for_is_asked_of_a_public_number(tmp_path, wired):
    """Else a party of one record more than a batch may have would contribute zeros."""
    overrides, data = WAYS["one more or less"]
    answers = []
    for most in (10**6, 10**6 + 1):
        root = tmp_path / str(most)
        root.mkdir()
        given = {**data, "most-records": most}
        world = wired.World(root, overrides=overrides, sizes=wired.SIZES, reopen=False, **given)
        answers.append(world.ask(0, "join", **world.join_head()).head.get("reason"))
    assert answers == [None, "algorithm"]
