"""Runs one ServerApp task with the Parley that is installed here (see `executor`).

What Flower's own process does (`flwr.superlink.runtime.run_serverapp`), without unpacking the
bundle: its run config is read as data, and the coordinator is ours.
"""

from __future__ import annotations

import logging
import signal

import httpx
from flwr.common.config import get_fused_config_from_fab
from flwr.common.constant import SubStatus
from flwr.common.serde import context_from_proto, fab_from_proto, run_from_proto
from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity

from parley.deploy.flower.replies import ReplyGrid
from parley.deploy.processes import end_with_parent

_log = logging.getLogger("parley.executor")

_LAST_WORDS_S = 20


def _stop(_number: int, _frame: object) -> None:
    # What is left to say must not keep the process: a SuperLink that has gone is asked in vain.
    # Whenever the alarm ends it, the ledger is between two commits.
    signal.alarm(_LAST_WORDS_S)
    raise KeyboardInterrupt


def run_server_task(address: str, token: str, roots: bytes | None) -> None:
    """Pulls the task's input, coordinates the run, says how it ended."""
    end_with_parent()
    # Flower's heartbeat raises SIGINT when the run was stopped; the launcher sends SIGTERM. Either
    # ends the run between two commits, like Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    insecure = roots is None
    task = RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=insecure,
        root_certificates=roots,
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="parley"),
            RuntimeTokenHttpInterceptor(token),
        ],
        retry_invoker=make_simple_http_retry_invoker(),
    )
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(task))
    heartbeat.start()
    grid = ReplyGrid(address, insecure, roots, token=token)
    ended = PushTaskOutputRequest(sub_status=SubStatus.FAILED, details="the run failed")
    try:
        from parley.server.app import app  # noqa: PLC0415 - start-up: in the process of one run

        given = task.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id = given.task_id
        TaskIdentity.run_id = given.run.run_id
        TaskIdentity.node_id = given.context.node_id
        run, context = run_from_proto(given.run), context_from_proto(given.context)
        context.run_config = get_fused_config_from_fab(fab_from_proto(given.fab).content, run)
        grid.set_run(run)
        app(grid=grid, context=context)
        ended = PushTaskOutputRequest(sub_status=SubStatus.COMPLETED, details="")
    except KeyboardInterrupt:
        _log.warning("The run was stopped.")
        ended = PushTaskOutputRequest(sub_status=SubStatus.STOPPED, details="stopped")
    except Exception:
        # The message is in the run folder's error.json.
        _log.exception("The run failed.")
    finally:
        try:
            task.PushTaskOutput(ended)
        except httpx.HTTPError:
            _log.exception("The SuperLink did not hear how the run ended.")
        heartbeat.stop()
        grid.close()
        task.close()
