"""What the terminal shows of a plan, a run, a ledger, a deployment: whole however narrow it is."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from ledgers import ADULT
from rich.console import Console

import parley
from parley.client.contract.assumptions import SOLVER_CONVERGENCE
from parley.deploy.process_errors import ProcessError
from parley.planning.plan_job import plan
from parley.presentation.page_registry import PAGES
from parley.privacy.accounting.privacy_events import Approximate, GaussianEvent, Pure
from parley.privacy.ledger.account import BudgetAccount, RunHold
from parley.privacy.ledger.block_composition import SpentByBlock
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.ledger.recorded_entries import EntryState, RecordedEntry
from parley.server.jobs.job_file import load_job
from parley.simulations.engine.fast_engine import simulate
from parley.terminal import deployment_status
from parley.terminal.deployment_status import DeploymentStatus, RunStatus, watch_status
from parley.terminal.document_output import print_document
from parley.terminal.ledger_operations import LedgerContent, print_ledger, read_ledger
from parley.terminal.result_output import print_result
from parley.terminal.rich_output import build_plain_table

GAUSSIAN = {
    **{"mechanism": "gradient-perturbation", "neighbouring": "replace-one", "norm": "L2"},
    **{"sensitivity": 1.0, "accountant": "a", "accountant_version": "1"},
    **{"noise_law": "gaussian", "noise_parameter": 1.0},
}


def test_a_plan_and_its_run_say_the_same_noise_of_the_clipped_fraction(tmp_path, capsys):
    job = load_job(
        overrides=[
            *("algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[4]", "algorithm.rounds=2"),
            *("dp-sgd.clipped-fraction-share=0.04", "parties.count=3", "privacy.epsilon=8"),
        ]
    )
    steps = plan(job).dp_sgd
    assert steps.gradient_multiplier / steps.noise_multiplier == pytest.approx(0.96**-0.5)
    result = simulate(job, out=tmp_path / "r")
    told = result.summary.clipped_fraction
    assert told.deviation == pytest.approx(steps.clipped_fraction_deviation)
    # A deployment's server does not know what its parties came to; the noise is theirs too.
    print_result(replace(result, summary=result.summary.with_fields(dp_sgd=None)), verbose=True)
    assert "in every step" in " ".join(capsys.readouterr().out.split())


def test_a_long_ledger_shows_its_last_entries_and_says_how_many_there_are(capsys) -> None:
    entry = LedgerEntry(
        run_id="r",
        dataset="d",
        party="server",
        index=1,
        event=Approximate(event=GaussianEvent(mu=1.0), delta=1e-20),
        facts={"unit": "record", **GAUSSIAN},
    )
    recorded = tuple(
        RecordedEntry(
            reservation_id=index,
            entry=replace(entry, index=index),
            state=EntryState.COMMITTED,
            reserved_at="",
            outcome={"survivors": 3},
        )
        for index in range(1, 1001)
    )
    print_ledger(LedgerContent(datasets=(), entries=recorded))
    shown = capsys.readouterr().out
    assert "The last 200 of 1000 entries; --json shows all of them." in shown
    assert " 1000 " in shown
    assert " gaussian  0.5 " in shown
    assert " 800 " not in shown


def test_a_plan_tells_the_hours_of_a_stated_step(capsys) -> None:
    job = load_job(
        overrides=[
            "algorithm.kind=distributed-dp-sgd", "model.kind=mlp", "parties.count=10",
            "parties.min-records=100", "dp-sgd.sampling-rate=0.1", "privacy.epsilon=8",
            "dp-sgd.local-steps=20", "algorithm.rounds=10",
        ]
    )  # fmt: skip
    told = plan(job, seconds_a_step=4.5).distributed
    assert told is not None
    assert (told.steps, told.seconds_a_step, told.hours) == (200, 4.5, 0.25)
    print_document(PAGES["plan"](plan(job, seconds_a_step=36.0)))
    shown = " ".join(capsys.readouterr().out.split())
    assert "about 2 h, at 36 s per step; T <= 150 is advised there" in shown
    with pytest.raises(ValueError, match="seconds_a_step > 0"):
        plan(job, seconds_a_step=0.0)


def test_a_budget_is_shown_with_what_is_left_rounded_down(capsys) -> None:
    budget = replace(ADULT, name="[/b] adult")  # a name is no markup
    third, none = SpentByBlock().add(Pure(epsilon=1 / 3), ()), Pure(epsilon=0.0)
    totals = BudgetAccount(budget=budget, charged=third, held={"r2": RunHold(((none, 4),), ())})
    print_ledger(LedgerContent(datasets=(totals,), entries=()))
    shown = " ".join(capsys.readouterr().out.split())
    assert "[/b] adult: 1 release, spent ε = 0.3334 of ε = 1 at δ = 0, per record; " in shown
    assert "neighbours differ by replacing one record; left ε = 0.6666" in shown
    assert "r2 holds 4 releases to come" in shown


def test_a_ledger_says_where_no_bound_is_proved(tmp_path, capsys):
    given = ["privacy.noise=laplace-l1", "algorithm.rounds=2", "parties.count=5"]
    print_ledger(read_ledger(str(simulate(load_job(overrides=given), out=tmp_path / "r").folder)))
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("per record, charged for the noise of 3 honest parties (1 more") == 1
    whole = shown[shown.index("against the server and all other parties: ") :]
    assert "no bound is proved (ε = ∞)" in whole


def test_a_ledger_says_what_a_run_s_epsilon_rests_on(tmp_path, capsys):
    given = ["algorithm.kind=output-perturbation", "algorithm.rounds=1", "parties.count=5"]
    print_ledger(read_ledger(str(simulate(load_job(overrides=given), out=tmp_path / "r").folder)))
    assert capsys.readouterr().out.count(f"assuming: {SOLVER_CONVERGENCE}") == 1


BOARD = {
    "round": 3,
    "stage": "vectors",
    "parties": [
        {"name": "north", "state": "masked", "reason": ""},
        {"name": "south", "state": "declined", "reason": "clock-skew"},
    ],
}
NOW = DeploymentStatus(
    address="fl.example.org:9092",
    deployment_id="12345 67890",
    parties={"north": True, "south": False},
    runs=(
        RunStatus(name="first", state="complete"),
        RunStatus(name="second", state="running", party_states=BOARD),
        RunStatus(name="third", state="queued", notes=("a note",)),
    ),
)


def test_status_in_short_says_who_is_missing_what_runs_waits_and_ended():
    assert NOW.list_lines() == [
        "Parties      north online, south OFFLINE",
        "Running      second: running, round 3, vectors: north masked, south declined",
        "             (clock-skew), waits for south",
        "Queued       third; a note",
        "Ended        first: complete",
    ]
    many = replace(NOW, parties={f"p{at}": at != 3 for at in range(40)}, duplicates=("p1",))
    assert many.list_lines()[:2] == [
        "Parties      39 of 40 online; OFFLINE: p3; p1 attends twice (was its key",
        "             copied?)",
    ]
    runs = tuple(RunStatus(name=f"run {at}", state="running") for at in range(40))
    assert len(replace(NOW, runs=runs).list_lines()) <= 15
    assert replace(NOW, runs=()).list_lines()[1:] == ["Running      none", "Queued       none"]


def test_lines_say_who_attends_and_where_each_stands():
    assert list(NOW.format_lines()) == [
        "Deployment at fl.example.org:9092, id 12345 67890",
        "  north: online",
        "  south: offline",
        "first: complete",
        "second: running, round 3, vectors: north masked, south declined (clock-skew)",
        "third: queued",
        "  a note",
    ]


def drawn(what):
    console = Console(file=io.StringIO(), width=100)
    console.print(what)
    return console.file.getvalue()


def test_the_table_has_a_row_for_every_party_and_run():
    lines = drawn(NOW.build_table()).splitlines()
    row = {
        name: next(line for line in lines if line.startswith(name)) for name in ("north", "south")
    }
    assert ("online" in row["north"], "masked" in row["north"]) == (True, True)
    assert ("offline" in row["south"], "clock-skew" in row["south"]) == (True, True)
    assert any("second" in line and "3" in line and "vectors" in line for line in lines)
    assert "north" in drawn(replace(NOW, runs=()).build_table())


@pytest.mark.parametrize("terminal", [True, False])
def test_watching_goes_on_where_the_server_is_away_and_ends_by_an_interrupt(
    monkeypatch, capsys, terminal
):
    looks = iter([NOW, ProcessError("Cannot reach the server."), NOW, NOW])
    left = itertools.count(3, -1)

    def look():
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return found

    def sleep(_seconds):
        if not next(left):
            raise KeyboardInterrupt

    monkeypatch.setattr(deployment_status, "time", SimpleNamespace(sleep=sleep))
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
    monkeypatch.setattr(deployment_status, "Screen", lambda **_: console)
    with pytest.raises(KeyboardInterrupt):
        watch_status(look, connection_error=ProcessError)
    shown = console.file.getvalue() if terminal else capsys.readouterr().out
    assert "Cannot reach the server." in shown
    # Without a terminal what is unchanged is not said again.
    assert terminal or shown.count("third: queued") == 2


ROOT = Path(parley.__file__).parent
LONG = "20261125-150519-gradient-perturbation-02b8-fbcdec344dd242cf"


@pytest.mark.parametrize("width", [20, 60, 80])
def test_a_table_goes_on_in_the_next_line_and_cuts_nothing(width, capsys):
    table = build_plain_table("run", "round", left=1)
    table.add_row(LONG, "3")
    Console(width=width).print(table)
    shown = capsys.readouterr().out
    assert "…" not in shown
    cells = [line[: shown.index("round")].strip() for line in shown.splitlines()[1:]]
    assert LONG in "".join(cell.removesuffix("3").strip() for cell in cells)


@pytest.mark.parametrize("width", ["60", "80"])
def test_what_is_there_to_be_copied_is_whole(width, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("COLUMNS", width)
    folder = tmp_path / LONG
    job = load_job(overrides=["algorithm.rounds=1"])
    print_result(simulate(job, out=folder), verbose=True)
    content = read_ledger(str(folder))
    print_ledger(content)
    shown = capsys.readouterr().out
    assert "…" not in " ".join(shown.split()).replace("`parley run … ", "")  # what was typed before
    assert f"run folder  {folder}" in shown.splitlines()
    assert content.entries[0].entry.run_id in shown.splitlines()


def test_every_table_of_the_terminal_is_made_in_one_place():
    made = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if "from rich.table import Table" in (text := path.read_text()) and " Table(" in text
    ]
    assert made == ["terminal/rich_output.py"]
