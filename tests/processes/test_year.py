"""A year of a consortium: real processes, weekly jobs and queries, and what happens to ledgers.

Four hospitals share tables that grow. In the year one of them is replaced by one that brings a
ledger from before 1.0, keys are rotated, certificates renewed, the server moves, two folders are
restored from copies, and the budget is raised once. At the end every ledger verifies, no record has
spent more than its budget, recounted here from the entries alone, and every certificate verifies.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import sqlite3
import tarfile
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import tomli_w
from commands import invoked

from parley.deploy.child_processes import find_free_ports

FIXTURES = Path(__file__).parents[1] / "fixtures"
HOSPITALS = ("north", "south", "east", "west")
SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100] }
glucose = { kind = "numeric", range = [40, 240] }
sex = { kind = "categorical", categories = ["f", "m"] }
outcome = { kind = "label", positive = ["yes"], negative = ["no"] }
"""
POLICY = """
[data.ward]
path = "ward.csv"
schema = "ward.schema.toml"
epsilon = {epsilon}
delta = 1e-5
"""
SESSION = """
[session]
dataset = "ward"
schema = "{schema}"
epsilon = 1.0
delta = 1e-5
law = "gaussian"
"""
FIRST_ROWS, ROWS_A_WEEK = 150, 4
FIRST_BUDGET, RAISED_BUDGET = 2.0, 3.0
JOB = (
    "data.source=ward",
    "parties.min-records=100",
    "privacy.epsilon=0.1",
    "run.stage-timeout=60",
)
WORK = (
    ("submit", "algorithm.kind=gradient-perturbation", "algorithm.rounds=2"),
    ("query", "SELECT sex, COUNT(*) FROM ward GROUP BY sex", "0.05"),
    ("submit", "algorithm.kind=marginals", "model.kind=table"),
    ("query", "SELECT AVG(age) FROM ward WHERE glucose > 120", "0.05"),
)
"""What a week asks, in turn: jobs with their own keys, queries with their price."""


class Consortium:
    """The folders of a deployment, each on what stands for its own machine, and its processes."""

    def __init__(self, root: Path, parley) -> None:
        self.root, self.parley, self.made = root, parley, root / "made"
        self.names, self.left, self.runs = list(HOSPITALS), list[Path](), list[str]()
        self.brought = dict[Path, list[dict]]()
        self.server, self.week, self.budget = root / "server", 0, FIRST_BUDGET
        (self.port,) = find_free_ports(1)
        words = [word for name in HOSPITALS for word in ("--party", name)]
        self.operate(
            "deploy", "init", self.made, "--host", "127.0.0.1", "--port", self.port, *words
        )
        shutil.move(self.made / "server", self.server)
        (self.made / "server").symlink_to(self.server)  # to which the operator sends new files
        for name in HOSPITALS:
            self.furnish(name)
        (root / "ward.schema.toml").write_text(SCHEMA)
        (root / "queries.toml").write_text(SESSION.format(schema=root / "ward.schema.toml"))

    def home(self, name: str) -> Path:
        return self.made / "parties" / name

    def operate(self, *words, expect: int = 0) -> str:
        done = invoked(*words)
        assert done.exit_code == expect, (words, done.output)
        return done.output

    def furnish(self, name: str) -> None:
        """Give a hospital its first records, the schema and a policy."""
        (self.home(name) / "ward.csv").write_text("age,glucose,sex,outcome\n")
        self.append_rows(name, FIRST_ROWS)
        (self.home(name) / "ward.schema.toml").write_text(SCHEMA)
        with (self.home(name) / "party.toml").open("a") as file:
            file.write(POLICY.format(epsilon=self.budget))

    def append_rows(self, name: str, count: int) -> None:
        rng = random.Random(f"{name} {self.week}")
        with (self.home(name) / "ward.csv").open("a") as file:
            for _ in range(count):
                age, glucose = rng.randint(20, 90), rng.randint(60, 200)
                sick = "yes" if glucose + rng.gauss(0, 15) > 120 else "no"
                file.write(f"{age},{glucose},{rng.choice('fm')},{sick}\n")

    def start(self) -> None:
        """Start the server and all parties, and wait until everybody is online."""
        server = self.parley.serve_folder(self.server)
        for name in self.names:
            self.parley.start("party", self.home(name))
        self.parley.until(server, f"({len(self.names)} of {len(self.names)})")

    def stop(self) -> None:
        assert set(self.parley.end()) <= {0, 130}
        self.parley.running.clear()

    def live_a_week(self) -> None:
        for name in self.names:
            self.append_rows(name, ROWS_A_WEEK)
        kind, *words = WORK[self.week % len(WORK)]
        if kind == "query":
            select, price = words
            self.operate(
                *("query", select, "--epsilon", price, "--session", self.root / "queries.toml"),
                *("--server", self.server),
            )
        else:
            sets = [*JOB, *words, f"parties.count={len(self.names)}"]
            if self.budget != FIRST_BUDGET:
                sets += [f"privacy.dataset-epsilon={self.budget}"]
            sets += [f"data.schema={self.root / 'ward.schema.toml'}"]
            given = [word for each in sets for word in ("--set", each)]
            said = json.loads(
                self.operate("submit", "--to", self.server, "--json", "-q", *given).splitlines()[-1]
            )
            assert said["status"] == "complete", said
            self.runs.append(self.newest_run().name)
        self.week += 1

    def newest_run(self) -> Path:
        return max((self.server / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)

    # What a year brings, between two weeks, while all processes are stopped.

    def replace_a_party(self) -> None:
        """West leaves with its ledger, which stays; harbour joins with other patients."""
        shutil.copytree(self.home("west"), self.root / "west")
        self.operate("deploy", "remove-party", self.made, "west")
        self.operate("deploy", "add-party", self.made, "harbour")
        self.left.append(self.root / "west" / "ledger.sqlite")
        self.names[self.names.index("west")] = "harbour"
        self.furnish("harbour")
        self.bring_an_old_ledger(self.home("harbour") / "ledger.sqlite")

    def bring_an_old_ledger(self, ledger: Path) -> None:
        """Upgrade a ledger from before 1.0, which charged another data set, for a party."""
        with tarfile.open(FIXTURES / "before-1.0" / "fixtures.tar.xz") as packed:
            packed.extractall(self.root / "old", filter="data")
        for path in (self.root / "old" / "ledgers").glob("shared.sqlite*"):
            shutil.copy(path, ledger.with_name(path.name.replace("shared", "ledger")))
        before = self.show_accounts(ledger)
        self.operate("ledger", "upgrade", ledger)
        assert self.show_accounts(ledger) == before
        self.brought[ledger] = before

    def show_accounts(self, ledger: Path) -> list[dict]:
        shown = json.loads(self.operate("ledger", "show", ledger, "--json"))
        return [each for each in shown["datasets"] if each["budget"]["name"] != "ward"]

    def rotate_keys(self) -> None:
        self.operate("deploy", "rotate", self.made, "north")

    def move_the_server(self) -> None:
        """To another machine, with another port; its certificate is renewed for it."""
        moved = self.root / "other-machine" / "server"
        moved.parent.mkdir()
        (self.port,) = find_free_ports(1)
        shutil.move(self.server, moved)
        self.server = moved
        (self.made / "server").unlink()
        (self.made / "server").symlink_to(moved)
        self.operate("deploy", "renew", self.made, "--host", "127.0.0.1", "--host", "localhost")
        settings = moved / "server.toml"
        settings.write_text(
            tomli_w.dumps(tomllib.loads(settings.read_text()) | {"port": self.port})
        )
        for folder in (moved, *(self.home(name) for name in self.names)):
            roster = folder / "deployment.toml"
            text = roster.read_text()
            address = tomllib.loads(text)["server"]
            roster.write_text(text.replace(address, f"127.0.0.1:{self.port}"))

    def lose_a_party(self) -> None:
        """South's disk is lost; the copy of last night is put on another one."""
        copy = self.root / "south-copy"
        shutil.copytree(self.home("south"), copy)
        shutil.rmtree(self.home("south"))
        shutil.move(copy, self.home("south"))
        self.operate("ledger", "verify", self.home("south") / "ledger.sqlite")

    def keep_an_old_ledger(self) -> None:
        shutil.copy(self.home("east") / "ledger.sqlite", self.root / "old.sqlite")

    def put_an_old_ledger_back(self) -> None:
        """East restores the wrong copy of its ledger, is told so, and puts the newer back."""
        ledger = self.home("east") / "ledger.sqlite"
        shutil.copy(ledger, self.root / "new.sqlite")
        shutil.copy(self.root / "old.sqlite", ledger)
        checked = self.operate("party", self.home("east"), "--check", expect=1)
        assert "NOT ledger" in checked
        shutil.copy(self.root / "new.sqlite", ledger)
        checked = self.operate("party", self.home("east"), "--check", expect=1)  # no server yet
        assert "ok  ledger" in checked

    def raise_the_budget(self) -> None:
        self.budget = RAISED_BUDGET
        for name in self.names:
            home = self.home(name)
            self.operate(
                *("ledger", "raise", home / "ledger.sqlite", "ward", "--epsilon", RAISED_BUDGET),
                *("--reason", "ethics board, second year"),
            )
            policy = home / "party.toml"
            policy.write_text(
                policy.read_text().replace(f"epsilon = {FIRST_BUDGET}", f"epsilon = {self.budget}")
            )


EVENTS = (
    Consortium.keep_an_old_ledger,
    Consortium.replace_a_party,
    Consortium.rotate_keys,
    Consortium.lose_a_party,
    Consortium.move_the_server,
    Consortium.put_an_old_ledger_back,
    Consortium.raise_the_budget,
)


@pytest.mark.parametrize(
    ("weeks", "events_at_once"),
    [
        pytest.param(4, 4, id="a short year"),
        pytest.param(
            52, 1, id="a whole year", marks=(pytest.mark.heavy, pytest.mark.timeout(1800))
        ),
    ],
)
def test_after_a_year_every_ledger_holds_what_was_spent(
    parley, tmp_path, weeks, events_at_once
) -> None:
    consortium = Consortium(tmp_path, parley)
    stops = [EVENTS[at : at + events_at_once] for at in range(0, len(EVENTS), events_at_once)]
    weeks_between = weeks // (len(stops) + 1)
    consortium.start()
    for week in range(weeks):
        if week and week % weeks_between == 0 and stops:
            consortium.stop()
            for event in stops.pop(0):
                event(consortium)
            consortium.start()
        consortium.live_a_week()
    consortium.stop()
    assert not stops
    ledgers = {name: consortium.home(name) / "ledger.sqlite" for name in consortium.names} | {
        f"left {number}": path for number, path in enumerate(consortium.left)
    }
    for path in ledgers.values():
        consortium.operate("ledger", "verify", path)
        shown = json.loads(consortium.operate("ledger", "show", path, "--json"))
        assert consortium.show_accounts(path) == consortium.brought.get(path, [])
        (account,) = [each for each in shown["datasets"] if each["budget"]["name"] == "ward"]
        spent, releases = recount(path)
        assert spent <= account["budget"]["epsilon"]
        assert spent == pytest.approx(account["epsilon"]["gaussian"], rel=1e-6)
        assert releases == account["releases"]
    for name in consortium.runs:
        run = consortium.server / "runs" / name
        consortium.operate("certificate", "issue", run, "--key", tmp_path / "signer.key")
        consortium.operate("certificate", "verify", run / "certificate.json", "--run", run)


def recount(path: Path) -> tuple[float, int]:
    """Return ε at the account's δ and the number of releases, from the ledger's rows alone.

    All releases were Gaussian, so their parameters add as squares. δ(ε) of their sum is that of
    Balle and Wang (2018), and ε is found by bisection.
    """
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT kind, reservation, body FROM parley_ledger_records WHERE dataset = 'ward'"
        ).fetchall()
        ((budget,),) = connection.execute(
            "SELECT budget FROM parley_ledger_accounts WHERE name = 'ward'"
        ).fetchall()
    returned = {number for kind, number, _ in rows if kind not in ("reserve", "commit", "hold")}
    events = [
        json.loads(body)["entry"]["event"]
        for kind, number, body in rows
        if kind == "reserve" and number not in returned
    ]
    counted = Counter[str]()
    squares = slack = 0.0
    for event in events:
        inner = event["event"] if event["kind"] == "approximate" else event
        assert inner["kind"] == "gaussian", event
        slack += event["delta"] if inner is not event else 0
        squares += inner["mu"] ** 2
        counted["releases"] += 1
    stated = json.loads(budget)
    assert slack <= stated["reserved_delta"]  # which the account sets aside for samplers
    mu, delta = math.sqrt(squares), stated["delta"] - stated["reserved_delta"]
    low, high = 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if find_delta(middle, mu) > delta else (low, middle)
    return high, counted["releases"]


def find_delta(epsilon: float, mu: float) -> float:
    def phi(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    return phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu)
