"""`parley server`: rounds and queries of one deployment."""

from __future__ import annotations

from typing import Annotated

import typer

from parley.analytics.submitted_queries import ServedQueries
from parley.command_options import LogJson, ServerDir
from parley.deploy.deployment_folder_checks import check_server
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
            help="Serve /metrics (Prometheus) and /healthz on this port of 127.0.0.1 (0: any).",
        ),
    ] = None,
    log_json: LogJson = False,
) -> None:
    """Run a deployment's server in the foreground; Ctrl-C (or systemd) stops it.

    The server listens on one port, with TLS. Parties connect to it; it connects to none. It runs
    only the code of this installation. When it starts, it continues the runs that were active
    when it stopped.
    """
    home = check_server(folder)
    serve(home, say=build_notifier(as_json=log_json), monitor=monitor, questions=ServedQueries())
