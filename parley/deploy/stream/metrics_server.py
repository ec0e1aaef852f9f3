"""Serve a server's metrics (/metrics, for Prometheus) and health (/healthz) over HTTP.

The pages are only on this machine (127.0.0.1) and only if the administrator switches them on. To
scrape from another machine, the administrator adds a tunnel or a proxy. The protocol shows every
value to the server anyway: connected parties, rounds, seconds, bytes, reason classes, charges. No
value is computed from a record. No value contains a sum, a model or a party's answer.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from parley.client.contract.release_plan import ReleasePlan
from parley.deploy.event_log import Fact, LogEvent, Notifier
from parley.deploy.process_errors import ProcessError
from parley.deploy.stream.grpc_server import GrpcServer
from parley.deploy.stream.run_queue import RunQueue
from parley.local_http_server import LocalHttpServer
from parley.privacy.accounting.rounding import format_exact, format_rounded_up
from parley.safe_io.json_writing import format_json
from parley.safe_io.os_errors import describe_cause
from parley.server.jobs.job import Job
from parley.server.records.round_line import RoundLine
from parley.server.statements.guarantee_text import FIXED_RELEASES_NOTE
from parley.version import __version__

_AGAINST = "its summary names the adversary."
_ANSWERS_S = 2.0
_OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?", re.IGNORECASE)
"""Names of this machine. The port may be a tunnel's."""
_GUARANTEE = ("run", "unit", "neighbouring", "delta")


class Monitor:
    """Counts a server's events, as an `Observer` of its runs and a collector for Prometheus.

    `say` receives an event per round.
    """

    def __init__(self, port: GrpcServer, queue: RunQueue, *, say: Notifier) -> None:
        self._port, self._queue, self._say = port, queue, say
        self._lock = threading.Lock()
        self._totals: Counter[str] = Counter()
        self._seconds: dict[int, float] = {}
        self._refused: Counter[str] = Counter()
        self._run, self._round, self._rounds = "", 0, 0
        self._plan: ReleasePlan | None = None
        self._job: Job | None = None
        # What the latest run has spent and may spend, with one sample per unit.
        self._spent: list[tuple[list[str], float]] = []
        self._budget: list[tuple[list[str], float]] = []

    def started(self, job: Job, plan: ReleasePlan, folder: Path, done: int) -> None:
        """Note that a run starts or resumes."""
        with self._lock:
            self._run, self._round, self._rounds = folder.name, done, job.rounds
            self._plan, self._job, self._spent, self._budget = plan, job, [], []

    def round_done(self, line: RoundLine) -> None:
        """Count a committed round."""
        with self._lock:
            self._round = line.round
            self._totals["rounds"] += 1
            self._totals["up"] += line.bytes_up
            self._totals["down"] += line.bytes_down
            self._refused.update(line.reasons)
            for number, seconds in enumerate(line.stage_seconds, start=1):
                self._seconds[number] = self._seconds.get(number, 0.0) + seconds
            self._update_spent(line)
        said = f"{self._run}: round {line.round} of {self._rounds}."
        facts: dict[str, Fact] = {"run": self._run, "round": line.round, "rounds": self._rounds}
        facts |= {"answered": line.parties.answered, "asked": line.parties.asked}
        facts["seconds"] = round(line.seconds, 3)
        self._say(LogEvent("round-committed", said, detail=True, **facts))

    def _update_spent(self, line: RoundLine) -> None:
        if self._plan is None or self._job is None:
            return
        spent, budget = [], []
        of_each = zip(line.guarantees, self._plan.guarantees, self._job.budgets, strict=True)
        for account, of, asked in of_each:
            delta = format_rounded_up(account.delta, 3)
            labels = [self._run, str(of.unit), str(of.neighbouring), delta]
            spent.append((labels, _parse_number(format_rounded_up(account.epsilon_charged))))
            budget.append((labels, _parse_number(format_exact(asked.epsilon))))
        self._spent, self._budget = spent, budget

    def check_health(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the port responds now, and details: connected parties and the current
        run.
        """
        turned = threading.Event()
        self._port.post(turned.set)
        well = turned.wait(_ANSWERS_S)
        return well, {
            "status": "ok" if well else "the port does not respond",
            "parties": len(self._port.deployment.parties),
            "online": len(self._port.connections.list_online()),
            "run": self._run,
            "round": self._round,
        }

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with their current values."""
        online, parties = self._port.connections.list_online(), self._port.deployment.parties
        states = Counter(run.state for run in self._queue.list_runs())
        with self._lock:
            of_run = [[self._run]] if self._run else []
            now, planned = ([(of, n) for of in of_run] for n in (self._round, self._rounds))
            seconds = [([str(n)], took) for n, took in sorted(self._seconds.items())]
            refused = [([why], count) for why, count in sorted(self._refused.items())]
            moved = [([way], self._totals[way]) for way in ("up", "down")]
            total, spent, budget = self._totals["rounds"], self._spent, self._budget
        attends = [([one.name], i in online) for i, one in enumerate(parties)]
        by_state = [([state], count) for state, count in sorted(states.items())]
        yield _gauge("info", "The server.", [([__version__], 1)], "version")
        yield _gauge("parties", "Parties of the roster.", [([], len(parties))])
        yield _gauge("party_online", "Whether a party is connected.", attends, "party")
        yield _gauge("runs", "Runs in the server's folder, by state.", by_state, "state")
        yield _gauge("round", "Last committed round of the run that started last.", now, "run")
        yield _gauge("rounds_planned", "Rounds of that run.", planned, "run")
        said = f"Epsilon charged by that run so far, rounded up, {FIXED_RELEASES_NOTE}; {_AGAINST}"
        yield _gauge("run_epsilon_spent", said, spent, *_GUARANTEE)
        said = f"Epsilon that its job requests; {_AGAINST}"
        yield _gauge("run_epsilon_budget", said, budget, *_GUARANTEE)
        yield _counter("rounds", "Rounds committed since the server started.", [([], total)])
        said = "Seconds in a round's exchanges, by order."
        yield _counter("exchange_seconds", said, seconds, "exchange")
        said = "Bytes of the frames of all rounds and parties."
        yield _counter("bytes", said, moved, "direction")
        yield _counter("refusals", "Parties that declined a round, by reason.", refused, "reason")


def _build_family(
    kind: type[Any], name: str, text: str, samples: Sequence[tuple[list[str], float]], *labels: str
) -> Any:
    family = kind(f"parley_{name}", text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


_gauge = partial(_build_family, GaugeMetricFamily)
_counter = partial(_build_family, CounterMetricFamily)


def _parse_number(text: str) -> float:
    """Return the number in a displayed text, rounded as displayed."""
    return float(text.replace("∞", "inf"))


class MetricsServer:
    """The two pages of a monitor, on a local port inside a `with` block (0: any free port)."""

    def __init__(self, monitor: Monitor, *, port: int) -> None:
        self._monitor, self.port = monitor, port

    def __enter__(self) -> Self:
        """Open the port; raise ProcessError if it is in use."""
        try:
            self._server = LocalHttpServer(self.port, _build_handler(self._monitor))
        except OSError as error:
            raise ProcessError(
                f"Cannot listen on 127.0.0.1:{self.port}: {describe_cause(error)}. Choose another "
                "port for the monitor: --monitor PORT."
            ) from error
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _build_handler(monitor: Monitor) -> type[MetricsHandler]:
    class Handler(MetricsHandler):
        """Answers GET for the two pages. It reads only the head of a request."""

        server: LocalHttpServer

        registry = CollectorRegistry()
        registry.register(monitor)
        server_version, sys_version = "parley", ""

        def do_GET(self) -> None:  # noqa: N802 - so http.server calls it
            self.server.mark_answered(self.connection)
            host = ", ".join(self.headers.get_all("Host", []))
            if not _OWN_HOST.fullmatch(host):
                # A foreign host name that resolves to this machine: the caller is a page of another
                # site.
                self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            elif self.path == "/metrics":
                super().do_GET()
            elif self.path == "/healthz":
                well, said = monitor.check_health()
                self.send_response(HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(f"{format_json(said)}\n".encode())
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

    return Handler
