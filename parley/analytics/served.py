"""Queries that were submitted to a running server: checked when they come, answered in turn.

A server that was killed goes on with the session in the run's folder: what was answered is not
paid for twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parley.analytics.asked import Submission, submission_from
from parley.analytics.batch import plan_text
from parley.analytics.session import Session
from parley.deploy.stream.queue import ANSWERS, ASKED, PAGE, SESSION
from parley.server.records.plain_json import json_text
from parley.server.rounds.transport import Transport


class ServedQueries:
    """What `parley.deploy.stream.queue.Questions` asks for."""

    def check(self, text: str, *, own_files: bool) -> None:
        """See `Questions.check`."""
        submission_from(text, own_files=own_files)

    def answer(self, folder: Path, *, home: Path, transport: Transport) -> None:
        """See `Questions.answer`."""
        asked = submission_from((folder / ASKED).read_text(encoding="utf-8"))
        with _session(asked, folder / SESSION, home=home, transport=transport) as session:
            answer = _planned(session, asked) if asked.plan else _answered(session, asked)
            if not asked.plan:
                session.report(folder / PAGE)
        draft = folder / f".{ANSWERS}.part"
        draft.write_text(json_text(answer) + "\n", encoding="utf-8")
        draft.replace(folder / ANSWERS)


def _session(asked: Submission, own: Path, *, home: Path, transport: Transport) -> Session:
    if (own / "session.json").exists():
        return Session(resume=own, transport=transport)
    return Session(
        deployment=str(home),
        schema=asked.schema,
        out=own,
        transport=transport,
        **asked.file.session,
    )


def _answered(session: Session, asked: Submission) -> dict[str, Any]:
    for batch in asked.file.batches:  # what cannot be asked is refused before the first is paid for
        session.plan([each.query for each in batch], **batch[0].price(batch))
    answers = []
    for batch in asked.file.batches:
        given = session.release([each.query for each in batch], **batch[0].price(batch))
        answers += [
            {"name": each.name, **answer.to_json(), "text": str(answer)}
            for each, answer in zip(batch, given, strict=True)
        ]
    return {"left": session.remaining, "answers": answers, "plans": []}


def _planned(session: Session, asked: Submission) -> dict[str, Any]:
    plans = []
    for batch in asked.file.batches:
        price, queries = batch[0].price(batch), [each.query for each in batch]
        planned = session.plan(queries, **price)
        plans.append(plan_text(planned, queries, terms=session.terms, epsilon=price["epsilon"]))
    return {"left": session.remaining, "answers": [], "plans": plans}
