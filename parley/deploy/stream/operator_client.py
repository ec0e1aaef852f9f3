"""Operate a server: from its own machine, or from another one with an operator's certificate.

On the server's machine, a run's folder is the server's own. On other machines a copy is kept up to
date, so that a waiting operator reads the same files.

This module also submits, follows and stops jobs of a running deployment.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import grpc

from parley.client.contract.roster import load_deployment
from parley.client.contract.strict_decoding import parse_strict_json
from parley.client.data.schema import load_schema
from parley.deploy.certificate_checks import check_client_pair
from parley.deploy.deployment_folder_checks import check_server
from parley.deploy.process_errors import ProcessError
from parley.deploy.run_watcher import (
    follow,
    format_next_steps,
    format_refusal_counts,
    format_refusals,
    parse_party_states,
    rebuild_error,
)
from parley.deploy.server_address import DeployError, format_address, parse_address
from parley.deploy.stream.grpc_client import check_reachable, explain_call_error
from parley.deploy.stream.grpc_options import build_channel_options, load_channel_credentials
from parley.deploy.stream.operator_service import ASK, FILES, READ
from parley.deploy.stream.run_queue import OPEN_STATES, PAGE_FILE
from parley.presentation.run_page import write_report
from parley.safe_io.file_writing import append_to_file, write_file
from parley.safe_io.json_writing import format_json
from parley.safe_io.path_names import InvalidName, require_plain_name
from parley.safe_io.printable_text import to_one_line
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job, render_job
from parley.server.model_file import open_model
from parley.server.records.run_folder import resolve_paths
from parley.server.records.run_folder_opening import load_run_job
from parley.server.records.run_result import RunResult
from parley.terminal.deployment_status import DeploymentStatus, RunStatus
from parley.terminal.live_progress import RunDisplay

_ANSWER_S = 30.0
LARGEST_FILE = 1 << 30
"""Maximum bytes of a file in a server's answer."""

_SHIELD = (
    b'<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="'
    b"default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'\">\n"
)
_COPY = "copy-of"
"""File in the copy of a run's folder, with the digest of its server's authority."""


@dataclass(frozen=True, kw_only=True)
class OperatorHome:
    """A folder with an operator's key, and its server's address.

    Attributes:
        runs: The server's run folders on its own machine; None elsewhere.
    """

    folder: Path
    address: str
    host: str
    runs: Path | None


def load_operator_home(folder: Path) -> OperatorHome:
    """Check and return the operator's folder. `folder` may be the server's, a deployment's or a
    received one.

    In a deployment's folder without the server's folder, it is the operator's folder.
    """
    if (folder / "server" / "server.toml").exists() or (folder / "server.toml").exists():
        home = check_server(folder)
        folder, runs = home.folder, home.folder / "runs"
        listen = "127.0.0.1" if home.listen in {"0.0.0.0", "::"} else home.listen  # noqa: S104
        address, public = format_address(listen, home.port), home.deployment.server_address
    else:
        inner = folder / "operator"
        folder, runs = (inner if inner.is_dir() else folder).resolve(), None
        if not (folder / "operator.pem").exists():
            raise DeployError(
                f"{folder} is neither a server's folder (it has no server.toml) nor an operator's "
                "(it has no operator.pem). Create both with: parley deploy init"
            )
        address = public = load_deployment(folder / "deployment.toml").server_address
    check_client_pair(folder, "operator")
    return OperatorHome(folder=folder, address=address, host=parse_address(public)[0], runs=runs)


class OperatorClient:
    """A connection to a server's operator service, as a context manager.

    Raises:
        ProcessError, PkiError: no server answers, or it is not the deployment's server.
    """

    def __init__(self, home: OperatorHome) -> None:
        self.home = home
        self._seen: dict[Path, list[int]] = {}
        check_reachable(home.address, home.folder / "ca.crt", host=home.host)
        self._channel = grpc.secure_channel(
            home.address,
            load_channel_credentials(home.folder, "operator"),
            (*build_channel_options(), ("grpc.ssl_target_name_override", home.host)),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def send_request(self, kind: str, **more: Any) -> dict[str, Any]:
        """Return the server's answer; raise ProcessError without one, or the server's error."""
        request = format_json({"ask": kind, **more}).encode()
        try:
            answer = self._channel.unary_unary(ASK)(request, timeout=_ANSWER_S)
            said: dict[str, Any] = parse_strict_json(answer)
        except grpc.RpcError as error:
            why = explain_call_error(error, address=self.home.address)
            raise ProcessError(
                f"The server at {self.home.address} did not answer: {why}."
            ) from error
        except ValueError as error:
            raise ProcessError(
                f"The server at {self.home.address} sent an invalid answer: {error}"
            ) from error
        if "error" in said:
            message = str(said.get("message"))
            raise rebuild_error(str(said["error"]), message, unknown=message)
        return said

    def begin(self, kind: str, **more: Any) -> Path:
        """Submit a request and return the new run's folder: the server's own, or a new copy.

        Raises:
            ProcessError: no answer, or the server names a folder that is not allowed.
        """
        said = self.send_request(kind, **more).get("run")
        try:
            return self._find_run_folder(require_plain_name(said), new=True)
        except InvalidName as error:
            raise self._build_server_error(str(error)) from error
        except FileExistsError as error:
            raise self._build_server_error(
                f"Expected the name of a new run, got {said}, which exists here"
            ) from error

    def resume(self, name: str) -> Path:
        """Resume a run at the server and return its folder: the server's own, or the copy.

        Raises:
            DeployError: the name is not a run's, or the local folder is not a copy of this server's
                run.
        """
        try:
            folder = self._find_run_folder(require_plain_name(name), new=False)
        except InvalidName as error:
            raise DeployError(f"--resume: {error}") from error
        except FileExistsError as error:
            raise DeployError(
                f"Expected {error.filename} to be a copy of this server's run, got a folder of "
                "your own. Move it away, or work in another folder."
            ) from error
        self.send_request("resume", run=name)
        return folder

    def _find_run_folder(self, name: str, *, new: bool) -> Path:
        """Return the server's own folder of a run, or its copy, which is created if it is missing.

        Raises:
            FileExistsError: another folder or file has that name.
        """
        if self.home.runs is not None:
            return self.home.runs / name
        folder, mark = Path("runs") / name, Path("runs") / name / _COPY
        authority = hashlib.sha256((self.home.folder / "ca.crt").read_bytes()).hexdigest()
        if new or not mark.is_file() or mark.read_text(encoding="utf-8") != authority:
            folder.mkdir(parents=True)
            write_file(mark, authority)
        return folder

    def _build_server_error(self, problem: str) -> ProcessError:
        return ProcessError(
            f"The server at {self.home.address} sent an invalid answer: {problem.rstrip('.')}. "
            "Nothing was written. An honest server never sends this; ask its administrator."
        )

    def poll_end(self, folder: Path) -> str | None:
        """Return how a run ended, or None while it runs. Update the copy of its folder."""
        looked = self.send_request("look", run=folder.name)
        state = str(looked["state"])
        if self.home.runs is None:
            for name, stamp in looked["files"].items():
                # The ledger is written during the run, so a copy would not be consistent.
                whole = name != "ledger.sqlite" or state not in OPEN_STATES
                if name in FILES and self._seen.get(folder / name) != stamp and whole:
                    self._copy(folder / name)
                    self._seen[folder / name] = stamp
        return None if state in OPEN_STATES else state

    def _copy(self, path: Path) -> None:
        folder, name = path.parent, path.name
        # Lines are only appended, except if a run is resumed after a crash.
        offset = path.stat().st_size if name == "rounds.jsonl" and path.exists() else 0
        asked = format_json({"ask": "read", "run": folder.name, "file": name, "offset": offset})
        content = bytearray()
        try:
            for part in self._channel.unary_stream(READ)(asked.encode(), timeout=600):
                content += part
                if len(content) > LARGEST_FILE:
                    raise self._build_server_error(
                        f"Expected {name} of at most {LARGEST_FILE} bytes, got more"
                    )
        except grpc.RpcError:
            return  # it was replaced just now: the next poll gets it
        if offset:
            append_to_file(path, bytes(content))
            return
        write_file(path, _sanitize_page(bytes(content)) if name == PAGE_FILE else bytes(content))


def _sanitize_page(page: bytes) -> bytes:
    """Return a server's page without scripts, external addresses and redirects.

    The first content security policy applies to all that follows. Further `http-equiv` attributes,
    such as a redirect, are renamed and have no effect.
    """
    return _SHIELD + re.sub(rb"(?i)http-equiv", b"data-said", page)


def submit_job(
    job: Path | None,
    *,
    to: Path,
    sets: Sequence[str],
    resume: str | None,
    quiet: bool,
    verbose: bool = False,
) -> RunResult:
    """Submit a job, follow it to its end, write its report and return its result."""
    if resume is not None and (job is not None or sets):
        raise DeployError("Expected only --resume RUN: a resumed run uses its own job.")
    with OperatorClient(load_operator_home(to)) as operator:
        if resume is None:
            own, schema = _with_schema(_load_submission(job, sets))
            folder = operator.begin("submit", job=render_job(own), **schema)
        else:
            folder = operator.resume(Path(resume).name)
        operator.poll_end(folder)  # afterwards a copy has its files
        loaded = load_run_job(folder)

        leaving = partial(format_next_steps, folder=folder, to=to)
        display = RunDisplay(quiet=quiet, verbose=verbose, farewell=leaving, name=folder.name)
        away = False

        def ended() -> str | None:
            nonlocal away
            try:
                state = operator.poll_end(folder)
            except ProcessError:
                # The server restarts, or the connection is cut: poll again.
                away = True
                display.stage("following", waiting="waiting for the server")
                return None
            if away:
                away = False
                display.stage("following")
            return state

        try:
            with display:
                display.stage("queued")
                summary = follow(folder, ended=ended, observer=display, every=3)
        finally:
            for line in format_refusals(folder, loaded):
                print(line, file=sys.stderr)
    write_report(folder)
    return RunResult(summary=summary, folder=folder, theta=open_model(folder).tensors["theta"])


def _load_submission(path: Path | None, sets: Sequence[str]) -> Job:
    """Return the job with absolute file paths.

    The parties' name for the data stays, also if it reads like a file's, such as "ward.csv".
    """
    given = load_job(path, overrides=sets)
    job, source = resolve_paths(given), Path(given.data.source)
    if source.parent not in (Path(path or "").parent, Path()):
        return job
    data = job.data.model_copy(update={"source": source.name})
    privacy = job.privacy.model_copy(update={"dataset": given.privacy.dataset})
    return job.model_copy(update={"data": data, "privacy": privacy})


def _with_schema(job: Job) -> tuple[Job, dict[str, str]]:
    """Return the job without the local path in `data.schema`, and that file's content."""
    if not job.data.data_schema:
        return job, {}
    text = load_schema(job.data.data_schema).to_toml()
    data = job.data.model_copy(update={"data_schema": ""})
    return job.model_copy(update={"data": data}), {"schema": text}


def fetch_status(folder: Path) -> DeploymentStatus:
    """Return the status of a deployment."""
    with OperatorClient(load_operator_home(folder)) as operator:
        said = operator.send_request("status")
    try:
        parties = {to_one_line(str(each["name"])): each for each in said["parties"]}
        return DeploymentStatus(
            address=to_one_line(str(said["address"])),
            deployment_id=to_one_line(str(said["id"])),
            parties={name: bool(each["online"]) for name, each in parties.items()},
            duplicates=tuple(name for name, each in parties.items() if each.get("twice")),
            runs=tuple(map(_parse_run_status, said["runs"])),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ProcessError(
            "Expected the deployment's status from the server, got something else."
        ) from error


def _parse_run_status(content: Any) -> RunStatus:
    refused = parse_party_states({"parties": [], "refused": content["refused"]})["refused"]
    return RunStatus(
        name=to_one_line(str(content["name"])),
        state=to_one_line(str(content["state"])),
        party_states=parse_party_states(content["board"]),
        notes=(
            *format_refusal_counts(refused),
            *filter(None, [to_one_line(str(content.get("reason") or ""))]),
        ),
    )


def stop_runs(folder: Path, run: str | None) -> list[str]:
    """Stop the named run, or all that have not ended, and return their names.

    Raises:
        DeployError: the named run is not queued or running.
    """
    with OperatorClient(load_operator_home(folder)) as operator:
        stopping = [str(name) for name in operator.send_request("stop", run=run)["stopping"]]
    if run is not None and not stopping:
        raise DeployError(f"Expected a queued or running run, got {run}.")
    return list(map(to_one_line, stopping))
