"""Whatever Parley 1.0 wrote is opened, verified and continued by this version.

`tests/fixtures/make_fixtures.py` made the archives with the commands of that version. They are
never edited or made again: if a test here fails, the code broke a promise of docs/stability.md.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import run_main
from ledgers import tamper

from parley.analytics.submitted_queries import parse_submission
from parley.deploy.child_processes import find_free_ports
from parley.deploy.party_check import check_items
from parley.deploy.process_errors import wait_until
from parley.deploy.stream.run_queue import QUERIES_FILE
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import NotALedger
from parley.safe_io.json_writing import format_json
from parley.server.jobs.job_file import load_job
from parley.server.records.run_folder_opening import load_run_job
from parley.server.records.run_reader import read_summary

HERE = Path(__file__).parent / "fixtures"
POSTGRES_URL = "PARLEY_TEST_POSTGRES_URL"
RUNS = ("linear", "pathak", "network", "distributed")


def unpack(version: str, folder: Path) -> Path:
    with tarfile.open(HERE / version / "fixtures.tar.xz") as tar:
        tar.extractall(folder, filter="tar")  # keeps the modes of private folders and keys
    return folder


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fixtures that are only read."""
    return unpack("1.0", tmp_path_factory.mktemp("stored"))


@pytest.fixture
def copied(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy to work with, as the current folder."""
    shutil.copytree(stored, tmp_path / "copied", symlinks=True)
    monkeypatch.chdir(tmp_path / "copied")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "copied"


def call(*arguments: object) -> str:
    status, out, error = run_main(*arguments)
    assert status == 0, out + error
    return out


def is_open(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def assert_includes(found: Any, expected: Any, where: str) -> None:
    """A later version may add keys; it changes and removes none."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            assert key in found, f"{where}.{key}"
            assert_includes(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for position, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_includes(one, other, f"{where}[{position}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9), where
    else:
        assert found == expected, where


@pytest.mark.parametrize("version", ["1.0", "before-1.0"])
def test_the_fixtures_are_never_edited(version: str) -> None:
    folder = HERE / version
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    digests = dict(reversed(line.split("  ")) for line in lines)
    assert {path.name for path in folder.iterdir()} == {*digests, "SHA256SUMS"}
    for name, digest in digests.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_every_ledger_of_1_0_is_verified_with_the_same_totals_and_written_to(copied: Path) -> None:
    expected = json.loads((copied / "ledgers.json").read_text())
    assert len(expected) >= 10
    for name, content in expected.items():
        assert "chain and totals intact" in call("ledger", "verify", name)
        assert_includes(json.loads(call("ledger", "show", name, "--json")), content, name)
        with Ledger.open(name) as ledger:
            head = ledger.get_head()
            for account in ledger.list_accounts():
                for run in account.held_counts:
                    ledger.end_hold(run)
                more = account.budget.epsilon + 1
                ledger.raise_budget(account.budget.key, epsilon=more, reason="a later version")
            assert ledger.verify(anchor=head) == []
            assert ledger.get_head().records > head.records or not ledger.list_accounts()


def test_every_run_folder_of_1_0_is_shown_predicted_with_and_certified(copied: Path) -> None:
    for name in RUNS:
        call("show", f"runs/{name}")
        summary = json.loads((copied / "runs" / name / "summary.json").read_text())
        read = read_summary(copied / "runs" / name)
        assert read is not None
        assert_includes(json.loads(format_json(read.to_json())), summary, name)
        call("report", f"runs/{name}")
        assert (copied / "runs" / name / "report.html").stat().st_size > 10_000
        call("predict", f"runs/{name}", "rows.csv", "--out", f"{name}.csv")
        with (
            open(f"{name}.csv", newline="") as found,
            open(f"predictions/{name}.csv", newline="") as due,
        ):
            rows = list(zip(csv.DictReader(found), csv.DictReader(due), strict=True))
        assert len(rows) == 12
        for row, expected in rows:
            for column, value in expected.items():
                if column.startswith("probability"):
                    assert float(row[column]) == pytest.approx(float(value), abs=1e-5)
                else:
                    assert row[column] == value
        said = call(
            "certificate", "verify", f"runs/{name}/certificate.json", "--run", f"runs/{name}"
        )
        assert "✗" not in said


def test_a_run_that_1_0_was_in_the_middle_of_is_resumed_within_its_budget(copied: Path) -> None:
    with Ledger.open("runs/interrupted/ledger.sqlite", read_only=True) as ledger:
        before = ledger.list_entries()
    assert 3 <= len(before) < 60
    call("run", "-q", "--resume", "runs/interrupted")
    with Ledger.open("runs/interrupted/ledger.sqlite", read_only=True) as ledger:
        assert ledger.verify() == []
        entries = ledger.list_entries()
        assert [each.entry.index for each in entries] == list(range(1, 61))
        assert [each.entry for each in entries[: len(before)]] == [each.entry for each in before]
        (account,) = ledger.list_accounts()
        assert account.epsilon <= account.budget.epsilon
    assert len((copied / "runs/interrupted/rounds.jsonl").read_text().splitlines()) == 60


def test_a_job_of_a_run_folder_lacks_no_key_of_its_version_but_later_ones(copied: Path) -> None:
    path = copied / "runs" / "linear" / "job.toml"
    text = path.read_text()
    assert load_run_job(path.parent) == load_job(path)
    # What a version without one of today's keys would have written.
    line = next(line for line in text.splitlines() if line.startswith("baseline = "))
    count = int(text.split()[6])
    older = text.replace(f"all {count} keys", f"all {count - 1} keys").replace(f"{line}\n", "")
    assert older != text
    path.write_text(older)
    assert load_run_job(path.parent) == load_job(path)


def test_party_folders_of_1_0_are_in_order_and_queries_of_its_operators_are_read(
    copied: Path,
) -> None:
    for party in ("north", "south"):
        items = {
            item.what: item
            for item in check_items(copied / "consortium" / "parties" / party)
            if item.what not in ("certificate and clock", "server")  # of the year 2026
        }
        assert {item.line for item in items.values() if item.status} == set()
        assert items["ledger"].said.endswith("5 releases, unchanged since they were written")
    (queries,) = (copied / "consortium" / "server" / "runs").rglob(QUERIES_FILE)
    assert [query.name for query in parse_submission(queries.read_text()).file.batches[0]]


def test_a_postgresql_ledger_of_1_0_is_restored_from_its_dump_and_verified(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = os.environ.get(POSTGRES_URL)
    if not url:
        pytest.skip(f"needs a PostgreSQL server, {POSTGRES_URL} is not set (see .ci/postgres.sh)")
    tamper(url, "DROP SCHEMA IF EXISTS parley_fixtures CASCADE")
    tamper(url, (copied / "ledgers" / "postgresql.sql").read_text())
    try:
        with Ledger.open(f"{url}?options=-csearch_path%3Dparley_fixtures") as ledger:
            assert ledger.verify() == []
            (account,) = ledger.list_accounts()
            assert account.budget.epsilon == 6
            assert account.held_counts
            for run in account.held_counts:
                ledger.end_hold(run)
            assert ledger.verify() == []
    finally:
        tamper(url, "DROP SCHEMA parley_fixtures CASCADE")


def test_a_ledger_from_before_1_0_is_upgraded_with_all_that_was_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = unpack("before-1.0", tmp_path)
    monkeypatch.chdir(folder)
    (name,) = expected = json.loads((folder / "ledgers.json").read_text())
    with pytest.raises(NotALedger, match="parley ledger upgrade"):
        Ledger.open(name)
    before = json.loads(call("ledger", "show", name, "--json"))
    said = call("ledger", "upgrade", name)
    assert "Upgraded and verified" in said
    assert json.loads(call("ledger", "show", name, "--json")) == before
    assert "intact" in call("ledger", "verify", name)
    assert "intact" in call("ledger", "verify", f"{name}.version-6")
    old, new = expected[name]["datasets"], before["datasets"]
    assert [each["epsilon"] for each in new] == [each["epsilon"] for each in old]
    assert [each["entry"]["event"] for each in before["entries"]] == [
        each["entry"]["event"] for each in expected[name]["entries"]
    ]
    # The account goes on: a job of today is charged to it.
    sets = ("algorithm.rounds=2", "privacy.epsilon=0.2", f"privacy.ledger={name}")
    total = "privacy.dataset-epsilon=6"
    call("run", "-q", *(part for each in (*sets, total) for part in ("--set", each)))
    with Ledger.open(name, read_only=True) as ledger:
        assert ledger.verify() == []
        (account,) = ledger.list_accounts()
        assert account.spent.releases > sum(each["releases"] for each in old)


@pytest.mark.heavy
def test_a_deployment_of_1_0_is_upgraded_and_goes_on(copied: Path) -> None:
    """Certificates are renewed first; ledgers, keys and state are those of 1.0."""
    home = copied / "consortium"
    call("deploy", "renew", home)
    (port,) = find_free_ports(1)
    settings = home / "server" / "server.toml"
    old = next(line for line in settings.read_text().splitlines() if line.startswith("port"))
    settings.write_text(settings.read_text().replace(old, f"port = {port}"))
    address = f"127.0.0.1:{port}"

    def start(*arguments: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "parley", *map(str, arguments)])

    processes = [start("server", home / "server")]
    wait_until(lambda: is_open(port), what="the server", timeout_s=120, poll_s=0.1)
    processes += [
        start("party", home / "parties" / name, "--server", address) for name in ("north", "south")
    ]
    job = ("data.source=patients", "data.schema=patients.schema.toml", "parties.count=2")
    try:
        sets = [part for each in (*job, "algorithm.rounds=3") for part in ("--set", each)]
        call("submit", "--to", home / "server", "-q", *sets)
        call("query", "queries.toml", "--server", home / "server")
    finally:
        for process in processes:
            process.send_signal(signal.SIGINT)
        for process in processes:
            process.wait(timeout=60)
    for party in ("north", "south"):
        with Ledger.open(home / "parties" / party / "ledger.sqlite", read_only=True) as ledger:
            assert ledger.verify() == []
            assert len({each.entry.run_id for each in ledger.list_entries()}) == 6
