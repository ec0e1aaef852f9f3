"""What a server's operator can watch from outside: /metrics (Prometheus) and /healthz, over HTTP.

On this machine alone (127.0.0.1), and only where the operator asks for it: who scrapes from
elsewhere goes through a tunnel or a proxy of the operator's. Every figure is one that the protocol
shows the server anyway: who attends, rounds, seconds, bytes, classes of reason, what is charged.
None is computed from a record, and no sum, model or party's answer is in any of them.

Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats/.

    >>> print(exposition([Family("gauge", "parties", "Parties.", [({}, 3)])]), end="")
    # HELP parley_parties Parties.
    # TYPE parley_parties gauge
    parley_parties 3
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self

from parley.client.contract.plan import ReleasePlan
from parley.deploy.events import Event, Say
from parley.deploy.processes import ProcessError
from parley.deploy.stream.caller import parley_version
from parley.deploy.stream.port import Port
from parley.deploy.stream.queue import Queue
from parley.privacy.accounting.rounding import as_written, shown_up
from parley.server.jobs.job import Job
from parley.server.records.plain_json import json_text
from parley.server.records.round_line import RoundLine

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_AGAINST = "against whom, its summary says."
_ANSWERS_S = 2.0
_READS_S = 5.0

_Samples = Sequence[tuple[Mapping[str, str], object]]
"""(labels, value) pairs."""


class Family(NamedTuple):
    """A metric: gauge or counter, its name after `parley_`, what it is, and its samples."""

    kind: str
    name: str
    help: str
    samples: _Samples


def exposition(families: Iterable[Family]) -> str:
    """The families in Prometheus' text format."""
    lines = []
    for kind, name, said, samples in families:
        lines += [f"# HELP parley_{name} {said}", f"# TYPE parley_{name} {kind}"]
        for labels, value in samples:
            inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"parley_{name}{f'{{{inner}}}' if inner else ''} {value}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Monitor:
    """Counts what happens at a server; an `Observer` of its runs. `say` hears of every round."""

    def __init__(self, port: Port, queue: Queue, *, say: Say) -> None:
        self._port, self._queue, self._say = port, queue, say
        self._lock = threading.Lock()
        self._totals: Counter[str] = Counter()
        self._seconds: dict[int, float] = {}
        self._refused: Counter[str] = Counter()
        self._run, self._round, self._rounds = "", 0, 0
        self._plan: ReleasePlan | None = None
        self._job: Job | None = None
        # What the run that was conducted last has spent, and may: a sample a unit.
        self._spent: _Samples = []
        self._budget: _Samples = []

    def started(self, job: Job, plan: ReleasePlan, folder: Path, done: int) -> None:
        """A run begins, or goes on."""
        with self._lock:
            self._run, self._round, self._rounds = folder.name, done, job.rounds
            self._plan, self._job, self._spent, self._budget = plan, job, [], []

    def round_done(self, line: RoundLine) -> None:
        """A round was committed."""
        with self._lock:
            self._round = line.round
            self._totals["rounds"] += 1
            self._totals["up"] += line.bytes_up
            self._totals["down"] += line.bytes_down
            self._refused.update(line.reasons)
            for number, seconds in enumerate(line.stage_seconds, start=1):
                self._seconds[number] = self._seconds.get(number, 0.0) + seconds
            self._account(line)
        self._say(
            Event(
                "round-committed",
                f"{self._run}: round {line.round} of {self._rounds}.",
                detail=True,
                run=self._run,
                round=line.round,
                rounds=self._rounds,
                answered=line.parties.answered,
                asked=line.parties.asked,
                seconds=round(line.seconds, 3),
            )
        )

    def _account(self, line: RoundLine) -> None:
        if self._plan is None or self._job is None:
            return
        spent, budget = [], []
        of_each = zip(line.guarantees, self._plan.guarantees, self._job.budgets, strict=True)
        for account, of, asked in of_each:
            labels = {
                "run": self._run,
                "unit": str(of.unit),
                "neighbouring": str(of.neighbouring),
                "delta": shown_up(account.delta, 3),
            }
            spent.append((labels, shown_up(account.epsilon_charged).replace("∞", "+Inf")))
            budget.append((labels, as_written(asked.epsilon).replace("∞", "+Inf")))
        self._spent, self._budget = spent, budget

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether the port answers parties now; who attends and what runs."""
        turned = threading.Event()
        self._port.post(turned.set)
        well = turned.wait(_ANSWERS_S)
        online = self._port.attendance.online()
        return well, {
            "status": "ok" if well else "the port does not answer",
            "parties": len(self._port.deployment.parties),
            "online": len(online),
            "run": self._run,
            "round": self._round,
        }

    def families(self) -> list[Family]:
        """All metrics, as they are now."""
        online, parties = self._port.attendance.online(), self._port.deployment.parties
        states = Counter(run.state for run in self._queue.runs())
        attends = [({"party": one.name}, int(i in online)) for i, one in enumerate(parties)]
        with self._lock:
            of_run = [{"run": self._run}] if self._run else []
            now, planned = ([(of, n) for of in of_run] for n in (self._round, self._rounds))
            exchanges = sorted(self._seconds.items())
            seconds = [({"exchange": str(n)}, f"{took:.6f}") for n, took in exchanges]
            refused = [({"reason": why}, count) for why, count in sorted(self._refused.items())]
            moved = [({"direction": way}, self._totals[way]) for way in ("up", "down")]
            total, spent, budget = self._totals["rounds"], self._spent, self._budget
        by_state = [({"state": state}, count) for state, count in sorted(states.items())]
        gauge, counter = "gauge", "counter"
        return [
            Family(gauge, "info", "The server.", [({"version": parley_version()}, 1)]),
            Family(gauge, "parties", "Parties of the roster.", [({}, len(parties))]),
            Family(gauge, "party_online", "Whether a party attends.", attends),
            Family(gauge, "runs", "Runs in the server's folder, by state.", by_state),
            Family(gauge, "round", "Last committed round of the run that began last.", now),
            Family(gauge, "rounds_planned", "Rounds of that run.", planned),
            Family(
                gauge, "run_epsilon_spent", f"Epsilon charged by it, rounded up; {_AGAINST}", spent
            ),
            Family(
                gauge, "run_epsilon_budget", f"Epsilon that its job asks for; {_AGAINST}", budget
            ),
            Family(
                counter, "rounds_total", "Rounds committed since the server started.", [({}, total)]
            ),
            Family(
                counter,
                "exchange_seconds_total",
                "Seconds in a round's exchanges, by order.",
                seconds,
            ),
            Family(counter, "bytes_total", "Bytes of all rounds' frames, of all parties.", moved),
            Family(counter, "refusals_total", "Parties that declined a round, by reason.", refused),
        ]

    def page(self, path: str) -> tuple[HTTPStatus, str, str] | None:
        """Status, type and text of a page; None where there is none."""
        if path == "/metrics":
            return HTTPStatus.OK, _TEXT, exposition(self.families())
        if path == "/healthz":
            well, said = self.health()
            status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
            return status, "application/json", json_text(said) + "\n"
        return None


class Pages:
    """The two pages of a monitor, served on a port of this machine between `with` and its end.

    Attributes:
        port: 0 for a free one before it is open.
    """

    def __init__(self, monitor: Monitor, *, port: int) -> None:
        self._monitor, self.port = monitor, port

    def __enter__(self) -> Self:
        """Opens the port; ProcessError where somebody else listens there."""
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self._monitor))
        except OSError as error:
            raise ProcessError(
                f"Cannot listen on 127.0.0.1:{self.port}: {error.strerror}. Choose another port "
                "for what watches this server: --monitor PORT."
            ) from error
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(monitor: Monitor) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """GET of a page that there is; nothing of a request is read but its head."""

        timeout = _READS_S
        server_version, sys_version = "parley", ""

        def do_GET(self) -> None:
            page = monitor.page(self.path)
            if page is None:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            status, kind, text = page
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: who scrapes every few seconds is not for a log."""

    return Handler
