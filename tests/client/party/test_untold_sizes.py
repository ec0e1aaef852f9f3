"""What a budget hides, a number of records or a record's value, no answer and no log line tells."""

import warnings

import numpy as np
import pytest
from agreements import NETWORK

from parley.client.contract.message_frames import encode_frame
from parley.client.features.base import BoundFeatureMap
from parley.client.party.record_cache import RecordCache

TRAINED = (*NETWORK, "dp-sgd.sampling-rate=0.3", "parties.min-records=5")
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
    requests = world.round_requests(1)
    replies = [wired.ok(world.raw(i, encode_frame(one))) for i, one in requests.items()]
    assert len({len(encode_frame(reply)) for reply in replies}) == 1
    for reply in replies:
        world.server.handle_vector(reply.blobs[0])
    assert world.opened().any()


def test_whether_a_wide_map_fits_is_decided_by_a_public_number(tmp_path, wired):
    """Else the width that a server names finds the party's own number by bisection."""
    import polars as pl

    from parley.client.contract.refusals import Declined
    from parley.client.features.map_building import build_map
    from parley.client.party.dataset_config import DatasetConfig
    from parley.client.party.dataset_loader import load_dataset

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
            made = build_map("random-fourier", {"features": width}, own_maps={})
            given = {"path": "r.csv", "schema": "s.toml", "epsilon": 1.0, "delta": 1e-5}
            dataset = DatasetConfig.model_validate({**given, "unit": "party", "most-records": 500})
            try:
                load_dataset(dataset, tmp_path, label="logistic", intercept=True, features=made)
                heard.append("ok")
            except Declined as error:
                heard.append(str(error.reason))
    assert heard == ["ok", "data-unreadable"] * 2
    dataset = dataset.model_copy(update={"most_records": 299})
    with pytest.raises(Declined, match="most-records = 299"):
        load_dataset(dataset, tmp_path, label="logistic", intercept=True)


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


def said(world):
    """The log of the first party, without its times."""
    log = (world.folders[0] / "party.log").read_text().splitlines()
    return [line.partition(" ")[2] for line in log]


def test_features_that_are_not_finite_of_one_record_are_zeros_and_no_refusal():
    """A server names the map: whether all features are finite would tell of that record."""

    def piece(cells):
        with np.errstate(divide="ignore"):
            return np.log(cells @ [[1.0, 2.0]]).astype(np.float32)

    rows = BoundFeatureMap(width=2, map_piece=piece).compute(np.array([[0.25], [0.0], [0.75]]))
    assert rows.all(axis=1).tolist() == [True, False, True]
    assert rows[1].tolist() == [0.0, 0.0]


def test_what_goes_wrong_in_reading_is_one_reason_and_one_line(tmp_path, wired, monkeypatch):
    """The class of an exception, and the line that raised it, may depend on a record."""
    heard = []
    for number, fault in enumerate((ZeroDivisionError, OverflowError, MemoryError)):
        root = tmp_path / str(number)
        root.mkdir()
        world = wired.World(root, reopen=False)

        def breaks(*_, fault=fault, **__):
            raise fault("at the record 0.375")

        with monkeypatch.context() as patch:
            patch.setattr("parley.client.party.record_cache.load_dataset", breaks)
            reasons = [wired.reason(world.ask(0, "join", **world.join_head()))]
            reasons.append(wired.reason(world.inspect()))
        heard.append((reasons, said(world)))
    assert heard[0][0] == ["data-unreadable"] * 2
    assert heard[0] == heard[1] == heard[2]
    assert "party DIR --check" in heard[0][1][0]


def test_a_librarys_warning_about_records_is_not_printed(tmp_path, wired, monkeypatch, recwarn):
    world = wired.World(tmp_path, reopen=False)
    read = RecordCache.load

    def warns(*args):
        warnings.warn("overflow in a record", RuntimeWarning, stacklevel=1)
        return read(*args)

    monkeypatch.setattr(RecordCache, "load", warns)
    wired.ok(world.inspect())
    assert not recwarn.list


def test_odd_labels_and_rows_are_told_by_no_answer_and_no_line(tmp_path, wired, caplog):
    """θ = 0, huge and tiny, for two holdings: what is sent has one length, the log one text."""
    heard = []
    for there in (True, False):
        root = tmp_path / str(there)
        root.mkdir()
        world = wired.World(root, reopen=False)
        with np.load(world.folders[0] / "rows.npz") as given:
            rows, labels = given["features"].copy(), given["labels"].copy()
        if there:
            rows[0], labels[0] = [0.0, 0.0, 0.0, 5e-324, 1.0], 7e300
        np.savez(world.folders[0] / "rows.npz", features=rows, labels=labels)
        world.join()
        lengths = []
        for number, theta in enumerate((0.0, 1e300, -1e-300), 1):
            state = world.state(np.full(5, theta))
            answers = world.vectors(number, number, state=state)
            lengths.append([len(reply.blobs[0]) for reply in answers.values()])
            world.opened()
        sizes = {name: len(content) for name, content in world.files(0).items()}
        del sizes["rows.npz"]
        heard.append((said(world), lengths, sizes, [record.message for record in caplog.records]))
    assert heard[0] == heard[1]
    assert heard[0][3] == []
