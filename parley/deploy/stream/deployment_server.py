"""Run a deployment's server: its port for parties and operators, and its runs, one at a time."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from parley.client.data.schema import Schema
from parley.deploy.deployment_folder_checks import ServerHome
from parley.deploy.event_log import Fact, LogEvent, Notifier
from parley.deploy.folder_lock import hold_folder
from parley.deploy.public_test_set import evaluate_public_test, load_test_set
from parley.deploy.stream.grpc_server import GrpcServer, StreamTransport
from parley.deploy.stream.metrics_server import MetricsServer, Monitor
from parley.deploy.stream.operator_service import OperatorService
from parley.deploy.stream.run_queue import QUERIES_FILE, QueryAnswerer, QueuedRun, RunQueue
from parley.safe_io.file_reading import read_text
from parley.safe_io.os_errors import describe_error
from parley.server.jobs.section_base import JobError
from parley.server.run_launcher import launch_run, open_run, record_error
from parley.server.statements.model_shortcoming import find_shortcoming

_log = logging.getLogger("parley.server")

# Seconds that a round waits for a party that restarts or reconnects, if the others are too few.
_AWAY_S = 30.0


class DeploymentServer:
    """A server, which is open while its `port` is; `run_next` executes one run.

    Args:
        say: Receives the log's events: connections, and the start and end of runs.
        away_s: Seconds to wait for a disconnected party.
        questions: Answers queries; None if the server answers none.

    Attributes:
        interrupted: Set once this process is asked to end. A `KeyboardInterrupt` of any other
            origin comes from the run and ends only the run.
    """

    def __init__(
        self,
        home: ServerHome,
        *,
        say: Notifier,
        away_s: float = _AWAY_S,
        questions: QueryAnswerer | None = None,
    ) -> None:
        self.interrupted = threading.Event()
        self._home, self._say, self._away_s = home, say, away_s
        self._questions = questions
        self._queue = RunQueue(home.folder / "runs")
        # The current run, so that only this one can be stopped, and whether it was stopped.
        self._lock = threading.Lock()
        self._now: tuple[str, StreamTransport] | None = None
        self._stopped = False
        self.port = GrpcServer(
            home.folder, home.deployment, listen=home.listen, port=home.port, say=say
        )
        desk = OperatorService(
            self._queue, home.deployment, self.port.connections, stop=self.stop, questions=questions
        )
        self.port.services.append(desk.build_service())
        self.monitor = Monitor(self.port, self._queue, say=say)

    def stop(self, name: str) -> None:
        """Stop this run between two of its commits. Do nothing if it is not the current run."""
        with self._lock:
            if self._now is not None and self._now[0] == name:
                self._stopped = True
                self._now[1].stop()

    def run_next(self) -> QueuedRun:
        """Wait for the next run in the queue and execute it to its end.

        Raises:
            KeyboardInterrupt: this process was interrupted; the run is resumed at the next start.
        """
        run = self._queue.take_next()
        transport = StreamTransport(self.port, away_s=self._away_s)
        try:
            self._say(LogEvent("run-began", f"{run.name} starts.", run=run.name, by=run.by))
            with self._lock:
                self._now, self._stopped = (run.name, transport), False
            state = self._run(run, transport)
        except KeyboardInterrupt:
            self._queue.put_back(run.name)
            raise
        finally:
            with self._lock:
                self._now = None
        self._queue.record_end(run.name, state)
        self._say(LogEvent("run-ended", f"{run.name}: {state}.", run=run.name, state=state))
        return replace(run, state=state)

    def _run(self, run: QueuedRun, transport: StreamTransport) -> str:
        """Execute a run and return how it ended."""
        path = self._home.folder / "runs" / run.name
        try:
            with record_error(lambda: path if path.is_dir() else None), self._convert_exits():
                if self._questions is not None and (path / QUERIES_FILE).exists():
                    self._questions.answer(path, home=self._home.folder, transport=transport)
                    return "complete"
                return self._run_job(path, transport)
        except KeyboardInterrupt:
            if self.interrupted.is_set():
                raise
            return "stopped"
        except Exception as error:
            # An error of a run must never end the server. Its cause is in error.json and the log.
            _log.error("%s failed: %s (details in its error.json)", run.name, describe_error(error))
            return "failed"

    def _run_job(self, path: Path, transport: StreamTransport) -> str:
        folder, job = open_run(path)
        test = load_test_set(job)
        if test is not None:  # so the model's file contains how to read its rows
            folder.save_schema(read_text(test.path))
        text = folder.schema  # compared with the parties' schemas
        schema = Schema.from_toml(text, source=str(path)).digest if text else ""
        roster, observer = self._home.deployment, self.monitor
        summary = launch_run(
            folder, job, transport=transport, deployment=roster, observer=observer, schema=schema
        )
        if test is not None:
            found = evaluate_public_test(path, job, test)
            weighted = bool(summary.class_weights)
            wrong = find_shortcoming(found.judgement, records="public records", weighted=weighted)
            verdict = f"{wrong}." if wrong else ""
            folder.write_summary(summary.with_fields(public_test=found, verdict=verdict))
        return summary.status

    @contextmanager
    def _convert_exits(self) -> Iterator[None]:
        """Convert exceptions of a run that are not an `Exception` to JobError.

        So `SystemExit` and the like end only the run. A stop or an interrupt is not converted.
        """
        try:
            yield
        except Exception:
            raise
        except BaseException as error:
            asked = self.interrupted.is_set() or self._stopped
            if asked and isinstance(error, KeyboardInterrupt):
                raise
            raise JobError(
                f"The run's code tried to end the server: it raised {type(error).__name__}: "
                f"{error}. Only the run ended."
            ) from error

    def handle_interrupt(self, _number: int, _frame: FrameType | None) -> NoReturn:
        """Handle a signal: end the run between two commits, and then the server."""
        # Some tools send it twice. The second signal must not cut off the orderly end.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.interrupted.set()
        raise KeyboardInterrupt


def serve(
    home: ServerHome, *, say: Notifier, monitor: int | None, questions: QueryAnswerer
) -> None:
    """Serve a deployment until it is interrupted. `monitor` is the port for monitoring, or None."""
    with ExitStack() as open_:
        open_.enter_context(hold_folder(home.folder, role="server", command="parley server"))
        serving = DeploymentServer(home, say=say, questions=questions)
        open_.enter_context(serving.port)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, serving.handle_interrupt)
        known = ", ".join(party.name for party in home.deployment.parties)
        facts: dict[str, Fact] = {"listen": home.listen, "port": home.port}
        facts |= {"parties": len(home.deployment.parties), "deployment": home.deployment.id}
        line = f"Listening on {home.listen}:{home.port} for {known}. The roster's id:\n"
        say(LogEvent("listening", f"{line}  {home.deployment.spoken}", detail=False, **facts))
        if monitor is not None:
            pages = open_.enter_context(MetricsServer(serving.monitor, port=monitor))
            where = f"http://127.0.0.1:{pages.port}"
            line = f"Monitor the server at {where}/metrics and {where}/healthz."
            say(LogEvent("monitored", line, at=where))
        while not serving.interrupted.is_set():  # code in a run may have caught the interrupt
            serving.run_next()
        raise KeyboardInterrupt
