"""Runs Flower's tasks with the Parley that is installed here, never with code that was sent.

By default a SuperNode runs whatever bundle (FAB) comes with a run, and a SuperLink likewise: who
reaches the port decides what runs. So both are started with `--isolation process`, which leaves
running a task to a process of the owner's, and this is that process. It takes a task from the
Runtime API, calls `parley.client.app` or `parley.server.app` as installed, and sends the result.
The bundle is never unpacked; of it the server reads the run config, as data.

It also saves the 3 s that Flower's own executor needs to start a process for every message: this
one forks, with its imports done. A request whose deadline passes has its process killed, and the
party reports the failure.

A party's executor is forked by its SuperNode's process (`party_process`), which has its imports
done; the server's is its own process, so that a run survives its SuperLink:

    python -m parley.deploy.flower.executor --runtime HOST:PORT --secret FILE --ca FILE
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import httpx
from flwr.app import Context, Message
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output
from tenacity import Retrying, before_sleep_log, retry_if_exception_type, wait_fixed

from parley.client.app import app, failed, frame_content, frame_of, read_call
from parley.client.contract.printable import guard_streams
from parley.deploy.flower.pace import Bell, quicken
from parley.deploy.processes import ProcessError, end_with_parent, listens

_log = logging.getLogger("parley.executor")

_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})
# Every time that it is asked, the other side spends 5 to 10 ms of computing: a party's executor is
# woken instead, and a run of the server's starts half a second later, once.
_POLL_S, _HEARTBEAT_S, _LISTEN_S = 0.5, 10.0, 0.05
# Beyond the request's own deadline: a party that hangs is answered for, and its process killed.
_GRACE_S = 1.0

# A Runtime API that is not up yet, or restarts; the launcher ends this process when it is over.
_while_away = Retrying(
    retry=retry_if_exception_type(httpx.HTTPError),
    wait=wait_fixed(1),
    before_sleep=before_sleep_log(_log, logging.WARNING),
)

_fork = multiprocessing.get_context("fork")


class _Runtime:
    """A Runtime API: where it is, how its certificate is checked, what announces a task."""

    def __init__(self, address: str, *, ca: Path | None, secret: bytes, bell: Bell | None) -> None:
        self._address, self._secret = address, secret
        self._wait = time.sleep if bell is None else bell.wait
        self._roots = None if ca is None else ca.read_bytes()

    def client(self, token: str | None = None) -> RuntimeHttpClient:
        """A client that may take tasks or, with a token, work on one."""
        return RuntimeHttpClient.from_server_address(
            server_address=self._address,
            insecure=self._roots is None,
            root_certificates=self._roots,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="parley"),
                RuntimeTokenHttpInterceptor(token)
                if token is not None
                else SuperExecAuthHttpInterceptor(
                    master_secret=self._secret, protected_methods=_ACQUIRE
                ),
            ],
            retry_invoker=make_simple_http_retry_invoker(),
        )

    def take(self, kind: TaskType) -> str:
        """Waits for a task of that kind and returns the token that lets one work on it."""
        request = AcquireTaskRequest(supported_task_types=[kind.value])
        client = self.client()
        try:
            while True:
                answer = _while_away(client.AcquireTask, request)
                if answer.HasField("task") and answer.token:
                    return answer.token
                self._wait(_POLL_S)
        finally:
            client.close()


def _serve_party(runtime: _Runtime, folder: Path) -> NoReturn:
    """Answers this party's messages, one at a time, until it is ended."""

    loaded = False
    while True:
        task = runtime.client(runtime.take(TaskType.CLIENT_APP))
        try:
            message, context, _run, _bundle = pull_task_input(task)
            context.node_config = {"party": str(folder)}
            _reply(task, _guarded(task, message, context), context)
        except Exception:
            _log.exception("A task was given up.")
        finally:
            task.close()
        if not loaded:
            # While the server is busy: the processes forked from now on have it already.
            loaded = True
            _preload(folder)


def _preload(folder: Path) -> None:
    from parley.client.party.consent_file import ConsentError, load_consent  # noqa: PLC0415 - start-up: after the first answer

    try:
        import parley.client.party.service  # noqa: F401, PLC0415 - start-up: after the first answer
        from parley.client.algorithms.registry import ALGORITHMS  # noqa: PLC0415 - start-up: after the first answer

        accepted = load_consent(folder / "party.toml").algorithms
        if any(kind.trains for name, kind in ALGORITHMS.items() if name in accepted):
            import torch  # noqa: F401, PLC0415 - start-up: a party's first answer; only networks need torch
    except (ImportError, OSError, ConsentError):  # a library, or a policy that is being edited
        _log.exception("Imports will be done for every message.")


def _guarded(task: RuntimeHttpClient, message: Message, context: Context) -> Message:
    """The party's reply, computed in a process that is killed when the deadline has passed."""

    ours, theirs = _fork.Pipe(duplex=False)
    worker = _fork.Process(target=_work, args=(theirs, message, context), daemon=True)
    started = time.monotonic()
    worker.start()
    theirs.close()
    try:
        limit_s = read_call(message).timeout_s + _GRACE_S
        beat = started
        while not ours.poll(0.5):
            now = time.monotonic()
            if now - started > limit_s:
                _log.error("A request hung for %.0f s: its process is killed.", now - started)
                raise EOFError
            if now - beat > _HEARTBEAT_S:
                beat = now
                if not task.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success:
                    raise InterruptedError
        content = frame_content(ours.recv_bytes() or failed())
    except Exception as error:
        _log.error("A request was not answered: %s.", type(error).__name__)
        content = frame_content(failed())
    finally:
        worker.kill()
        worker.join()
        ours.close()
    return Message(content, reply_to=message)


def _work(pipe: Connection, message: Message, context: Context) -> None:

    end_with_parent()
    pipe.send_bytes(frame_of(app(message, context).content))


def _reply(task: RuntimeHttpClient, reply: Message, context: Context) -> None:

    push_message(task, reply, context)
    push_task_output(client=task, context=context, sub_status=SubStatus.COMPLETED, details="")


def run_executor(
    address: str,
    *,
    secret: bytes,
    ca: Path | None = None,
    party: Path | None = None,
    bell: Bell | None = None,
) -> NoReturn:
    """Serves the SuperNode of the party whose folder it is, or the SuperLink, until ended.

    `bell` rings when there may be a task; without it, it asks every half second.
    """
    guard_streams()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    for noisy in ("httpx", "flwr", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("flwr").propagate = False  # it has its own handler
    quicken()
    _await(address)
    runtime = _Runtime(address, ca=ca, secret=secret, bell=bell)
    if party is not None:
        _serve_party(runtime, party)
    from parley.deploy.flower.server_task import run_server_task  # noqa: PLC0415 - start-up: a party runs no server

    roots = None if ca is None else ca.read_bytes()
    while True:
        token = runtime.take(TaskType.SERVER_APP)
        # A process for each run: one that hangs or dies takes no other with it.
        _fork.Process(target=run_server_task, args=(address, token, roots), daemon=True).start()
        multiprocessing.active_children()  # collects those that have ended


def _await(address: str) -> None:
    """Waits until the Runtime API listens: Flower's own retries would take seconds longer."""
    Retrying(retry=retry_if_exception_type(ProcessError), wait=wait_fixed(_LISTEN_S))(
        listens, address
    )


def main() -> None:
    """Entry point: serves the server's SuperLink."""
    parser = argparse.ArgumentParser(prog="parley.deploy.flower.executor")
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--secret", required=True, type=Path)
    parser.add_argument("--ca", required=True, type=Path)
    given = parser.parse_args()
    run_executor(given.runtime, secret=given.secret.read_bytes(), ca=given.ca)


if __name__ == "__main__":
    main()
