"""What a record's value may not decide beside a released vector: a reason, a line of the log."""

import warnings

import numpy as np

from parley.client.features.base import Features
from parley.client.party.kept_records import KeptRecords


def said(world):
    """The log of the first party, without its times."""
    log = (world.folders[0] / "party.log").read_text().splitlines()
    return [line.partition(" ")[2] for line in log]


def test_features_that_are_not_finite_of_one_record_are_zeros_and_no_refusal():
    """A server names the map: whether all features are finite would tell of that record."""

    def piece(cells):
        with np.errstate(divide="ignore"):
            return np.log(cells @ [[1.0, 2.0]]).astype(np.float32)

    rows = Features(width=2, piece=piece).of(np.array([[0.25], [0.0], [0.75]]))
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
            patch.setattr("parley.client.party.kept_records.load_holding", breaks)
            reasons = [wired.reason(world.ask(0, "join", **world.join_head()))]
            reasons.append(wired.reason(world.inspect()))
        heard.append((reasons, said(world)))
    assert heard[0][0] == ["data-unreadable"] * 2
    assert heard[0] == heard[1] == heard[2]
    assert "party DIR --check" in heard[0][1][0]


def test_a_librarys_warning_about_records_is_not_printed(tmp_path, wired, monkeypatch, recwarn):
    world = wired.World(tmp_path, reopen=False)
    read = KeptRecords.of

    def warns(*args):
        warnings.warn("overflow in a record", RuntimeWarning, stacklevel=1)
        return read(*args)

    monkeypatch.setattr(KeptRecords, "of", warns)
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
