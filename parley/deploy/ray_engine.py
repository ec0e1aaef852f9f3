"""Run a simulation's parties in Ray workers, on this machine or on a cluster.

A worker loads its shard of the parties, keeps it, and answers each request with one ring sum
(`parley.simulations.engine.sharding`). The driver plans, charges, draws central or server noise,
and writes the run folder.

Ray restarts a lost worker on any node with free resources. The worker loads its shard again, and
the driver repeats the request. No result that the worker did not return was opened. A cluster is
trusted like one process: a person who may start tasks on it can read the records.

This module also defines `ShardWorker`, which runs in a Ray worker and holds one shard.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import pickle
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from parley.deploy.process_errors import ProcessError
from parley.safe_io.os_errors import describe_cause
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.simulations.data.prepared_data import PreparedData
from parley.simulations.data.row_cache import cache_data
from parley.simulations.engine.sharding import Shard, WorkerSum, build_row_shards
from parley.simulations.engine.streamed_sum import SumFunction
from parley.version import __version__


@cache
def describe_parley() -> str:
    """Return Parley's version and a digest of the imported sources."""
    # In a checkout five packages are next to this one; an installation puts them below it.
    homes = {"": Path(__file__).parents[1]}
    for name in ("client", "privacy", "secure_agg", "server", "simulations"):
        homes[name] = Path(importlib.import_module(f"parley.{name}").__path__[0])
    sources = {
        str(Path(name, path.relative_to(home))): path
        for name, home in homes.items()
        for path in home.rglob("*.py")
    }
    digest = hashlib.sha256()
    for name, path in sorted(sources.items()):
        content = path.read_bytes()
        digest.update(f"{name} {len(content)} ".encode() + content)
    return f"{__version__} sources {digest.hexdigest()[:12]}"


def pack_shard(shard: Any) -> tuple[str, bytes]:
    """Return a shard as a worker receives it: the Parley description and the pickled shard."""
    return describe_parley(), pickle.dumps(shard)


class ShardWorker:
    """Holds one shard (`parley.simulations.engine.sharding.Shard`) and answers requests."""

    def __init__(self, wanted: str, shard: bytes) -> None:
        self._wanted, self._packed = wanted, shard
        self._answers: Callable[..., Any] | None = None

    def load_records(self) -> str:
        """Load the records once. Return a description of the problem, or an empty string."""
        if self._wanted != describe_parley():
            return f"Expected Parley {self._wanted}, as on the driver, got {describe_parley()}"
        try:
            if self._answers is None:
                self._answers = pickle.loads(self._packed).open_responder()  # noqa: S301 - the driver's own
        except OSError as error:
            return f"Expected the file {error.filename}, got: {describe_cause(error)}"
        except ValueError as error:
            return f"Expected the same records as on the driver, got: {error}"
        return ""

    def give(self, *asked: Any) -> Any:
        """Return the answer to one request, which is a sum over the shard and never one party's
        value.

        Raises:
            ProcessError: the worker was restarted on a node without its records or with another
                Parley.
        """
        problem = self.load_records()
        if problem or self._answers is None:
            raise ProcessError(problem)
        return self._answers(*asked)

    def get_node(self) -> str:
        """Return the address of the machine on which the worker runs."""
        ray = importlib.import_module("ray")
        return str(ray.util.get_node_ip_address())


_REACH_S = 5.0
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""First bytes of a gRPC client, which Ray speaks: RFC 9113, sections 3.4 and 6.5."""

_RESTART_S = 120.0
"""Seconds for Ray to notice a lost node, restart its worker elsewhere and load its records."""

_WAIT_S = 2.0
"""Seconds between the attempts to reach a lost worker while Ray restarts it."""

_WATCH_CODE = "import sys; sys.stdin.read(1) or sys.stderr.write(sys.argv[1])"
_KILLED_MESSAGE = (
    "Ray ended this process, which was part of its cluster. The cluster may have stopped. No "
    "result of the current round was opened. Start the cluster again, then run: parley run "
    "--resume RUN"
)
_RESUME_HINT = " No result of this round was opened. Continue with: parley run --resume RUN"


@contextmanager
def report_if_killed(text: str) -> Iterator[None]:
    """Write `text` to standard error if this process ends before the `with` block does.

    Ray ends a driver's process immediately when the node that it is connected to disappears.
    """
    watcher = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-I", "-S", "-c", _WATCH_CODE, f"\n{text}\n"],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C must reach only this process
    )
    try:
        yield
    finally:
        watcher.communicate(b".")


def _import_ray() -> Any:
    """Import the optional dependency Ray when it is needed, with its usage reports switched off."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    return importlib.import_module("ray")


@contextmanager
def open_ray_parties(
    job: Job, prepare: Callable[[], PreparedData]
) -> Iterator[tuple[SumFunction, PreparedData]]:
    """Yield, for the `with` block, a job's sum function by Ray workers and its rows.

    Args:
        job: Names the cluster and the number of workers.
        prepare: Creates the rows if they are not cached yet.

    Raises:
        JobError: Ray or the cluster is missing, or a node lacks the rows or has another Parley.
    """
    _check_there(job.run.ray_address)
    with cache_data(job, prepare) as (place, data):

        def dealt(cores: int) -> list[Shard]:
            return list(build_row_shards(job, place, data, job.run.workers or cores))

        with start_ray_workers(job.run.ray_address, dealt) as workers:
            yield WorkerSum(workers=workers), data


@contextmanager
def start_ray_workers(address: str, deal: Callable[[int], Sequence[Shard]]) -> Iterator[RayWorkers]:
    """Start one Ray worker per shard. They end with the `with` block.

    Args:
        address: Address of the cluster; "auto" for the one on this machine, empty for a local one.
        deal: Function from the cluster's number of cores to the shards.
    """
    _check_there(address)
    ray = _import_ray()
    given = ray.is_initialized()  # the caller's connection stays open
    if not given:
        try:
            ray.init(
                address=address or "local",
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level="warning",
                namespace="parley",
            )
        except ConnectionError as error:  # its advice is about Ray's own options
            raise JobError(_format_no_cluster(address, "none is running here")) from error
        except (RuntimeError, ValueError) as error:
            raise JobError(_format_no_cluster(address, error)) from error
    workers = list[Any]()
    stack = ExitStack()
    stack.enter_context(report_if_killed(_KILLED_MESSAGE))
    try:
        shards = deal(max(1, int(ray.cluster_resources().get("CPU", 1))))
        # By default an actor needs a core to be placed and none to stay. So a restarted actor
        # always fits on the remaining nodes.
        actor = ray.remote(max_restarts=-1, scheduling_strategy="SPREAD")(ShardWorker)
        workers += [actor.remote(*pack_shard(shard)) for shard in shards]
        held = RayWorkers(shards=shards, actors=workers)
        held.check()
        yield held
    finally:
        if given:
            for worker in workers:
                ray.kill(worker)
        else:
            ray.shutdown()
        stack.close()


def _check_there(address: str) -> None:
    """Raise JobError if Ray is not installed or does not answer at host:port; Ray retries for
    minutes.
    """
    if importlib.util.find_spec("ray") is None:
        raise JobError(
            "The ray engine needs Ray, which is not installed. Install it with: pip install "
            '"parley[ray]"'
        )
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return  # empty, "auto", or an address that Ray parses itself
    try:
        with socket.create_connection((host, int(port)), timeout=_REACH_S) as there:
            if os.environ.get("RAY_USE_TLS") != "1":
                there.sendall(_HTTP2)
                if there.recv(9)[3:4] != b"\x04":  # every server's first frame: SETTINGS
                    raise OSError("the process on that port is not Ray")
    except (OSError, OverflowError) as error:
        raise JobError(_format_no_cluster(address, error)) from error


def _format_no_cluster(address: str, problem: object) -> str:
    return (
        f"Expected a Ray cluster at run.ray-address = {address!r}: {problem}. Start one with `ray "
        'start --head`, or use "auto" for the one on this machine.'
    )


@dataclass(frozen=True, kw_only=True)
class RayWorkers:
    """Actors that hold shards (`parley.simulations.engine.sharding.Workers`)."""

    shards: Sequence[Shard]
    actors: Sequence[Any]

    def check(self) -> None:
        """Make every worker load its records; raise JobError if a node lacks them or has another
        Parley.
        """
        loads = [lambda actor: actor.load_records.remote()] * len(self.actors)
        problems = self._collect_answers(loads)
        wrong = [actor for actor, problem in zip(self.actors, problems, strict=True) if problem]
        if wrong:
            nodes = _import_ray().get([actor.get_node.remote() for actor in wrong])
            placed = zip(filter(None, problems), nodes, strict=True)
            once = dict.fromkeys(f"{problem}, on node {node}" for problem, node in placed)
            raise JobError("; ".join(once) + ".")

    def share_value(self, value: Any) -> Any:
        """Put a value into Ray's store, so that it travels to each node once."""
        return _import_ray().put(value)

    def request_answers(self, questions: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return each worker's answer to its request; raise ProcessError if a worker did not come
        back.
        """
        return self._collect_answers([self._call(own) for own in questions], _RESUME_HINT)

    def _call(self, question: tuple[Any, ...]) -> Callable[[Any], Any]:
        return lambda actor: actor.give.remote(*question)

    def _collect_answers(self, calls: Sequence[Callable[[Any], Any]], later: str = "") -> list[Any]:
        """Return each worker's answer. Repeat the request to a lost worker once it is back."""
        ray = _import_ray()
        waiting = [call(actor) for call, actor in zip(calls, self.actors, strict=True)]
        answers = []
        while_lost = Retrying(
            retry=retry_if_exception(lambda error: _is_lost(ray.exceptions, error)),
            wait=wait_fixed(_WAIT_S),
            stop=stop_after_delay(_RESTART_S),
            reraise=True,
        )
        for at, call in enumerate(calls):
            try:
                for attempt in while_lost:
                    with attempt:
                        if attempt.retry_state.attempt_number > 1:
                            waiting[at] = call(self.actors[at])
                        answers.append(ray.get(waiting[at]))
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, ProcessError):
                    where = f"on node {_find_node(error)}"
                    raise ProcessError(f"{error.cause}, {where}.{later}") from error
                raise error.cause from error  # as if this process had raised it
            except ray.exceptions.RayError as error:
                if not _is_lost(ray.exceptions, error):
                    cause = str(error).strip().splitlines()[-1]
                    raise JobError(
                        f"Expected Parley {__version__} on node {_find_node(error)}, got {cause}."
                    ) from error
                shard = self.shards[at]
                raise ProcessError(
                    f"Ray could not restart the worker of parties {shard.first} to "
                    f"{shard.last - 1} ({type(error).__name__}).{later}"
                ) from error
        return answers


def _is_lost(kinds: Any, error: BaseException) -> bool:
    """Return whether a worker disappeared, as opposed to failing itself or failing to start."""
    failed = isinstance(error, kinds.RayTaskError) or getattr(error, "actor_init_failed", False)
    return isinstance(error, kinds.RayError) and not failed


def _find_node(error: Exception) -> str:
    """Return the node on which the error was raised. Ray gives it only in the text."""
    found = re.search(r"\bip=([^,)\s]+)", str(error))
    return found[1] if found else "unknown"
