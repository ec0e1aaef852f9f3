"""Jobs and ledgers that the fast engine refuses, and what runs at once on one ledger."""

import sqlite3

import numpy as np
import pytest
from quick_runs import QUICK, StopAfter, run

from parley.planning.plan_job import plan
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import (
    BudgetExceeded,
    LedgerConflict,
    LedgerCorrupt,
    NotALedger,
)
from parley.secure_agg.encoding import RingTooSmall
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_folder import RunFolderError
from parley.simulations.data.partitions import PartitionError
from parley.simulations.engine.fast_engine import simulate


def test_a_changed_job_does_not_resume(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, observer=StopAfter(2))
    job = tmp_path / "run" / "job.toml"
    job.write_text(job.read_text().replace('lambda = "auto"', "lambda = 0.02"))
    with pytest.raises(JobError, match="were changed"):
        simulate(None, resume=tmp_path / "run")


def test_a_shared_ledger_composes_runs_and_refuses_the_one_beyond_the_budget(tmp_path):
    shared = (f"privacy.ledger={tmp_path / 'all.sqlite'}", "privacy.dataset-epsilon=1.6")
    run(tmp_path, *shared, name="first")
    second = run(tmp_path, *shared, name="second")
    # Two runs of ε = 1 each compose to √2 by the exact curve, below 1.6; a third does not fit.
    assert second.summary.status == "complete"
    with pytest.raises(BudgetExceeded) as refusal:
        run(tmp_path, *shared, name="third")
    assert (refusal.value.count, refusal.value.fitting) == (10, 3)
    for told in ("ε = 1.6,", "with 10 releases", "0.1348", "3 of the 10 would fit"):
        assert told in str(refusal.value)
    assert not (tmp_path / "third").exists()
    smaller = ("algorithm.rounds=3", "privacy.epsilon=0.5")
    assert run(tmp_path, *shared, *smaller, name="third").summary.status == "complete"
    with Ledger.open(tmp_path / "all.sqlite", read_only=True) as ledger:
        (totals,) = ledger.list_accounts()
        assert totals.spent.compute_lowest_epsilon(1e-5)[1] <= 1.6 * (1 + 1e-9)
        assert totals.held_counts == {}


class StartAnother:
    """An observer that begins another run after round 1, as another process would."""

    def __init__(self, begin):
        self.begin = begin

    def started(self, job, plan, folder, done):
        pass

    def round_done(self, line):
        if line.round == 1:
            self.begin()


def test_runs_at_once_on_one_ledger_finish_or_are_refused_at_once(tmp_path):
    """Each would pass a first check by itself, and all of them together end unfinished."""
    shared = (f"privacy.ledger={tmp_path / 'all.sqlite'}", "privacy.dataset-epsilon=1.6")
    ended = []

    def begin(name, observer=None):
        try:
            ended.append(run(tmp_path, *shared, name=name, observer=observer).summary.status)
        except BudgetExceeded as refusal:
            ended.append(str(refusal))

    def more():
        for name in ("c", "d"):
            begin(name)

    begin("a", StartAnother(lambda: begin("b", StartAnother(more))))
    assert ended[2:] == ["complete", "complete"]
    for refusal in ended[:2]:
        assert "is held for the next rounds of 'a-" in refusal
    assert not (tmp_path / "c").exists()
    assert not (tmp_path / "d").exists()
    with Ledger.open(tmp_path / "all.sqlite", read_only=True) as ledger:
        assert ledger.list_accounts()[0].held_counts == {}
        assert ledger.verify() == []


def test_a_killed_run_keeps_what_it_holds_until_it_is_resumed_or_freed(tmp_path, monkeypatch):
    shared = (f"privacy.ledger={tmp_path / 'all.sqlite'}", "privacy.dataset-epsilon=1.2")
    with monkeypatch.context() as killed:
        killed.setattr(Ledger, "end_hold", lambda *_: None)  # what a kill leaves undone
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, *shared, observer=StopAfter(4))
    (run_id,) = (tmp_path / "run" / "run-id").read_text().split()
    with Ledger.open(tmp_path / "all.sqlite", read_only=True) as ledger:
        assert ledger.list_accounts()[0].held_counts == {run_id: 5}  # 4 committed, 1 reserved of 10
    with pytest.raises(BudgetExceeded, match=f"held .* '{run_id}' .5 releases.*parley ledger free"):
        run(tmp_path, *shared, name="other")
    again = simulate(None, resume=tmp_path / "run")
    assert (again.summary.status, again.summary.rounds_done) == ("complete", 10)
    with Ledger.open(tmp_path / "all.sqlite") as ledger:
        assert ledger.list_accounts()[0].held_counts == {}
        assert ledger.list_accounts()[0].spent.releases == 10


def test_a_stopped_run_gives_back_and_goes_on_only_where_the_rest_still_fits(tmp_path):
    shared = (f"privacy.ledger={tmp_path / 'all.sqlite'}", "privacy.dataset-epsilon=1.2")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, *shared, observer=StopAfter(4))
    with Ledger.open(tmp_path / "all.sqlite", read_only=True) as ledger:
        assert ledger.list_accounts()[0].held_counts == {}
    run(tmp_path, *shared, "privacy.epsilon=0.8", name="other")
    with pytest.raises(BudgetExceeded):
        simulate(None, resume=tmp_path / "run")
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 4


def test_a_run_whose_checkpoint_was_removed_releases_nothing_again(tmp_path):
    """It would begin at round 1 again, whose charge was paid for the release that was made."""
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, observer=StopAfter(4))
    with sqlite3.connect(tmp_path / "run" / "ledger.sqlite") as connection:
        connection.execute("DELETE FROM parley_ledger_checkpoints")
    connection.close()
    with pytest.raises(LedgerCorrupt, match="checkpoint of release 1"):
        simulate(None, resume=tmp_path / "run")


SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100] }
ward = { kind = "categorical", categories = ["a", "b"] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""


def test_the_same_records_saved_as_another_file_have_no_new_budget(tmp_path, caplog):
    rng = np.random.default_rng(3)
    rows = [
        (int(rng.integers(100)), rng.choice(["a", "b"]), rng.choice(["yes", "no"]))
        for _ in range(120)
    ]
    (tmp_path / "s.toml").write_text(SCHEMA)
    (tmp_path / "wider.toml").write_text(SCHEMA.replace("100]", "101]"))
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("age,ward,sick\n" + "".join(f"{a},{w},{s}\n" for a, w, s in rows))
    second.write_text(
        "sick,age,ward\r\n" + "".join(f"{s},{a}.0,{w}\r\n" for a, w, s in reversed(rows))
    )
    common = (
        f"privacy.ledger={tmp_path / 'all.sqlite'}",
        "privacy.dataset-epsilon=1.2",
        "data.records=0",
        "parties.count=4",
    )

    def learn(name, file, schema="s.toml", *more):
        source = (f"data.source={file}", f"data.schema={tmp_path / schema}")
        return run(tmp_path, *common, *source, *more, name=name)

    learn("one", first)
    with caplog.at_level("WARNING"), pytest.raises(BudgetExceeded, match=r"first\.csv"):
        learn("two", second)
    assert "saved differently or extended" in caplog.text
    with pytest.raises(BudgetExceeded, match=r"first\.csv"):
        learn("three", second, "wider.toml")
    with pytest.raises(LedgerConflict, match="records in common"):
        learn("four", second, "s.toml", "privacy.dataset-epsilon=9")
    # One row more, less or corrected: the others are charged for as before.
    lines = second.read_text().splitlines()
    changed = [*lines, "yes,50,a"], lines[:-1], [*lines[:-1], "yes,50,a"]
    for place, grown in enumerate(changed):
        second.write_text("\n".join(grown) + "\n")
        with pytest.raises(BudgetExceeded, match=r"first\.csv"):
            learn(f"changed-{place}", second)
    fresh = rng.integers(100, size=120)
    second.write_text("sick,age,ward\n" + "".join(f"no,{age}.5,b\n" for age in fresh))
    learn("others", second)


def test_a_noise_that_costs_more_than_its_name_is_refused_until_the_owner_accepts_it(tmp_path):
    printed = ("algorithm.kind=output-perturbation", "privacy.noise=laplace-as-printed")
    with pytest.raises(JobError, match="dataset-epsilon"):
        run(tmp_path, *printed, name="refused")
    accepted = run(tmp_path, *printed, "privacy.dataset-epsilon=5", name="accepted")
    assert accepted.summary.primary.epsilon > 1.5


def test_an_existing_folder_is_not_overwritten(tmp_path):
    run(tmp_path)
    with pytest.raises(RunFolderError, match="exists and is not empty"):
        run(tmp_path)


def test_a_lost_ledger_never_starts_a_run_over(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, observer=StopAfter(3))
    (tmp_path / "run" / "ledger.sqlite").unlink()
    with pytest.raises(NotALedger):
        simulate(None, resume=tmp_path / "run")


def test_a_shared_ledger_is_found_again_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "privacy.ledger=shared.sqlite", observer=StopAfter(3))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    simulate(None, resume=tmp_path / "run")
    with Ledger.open(tmp_path / "shared.sqlite", read_only=True) as ledger:
        assert ledger.get_account("synthetic", Unit.RECORD).spent.releases == 10


def test_two_processes_never_continue_one_run(tmp_path):
    class Rival:
        def started(self, *facts):
            with pytest.raises(RunFolderError, match="in use"):
                simulate(None, resume=tmp_path / "run")

        def round_done(self, line):
            pass

    run(tmp_path, observer=Rival())


@pytest.mark.parametrize("swapped", ["another", "older"])
def test_the_ledger_of_another_job_or_an_older_copy_never_starts_a_run_over(tmp_path, swapped):
    shared = tmp_path / "run" / "ledger.sqlite"

    class Copies(StopAfter):
        def round_done(self, line):
            if line.round == 2:
                (tmp_path / "older.sqlite").write_bytes(shared.read_bytes())
                for side in shared.parent.glob("ledger.sqlite-*"):
                    name = side.name.replace("ledger", "older")
                    (tmp_path / name).write_bytes(side.read_bytes())
            super().round_done(line)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, observer=Copies(5))
    if swapped == "another":
        other = run(tmp_path, name="other").folder
        (other / "ledger.sqlite").rename(shared)
    else:
        for copy in tmp_path.glob("older.sqlite*"):
            copy.rename(shared.parent / copy.name.replace("older", "ledger"))
    with pytest.raises(RunFolderError, match="another job, or an older copy"):
        simulate(None, resume=tmp_path / "run")


OUTPUT = ("algorithm.kind=output-perturbation", "model.kind=huber-svm")
FEDAVG = ("privacy.unit=party", "model.kind=mlp", "algorithm.kind=fedavg")


@pytest.mark.parametrize(
    ("overrides", "error", "said"),
    [
        (("parties.min-records=1000",), PartitionError, "40 each"),
        (("secure-aggregation.scale-bits=52",), RingTooSmall, r"2\^40"),
        ((*FEDAVG, "privacy.delta=0.2"), JobError, "1/8, for 8 parties"),
    ],
)
def test_a_job_that_cannot_run_is_refused_and_leaves_no_folder(tmp_path, overrides, error, said):
    with pytest.raises(error, match=said):
        run(tmp_path, *overrides)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "hard", ["model.huber-width=1e-3", "model.lambda=1e-9", "algorithm.relative-tolerance=1e-12"]
)
def test_a_job_whose_certificates_records_may_prevent_is_refused(tmp_path, hard):
    with pytest.raises(
        JobError,
        match=r"Expected (lambda|a relative_tolerance|a loss with a slope .*) >=",
    ):
        run(tmp_path, *OUTPUT, hard)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("delta", [0.5, 1 / 50])
def test_a_delta_that_lets_one_record_be_shown_in_full_is_refused_beforehand(tmp_path, delta):
    for begin in (lambda job: simulate(job, out=tmp_path / "run"), plan):
        with pytest.raises(JobError, match=r"privacy\.delta well below 1/"):
            begin(load_job(overrides=[*QUICK, f"privacy.delta={delta}"]))
    assert not (tmp_path / "run").exists()


def test_a_delta_of_the_fields_papers_is_said_to_be_large_and_taken(tmp_path, caplog):
    job = load_job(overrides=[*QUICK, "data.records=2000", "privacy.delta=1e-3"])
    assert simulate(job, out=tmp_path / "run").summary.status == "complete"
    assert "well below 1/" in caplog.text
