"""Queries that a running server answers: what it needs of whoever knows how.

Sessions are above deployments, so that a server is given this when it starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from parley.server.rounds.transport import Transport

ASKED, ANSWERS, PAGE = "asked.json", "answers.json", "answers.html"
"""Files of a run of queries: what was asked, all answers, and their page."""
SESSION = "session"
"""The session's own folder in it."""


class Questions(Protocol):
    """How a submission of queries is checked, and answered."""

    def check(self, text: str, *, own_files: bool) -> None:
        """Refuses what cannot be asked, before it waits in the queue; nothing is charged.

        Args:
            text: the submission, JSON, from an operator.
            own_files: it may name files of this machine.

        Raises:
            QueryError, SchemaError, WhereError: what was expected, what came.
        """

    def answer(self, folder: Path, *, home: Path, transport: Transport) -> None:
        """Asks the parties what a run's folder holds, or goes on; leaves answers and page there.

        Args:
            folder: of the run.
            home: the server's folder.
            transport: to the parties.
        """
