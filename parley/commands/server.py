"""`parley server`: rounds and queries of one deployment."""

from __future__ import annotations

from typing import Annotated

import typer

from parley.analytics.submitted_queries import ServedQueries
from parley.command_options import LogJson, ServerDir
from parley.deploy.deployment_folders import check_server
from parley.deploy.event_log import build_notifier
from parley.deploy.stream.deployment_server import serve


def run_server(
    folder: ServerDir,
    monitor: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="Show /metrics (Prometheus) and /healthz at this port of 127.0.0.1 (0: any).",
        ),
    ] = None,
    log_json: LogJson = False,
) -> None:
    """Run a deployment's server in the foreground; Ctrl-C (or systemd) stops it.

    One port, TLS. Parties connect to it; nothing connects to them. It runs no code but this
    installation's. Runs that were going on when it ended go on when it starts.
    """
    home = check_server(folder)
    serve(home, say=build_notifier(as_json=log_json), monitor=monitor, questions=ServedQueries())
