"""Answer operators' requests, on the parties' port, with the operators' own certificates.

    Ask    JSON in, JSON out: status, submit, query, resume, stop, look
    Read   a file of a run's folder, in pieces

Operators are trusted with the queue and with the content of the run folders, which is what the
server itself may know. A submitted job may name files of the server's machine only if the operator
has the server's own folder.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from parley.client.contract.roster import Deployment
from parley.client.contract.strict_decoding import parse_strict_json
from parley.deploy.authorization import NotAdmitted, admit_operator
from parley.deploy.run_watcher import load_party_states
from parley.deploy.stream.connections import Connections
from parley.deploy.stream.grpc_options import RequestReader, build_service, get_peer_certificate
from parley.deploy.stream.run_queue import (
    ANSWERS_FILE,
    OPEN_STATES,
    PAGE_FILE,
    QUERIES_FILE,
    SESSION_FOLDER,
    QueryAnswerer,
    QueuedRun,
    RunQueue,
)
from parley.deploy.stream.stream_framing import CHUNK
from parley.exit_status import get_exit_status
from parley.safe_io.json_writing import format_json
from parley.safe_io.os_errors import describe_error
from parley.server.records.run_folder import PROPOSED_ID_FILE, RunFolderError

_log = logging.getLogger("parley.desk")

ASK, READ = "/parley.Operators/Ask", "/parley.Operators/Read"
_SERVERS_OWN = "server"
"""Name of the operator with a key in the server's folder."""

FILES = (
    "job.toml", "run-id", PROPOSED_ID_FILE, "deployment-id", "started.json", "rounds.jsonl",
    "parties.json",
    "summary.json", "error.json", "model.safetensors", "ledger.sqlite", "schema.toml",
    QUERIES_FILE, ANSWERS_FILE, PAGE_FILE,
)  # fmt: skip
"""Files of a run's folder that an operator may read."""

_REQUEST_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "status": {},
    "submit": {"job": (str,), "schema": (str, type(None))},
    "query": {"queries": (str,)},
    "resume": {"run": (str,)},
    "stop": {"run": (str, type(None))},
    "look": {"run": (str,)},
    "read": {"run": (str,), "file": (str,), "offset": (int,)},
}
"""Allowed requests, with the names and types of their fields."""

_OPTIONAL_FIELDS = {"schema"}

_MAX_REQUEST_BYTES = 1 << 20
_MAX_RUNS_SHOWN = 500


class OperatorService:
    """Answers operators. `stop(name)` stops that run if it is the current one."""

    def __init__(
        self,
        queue: RunQueue,
        deployment: Deployment,
        attendance: Connections,
        *,
        stop: Callable[[str], None],
        questions: QueryAnswerer | None = None,
    ) -> None:
        self._queue, self._deployment, self._attendance = queue, deployment, attendance
        self._stop, self._questions = stop, questions
        # Requests are parsed in this thread, one after another, so that the parties' loop never
        # waits.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="desk")
        self._requests = RequestReader()
        self._asks: dict[str, Callable[[Mapping[str, Any], str], dict[str, Any]]] = {
            "status": self._build_status,
            "submit": self._submit,
            "query": self._query,
            "resume": self._resume,
            "stop": self._stop_runs,
            "look": self._look,
        }

    def build_service(self) -> Any:
        """Return the gRPC service."""
        ask = grpc.stream_unary_rpc_method_handler(self._handle_ask)
        read = grpc.stream_stream_rpc_method_handler(self._handle_read)
        return build_service({ASK: ask, READ: read})

    async def _handle_ask(self, _requests: Any, context: Any) -> bytes:
        name = await self._admit_caller(context)
        request = await self._requests.read(name, context)
        try:
            known = {each: _REQUEST_FIELDS[each] for each in self._asks}
            asked = await self._run_in_thread(_parse_request, request, known)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        try:
            answer = await self._run_in_thread(self._asks[asked["ask"]], asked, name)
        except Exception as error:
            if get_exit_status(error) is None:
                # A bug in Parley. gRPC would send its text, which belongs only in the server's log.
                _log.exception("Could not answer an operator's request.")
                await context.abort(
                    grpc.StatusCode.INTERNAL, "An error occurred. Its cause is in the server's log."
                )
            name = f"{type(error).__module__}.{type(error).__qualname__}"
            answer = {"error": name, "message": describe_error(error)}
        return format_json(answer).encode()

    async def _handle_read(self, _requests: Any, context: Any) -> AsyncIterator[bytes]:
        name = await self._admit_caller(context)
        request = await self._requests.read(name, context)
        try:
            known = {"read": _REQUEST_FIELDS["read"]}
            asked = await self._run_in_thread(_parse_request, request, known)
            if asked["file"] not in FILES or asked["offset"] < 0:
                raise ValueError("no such file")
            path = self._queue.get_folder(asked["run"]) / asked["file"]
            with path.open("rb") as file:
                file.seek(asked["offset"])
                while part := file.read(CHUNK):
                    yield part
        except (OSError, ValueError, RunFolderError):
            await context.abort(grpc.StatusCode.NOT_FOUND, "The run has no such file.")

    async def _run_in_thread(
        self, read: Callable[..., dict[str, Any]], *given: object
    ) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(self._reader, read, *given)

    async def _admit_caller(self, context: Any) -> str:
        try:
            return admit_operator(get_peer_certificate(context))
        except NotAdmitted as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
            raise

    def _build_status(self, _asked: Mapping[str, Any], _by: str) -> dict[str, Any]:
        online, of = self._attendance.list_online(), self._deployment
        twice = self._attendance.list_duplicates()
        return {
            "address": of.server_address,
            "id": of.spoken,
            "parties": [
                {"name": party.name, "online": index in online, "twice": index in twice}
                for index, party in enumerate(of.parties)
            ],
            "runs": list(map(self._build_run_status, self._queue.list_runs()[-_MAX_RUNS_SHOWN:])),
        }

    def _build_run_status(self, run: QueuedRun) -> dict[str, Any]:
        folder = self._queue.get_folder(run.name)
        board = load_party_states(folder) or load_party_states(folder / SESSION_FOLDER)
        return {
            "name": run.name,
            "state": run.state,
            "at": run.at,
            "by": run.by,
            "board": board if run.state in OPEN_STATES else {},
            "refused": board.get("refused", {}),
            "reason": run.reason,
        }

    def _submit(self, request: Mapping[str, Any], by: str) -> dict[str, Any]:
        own, schema = by == _SERVERS_OWN, request["schema"] or ""
        return {"run": self._queue.submit(request["job"], schema=schema, by=by, own_files=own)}

    def _query(self, request: Mapping[str, Any], by: str) -> dict[str, Any]:
        if self._questions is None:
            raise RunFolderError("Expected jobs: this server answers no queries.")
        # Checked at submission, so that the operator learns at once what cannot be asked.
        self._questions.check(request["queries"], own_files=by == _SERVERS_OWN)
        return {"run": self._queue.submit_queries(request["queries"], by=by)}

    def _resume(self, request: Mapping[str, Any], by: str) -> dict[str, Any]:
        self._queue.resume(request["run"], by=by)
        return {"run": request["run"]}

    def _stop_runs(self, request: Mapping[str, Any], _by: str) -> dict[str, Any]:
        going = [run.name for run in self._queue.list_runs() if run.state in OPEN_STATES]
        stopping = [name for name in going if request["run"] in {None, name}]
        for name in stopping:
            if not self._queue.withdraw(name):
                self._stop(name)
        return {"stopping": stopping}

    def _look(self, request: Mapping[str, Any], _by: str) -> dict[str, Any]:
        name = request["run"]
        path = self._queue.get_folder(name)
        state = next((run.state for run in self._queue.list_runs() if run.name == name), "unknown")
        known = {file: (path / file).stat() for file in FILES if (path / file).exists()}
        files = {file: [stamp.st_size, stamp.st_mtime_ns] for file, stamp in known.items()}
        return {"state": state, "files": files}


def _parse_request(
    request: bytes, allowed: Mapping[str, Mapping[str, tuple[type, ...]]]
) -> dict[str, Any]:
    """Return a request of one of the `allowed` kinds, with exactly its fields and their types.

    Raises:
        ValueError: the bytes are something else. Never contains the content.
    """
    if len(request) > _MAX_REQUEST_BYTES:
        raise ValueError(f"Expected a request of at most {_MAX_REQUEST_BYTES} bytes.")
    try:
        asked: Any = parse_strict_json(request)
    except ValueError as error:
        raise ValueError(f"Expected a request in JSON. {error}") from None
    what = asked.get("ask") if isinstance(asked, dict) else None
    words = allowed.get(what) if isinstance(what, str) else None
    if words is None:
        raise ValueError("Expected a request of an operator.")
    asked = dict.fromkeys(_OPTIONAL_FIELDS & set(words)) | asked
    if set(asked) != {"ask", *words}:
        raise ValueError("Expected a request of an operator.")
    if any(type(asked[word]) not in kinds for word, kinds in words.items()):
        raise ValueError("Expected a request of an operator, with fields of the right types.")
    return dict(asked)
