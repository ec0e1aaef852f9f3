"""Who reads a folder that came from somebody else connects to nobody: "offline" opens no socket."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from parley.certificate.issuance import issue_certificate
from parley.certificate.verification import verify_certificate
from parley.cli import app
from parley.server.jobs.job_file import load_job
from parley.server.records.run_folder import RunFolderError, render_run_job
from parley.simulations.engine.fast_engine import simulate

QUICK = ["parties.count=3", "algorithm.rounds=2", "secure-aggregation.masked-check=false"]
# Every command that reads a run's folder, a job or a certificate.
COMMANDS = [
    "ledger show RUN",
    "ledger verify RUN",
    "ledger free RUN run",
    "ledger raise RUN breast-cancer --epsilon 9 --reason why",
    "certificate RUN --key KEY --out new.json",
    "certificate verify FILE",
    "certificate verify FILE --run RUN",
    "report RUN",
    "compare RUN RUN --out page.html",
    "plan RUN/job.toml",
    "show RUN",
    "run RUN/job.toml --print-job",
]
SCRIPT = """
import json, os, sys

opened = []

def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        opened.append(f"{event} {arguments[-1]!r}")

sys.addaudithook(hook)
from parley.cli import app
said = {}
for words in json.loads(sys.argv[1]):
    opened.clear()
    try:
        app(words, standalone_mode=False)
        outcome = ""
    except BaseException as error:
        outcome = f"{type(error).__name__}: {error}"
    said[" ".join(words)] = [outcome, *opened]
print("\\n" + json.dumps(said))
"""


@pytest.fixture
def database():
    """Something that listens as PostgreSQL would, and what came to it."""
    came = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(5)
                    came.append(connection.recv(1024))

        threading.Thread(target=serve, daemon=True).start()
        yield f"postgresql://me@127.0.0.1:{listening.getsockname()[1]}/db", came
        listening.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def received(tmp_path, database):
    """A run's folder whose job names that database, and a certificate that fits it."""
    url, _ = database
    run = tmp_path / "run"
    simulate(load_job(overrides=QUICK), out=run)
    named = load_job(run / "job.toml", overrides=[f"privacy.ledger={url}"])
    (run / "job.toml").write_text(render_run_job(named))
    certificate = issue_certificate(run, bytes(range(32)), ledger=str(run / "ledger.sqlite"))
    (tmp_path / "certificate.json").write_text(certificate.to_text())
    return run


def test_nothing_that_reads_a_received_folder_follows_the_url_in_it(received, database, tmp_path):
    places = {"RUN": received, "FILE": tmp_path / "certificate.json", "KEY": tmp_path / "key"}

    def words(command):
        for name, place in places.items():
            command = command.replace(name, str(place))
        return command.split()

    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, json.dumps([words(each) for each in COMMANDS])],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PGPASSWORD": "s3cret",
            "PGCONNECT_TIMEOUT": "5",
        },
        check=True,
    )
    _, came = database
    assert came == []
    said = json.loads(done.stdout.splitlines()[-1])
    outcomes = {" ".join(words(each)): each for each in COMMANDS}
    assert {outcomes[each]: rest for each, (_, *rest) in said.items() if rest} == {}
    refused = [outcomes[each] for each, (outcome, *_) in said.items() if outcome]
    assert refused == [each for each in COMMANDS if each.startswith("ledger")] + [
        "certificate RUN --key KEY --out new.json",
        "certificate verify FILE --run RUN",
    ]
    assert all(
        each.startswith("RunFolderError: Expected a ledger in a file")
        for each, *_ in said.values()
        if each
    )


def test_who_names_the_ledger_has_it_read(received, tmp_path, capsys):
    ledger, file = received / "ledger.sqlite", tmp_path / "certificate.json"
    with pytest.raises(RunFolderError, match="--ledger"):
        verify_certificate(file, run=received)
    confirmed = verify_certificate(file, run=received, ledger=str(ledger)).confirmed
    assert any("the ledger contains" in sentence for sentence in confirmed)
    app(["ledger", "verify", str(received), "--ledger", str(ledger)], standalone_mode=False)
    assert "2 entries" in capsys.readouterr().out
    app(["plan", str(received / "job.toml"), "-v"], standalone_mode=False)
    assert "planning opens no connection" in " ".join(capsys.readouterr().out.split())
