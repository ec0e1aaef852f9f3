"""docs/deployment.md, as it stands: its commands, its policy, the default job."""

from __future__ import annotations

import csv
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from in_process import InProcessTransport

from parley.cli import app
from parley.deploy.child_processes import find_free_ports
from parley.deploy.process_errors import wait_until
from parley.deploy.provisioning import make_deployment
from parley.server.jobs.job_file import load_job
from parley.server.records.run_folder import RunFolder
from parley.server.rounds.run_coordinator import coordinate

GUIDE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")
NAMES = ("north", "south", "east")


def blocks(text, kind=""):
    """The fenced blocks of that kind."""
    fenced = re.findall(r"^```(.*?)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [block for own, block in fenced if own == kind]


def commands(text):
    """The command lines of a text's plain blocks, in order."""
    lines = "".join(blocks(text)).splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("parley ")]


def steps():
    """The commands of the guide's numbered steps."""
    return commands(GUIDE[GUIDE.index("## 1.") : GUIDE.index("## When something goes wrong")])


POLICY = blocks(GUIDE, "toml")[0]


def records(path, seed):
    rng = random.Random(seed)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["age", "glucose", "sex", "outcome"])
        for _ in range(200):
            age, glucose = rng.randint(20, 90), rng.randint(60, 200)
            sick = "yes" if glucose + rng.gauss(0, 15) > 120 else "no"
            table.writerow([age, glucose, rng.choice("fm"), sick])


def furnish(homes):
    """What the guide leaves to the parties: records, one schema for all, the policy added."""
    schema = homes[0] / "diabetes.schema.toml"
    schema.write_text(schema.read_text().replace("\ndrafted = true\n", "\n"))  # the guide's editor
    for seed, home in enumerate(homes):
        records(home / "diabetes.csv", seed)
        if seed:
            shutil.copy(homes[0] / "diabetes.schema.toml", home)
        with (home / "party.toml").open("a") as file:
            file.write("\n" + POLICY)


def options(command, words):
    """Checks that a command of the guide and all its options exist."""
    node = command
    while hasattr(node, "commands"):
        node = node.commands[words.pop(0)]
        node = getattr(node, "loaded", node)
    known = {option for parameter in node.params for option in parameter.opts}
    given = {word for word in words if word.startswith("-")}
    assert given <= known, (node.name, given - known)


def test_every_command_that_the_guide_names_exists_with_its_options():
    named = commands(GUIDE) + [
        shlex.split(text) for text in re.findall(r"`(parley [^`…]*)`", GUIDE)
    ]
    assert len(named) > 15
    for line in named:
        if words := [word for word in line[1:] if word not in {">", "job.toml"}]:
            options(typer.main.get_command(app), words)


def test_the_guides_policy_accepts_the_guides_job(tmp_path):
    """In this process, without a network: policy, schema and job are what counts."""
    made = make_deployment(tmp_path / "made", hosts=["h.example"], parties=list(NAMES))
    homes = [tmp_path / "made" / "parties" / name for name in NAMES]
    records(homes[0] / "diabetes.csv", 0)
    (infer,) = [words for words in steps() if words[1:3] == ["schema", "infer"]]
    (tmp_path / "north").symlink_to(homes[0])
    run(infer, tmp_path)
    furnish(homes)
    (submit,) = [words for words in steps() if words[1] == "submit" and "--resume" not in words]
    sets = [word for word, before in zip(submit[1:], submit, strict=False) if before == "--set"]
    job = load_job(overrides=sets)
    folder = RunFolder.create(job, tmp_path / "run")
    summary = coordinate(job, transport=InProcessTransport(homes), deployment=made, folder=folder)
    assert (summary.status, summary.rounds_done) == ("complete", summary.rounds)
    assert not [home for home in homes if "refused" in (home / "party.log").read_text()]


def run(words, cwd, *, status=0, given=None):
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=cwd,
        input=given,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def says(log, words):
    """The log, once it has these words."""
    wait_until(lambda: words in log.read_text(), what=words, timeout_s=120)
    return log


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_the_guides_commands_work_as_they_stand(ground):
    """Word for word, but for host, port and RUN; `north` is a party's machine."""
    root = ground.run
    root.mkdir()
    (port,) = find_free_ports(1)
    running = []

    def start(words, until):
        log = root / f"{len(running)}.out"
        with log.open("w") as out:
            command = [sys.executable, "-m", *words]
            running.append(subprocess.Popen(command, cwd=root, stdout=out, stderr=out))
        return says(log, until)

    def said_by(words, name):
        return [word.replace("north", name) for word in words]

    try:
        for line in steps():
            words = [word.replace("fl.example.org", "127.0.0.1") for word in line]
            match words[1:]:
                case ["deploy", "init", *_]:
                    assert "site" not in run([*words, "--port", str(port)], root)
                    for name in NAMES:
                        shutil.move(root / "consortium" / "parties" / name, root / name)
                case ["deploy", "own-keys", _]:
                    run(words, root)
                    shutil.copy(root / "north/north.public.toml", root)  # the party sends it
                case ["deploy", "accept", *_]:
                    assert "north, and no other party" in run(words, root, given="y\n")
                    for name in NAMES:
                        shutil.copy(root / "consortium/server/deployment.toml", root / name)
                    shutil.copy(root / "consortium/parties/north/party.pem", root / "north")
                case ["schema", "infer", *_]:
                    records(root / "north" / "diabetes.csv", 0)
                    run(words, root)
                    furnish([root / name for name in NAMES])
                case ["party", _, "--check"]:
                    for name in NAMES:
                        said = run(said_by(words, name), root, status=1)
                        assert said.count("NOT ") == 1
                        assert "NOT server: Cannot reach" in said
                case ["server", _]:
                    server = start(words, "Listening on")
                case ["party", _]:
                    run([*words, "--check"], root)  # the server's items, too
                    for name in NAMES:
                        start(said_by(words, name), "ready for")
                    says(server, "(3 of 3)")
                case ["submit", "--resume", *_]:
                    (done,) = (root / "consortium/server/runs").iterdir()
                    again = [word.replace("RUN", done.name) for word in words]
                    assert "is complete" in run(again, root, status=2)
                case ["submit", *_]:
                    assert "declined" not in run(words, root)
                case ["status", _, "--watch"]:
                    start(words, ": complete")
                case ["status", *_]:
                    assert ": complete" in run(words, root)
                case ["stop", *_]:
                    run(words, root)
                case _:
                    pytest.fail(f"an unexpected command of the guide: {words}")
    finally:
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait(30)
