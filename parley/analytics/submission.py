"""`parley query … --server DIR`: queries for a deployment that runs, followed to their answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from parley.analytics.asked import Submission
from parley.client.contract.file_reading import LARGEST_LOG, text_of
from parley.client.contract.protocol import strict_json
from parley.deploy.follow import RunStopped, until_ended
from parley.deploy.processes import ProcessError
from parley.deploy.stream.operator import Operator, operator_home
from parley.deploy.stream.queue import ANSWERS, PAGE


def submit_queries(
    asked: Submission | None, *, to: Path, resume: str | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """Submits queries, or goes on with a run of them, and waits for the answers.

    Args:
        asked: what; None with `resume`.
        to: the server's folder, or an operator's.
        resume: the name of a run of queries that ended before its last answer.
        say: hears what it waits for.

    Raises:
        what `parley.Session` raises, as the server refused it; ProcessError, DeployError, PkiError.
    """
    with Operator(operator_home(to)) as operator:
        if asked is not None:
            folder = operator.begin("query", queries=asked.to_json())
        else:
            folder = operator.resume(Path(resume or "").name)
        name = folder.name
        say(f"{name} waits for its turn; what it answers is in {folder}. To end it: parley stop.")
        state = until_ended(folder, lambda: operator.ended(folder), every=2)
    if state == "stopped":
        raise RunStopped
    try:
        answered: dict[str, Any] = strict_json(text_of(folder / ANSWERS, largest=LARGEST_LOG))
    except (OSError, ValueError) as error:
        raise ProcessError(
            f"The queries ended ({state}) without answers; the server's log says why."
        ) from error
    page = folder / PAGE
    return {
        "run": name,
        "folder": str(folder),
        **answered,
        "report": str(page) if page.exists() else "",
    }
