"""Follow a run in another process through its run folder, up to its end or its error.

The coordinator appends to `rounds.jsonl` and keeps `parties.json` up to date. It writes
`started.json` at the start and `error.json` on a failure (`parley.server.run_launcher`). From these
files the observer receives the same calls as in the fast engine. An error is raised here with its
original class, so that messages and exit statuses are the same.

This module also formats, for the operator, which parties declined: reason class, request, and where
to look.
"""

from __future__ import annotations

import importlib
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from parley.client.contract.plan_decoding import decode_plan
from parley.client.contract.strict_decoding import parse_strict_json
from parley.client.own_code.own_code_names import get_public_name
from parley.deploy.process_errors import ProcessError
from parley.exit_status import KNOWN_ERRORS
from parley.privacy.accounting.rounding import format_exact
from parley.safe_io.file_reading import read_text
from parley.safe_io.plurals import format_noun
from parley.safe_io.printable_text import to_one_line
from parley.server.jobs.job import Job
from parley.server.records.round_line import RoundLine
from parley.server.records.run_folder import PROPOSED_ID_FILE
from parley.server.records.run_folder_opening import load_run_job
from parley.server.records.run_reader import read_summary
from parley.server.records.run_summary import RunSummary
from parley.server.rounds.party_facts import format_served_name
from parley.server.rounds.run_observer import Observer

REASON_MEANINGS = {
    "unknown-dataset": "its party.toml has no data set with that name",
    "data-unreadable": "its data file or schema cannot be read, or its policy has another budget "
    "than its ledger",
    "schema": "its schema differs from the other parties'",
    "sizes-not-disclosed": (
        "its number of records is private, by its budget (unit party or both, or "
        "add-or-remove-one) or by its policy"
    ),
    "version": "its version of Parley has another protocol; the older side must be updated",
    "clock-skew": "its clock and the server's differ by more than its policy allows",
    "unknown-session": "it does not know this run, because it was restarted without its state",
    "wrong-run": "its roster differs from the server's",
    "cohort-too-small": "fewer parties than its policy's min-survivors",
    "unit": "its data set's budget is for another privacy.unit",
    "neighbouring": "its data set's budget is for another privacy.neighbouring",
    "mechanism": "its policy does not accept this noise",
    "calibration": "the noise is smaller than the noise that it computes for the job's claim",
    "seeded-noise": "the job has a seed, which is only for simulations",
    "algorithm": "its policy does not accept this algorithm or its settings",
    "model": "its party.toml does not accept this model, its labels do not fit it, or its copy of "
    "the model's code is another version",
    "sensitivity": "one of its records can change more than the job's noise covers",
    "too-few-records": "it has fewer records than parties.min-records or its policy requires",
    "budget-exhausted": "the job costs more than its policy allows per job, or than is left",
    "record-bound": "only noise by the server would protect its records",
    "grid": "the sum's grid is coarser than the grid that it computes",
    "degenerate": "the task would make contributions zero or constant",
    "plan-changed": "the server requested another release than the agreed one",
    "other-survivors": "it unmasked this release with other survivors; start a new run",
    "waiting-for-approval": "its owner has not approved it yet",
    "refused-by-owner": "its owner refused it",
    "approval-lapsed": "its owner did not approve it within the policy's time",
    "protocol": "the server's message was malformed or out of order",
    "busy": "it is answering another request",
    "error": "something failed on its machine",
}
"""Possible meaning of each reason class. All are about public facts and the party's own policy."""


def format_request(job: Job) -> str:
    """Return a description of what a job requests from a party, all of it public.

    >>> from parley.server.jobs.job_file import load_job
    >>> format_request(load_job(overrides=["data.source=ward"]))  # doctest: +ELLIPSIS
    'epsilon = 1, delta = 1e-05 for a record (replace-one) of ward, gradient-perturbation, ...'
    """
    own = job.privacy
    first, *others = (
        f"epsilon = {format_exact(each.epsilon)}, delta = {format_exact(each.delta)} for a "
        f"{each.unit}"
        for each in job.budgets
    )
    both = "".join(f" and {each}" for each in others)
    rounds = getattr(job.algorithm, "rounds", 1)
    count = job.parties.count
    sizes = f"{rounds} {format_noun(rounds, 'round')}, {count} {format_noun(count, 'party')}"
    what = f"{format_served_name(job)}, {job.algorithm.kind}, {sizes}"
    return f"{first} ({own.neighbouring}){both} of {what}"


def format_refusals(run: Path, job: Job) -> list[str]:
    """Return a line per party that declined or failed, from the run's party states."""
    parties = load_party_states(run).get("parties", [])
    lost = [party for party in parties if party["state"] in {"declined", "failed"}]
    if not lost:
        return []
    lines = [f"The job requests {format_request(job)}."]
    for party in lost:
        reason = party["reason"]
        meaning = REASON_MEANINGS.get(reason, "")
        why = f" ({reason}{f': {meaning}' if meaning else ''})" if reason else ""
        cause = f"its owner finds the cause in {party['name']}'s party.log."
        lines.append(f"  {party['name']} {party['state']}{why}; {cause}")
    if ":" in job.model.kind and any(party["reason"] == "model" for party in lost):
        name = get_public_name(job.model.kind)
        lines.append(
            "A party never runs a server's code. Its owner reviews the file, puts it next to the "
            f'party\'s own party.toml, and lists the model there: models = ["{name}"].'
        )
    return lines


def format_refusal_counts(refused: Mapping[str, int]) -> tuple[str, ...]:
    """Return the number of parties that refused something in a run, per reason class.

    >>> format_refusal_counts({"clock-skew": 2})[0]
    "2 parties: clock-skew (its clock and the server's differ by more than its policy allows)"
    """
    return tuple(
        f"{count} {'party' if count == 1 else 'parties'}: {reason}"
        + (f" ({REASON_MEANINGS[reason]})" if reason in REASON_MEANINGS else "")
        for reason, count in sorted(refused.items())
    )


def load_party_states(run: Path) -> dict[str, Any]:
    """Return the states of a run's parties (`rounds.party_status`); empty if they are not known."""
    try:
        return parse_party_states(parse_strict_json(read_text(run / "parties.json")))
    except (OSError, ValueError):
        return {}


def parse_party_states(content: Any) -> dict[str, Any]:
    """Return party states from an untrusted source, with one-line texts; empty if malformed."""
    if not isinstance(content, dict) or not isinstance(content.get("parties"), list):
        return {}
    parties, refused = content["parties"], content.get("refused", {})
    if not all(isinstance(each, dict) for each in (refused, *parties)):
        return {}
    return {
        "round": content["round"] if isinstance(content.get("round"), int) else 0,
        "stage": to_one_line(str(content.get("stage", ""))),
        "parties": [
            {key: to_one_line(str(each.get(key) or "")) for key in ("name", "state", "reason")}
            for each in parties
        ],
        "refused": {
            to_one_line(reason): count for reason, count in refused.items() if type(count) is int
        },
    }


STALE_FILES = ("started.json", "error.json", "summary.json", "parties.json")
"""Files of an earlier attempt in a run folder. They are removed before the next attempt."""

_POLL_S, _STATUS_EVERY = 0.05, 10
_LAST_WORDS_S = 20.0


class RunStopped(KeyboardInterrupt):
    """The run was stopped where it ran (`parley stop`), as by Ctrl-C here."""


def format_next_steps(error: KeyboardInterrupt, *, folder: Path, to: Path) -> str:
    """Return what to do next about a run in `folder`, after Ctrl-C here or a stop where it ran."""
    server, name = shlex.quote(str(to)), folder.name
    if not isinstance(error, RunStopped):
        return (
            f"The run continues on the server.\n  parley status {server}\n  parley stop {server} "
            f"{name}"
        )
    if not any((folder / name).exists() for name in ("run-id", PROPOSED_ID_FILE)):
        return "Stopped before its first round. Submit the job again."
    return f"Stopped. Continue with:\n  parley submit --to {server} --resume {name}"


class RunFollower:
    """Reports to an observer what is new in a run folder since the last look."""

    def __init__(self, folder: Path, observer: Observer | None) -> None:
        self._folder, self._observer = folder, observer
        self._started = False
        self._read = self._skipped = self._done = 0
        self._parties: dict[str, Any] = {}

    def look(self) -> None:
        """Read what is new and report it to the observer."""
        if self._observer is None:
            return
        if not self._started:
            self._report_start(self._observer)
        if self._started:
            self._report_rounds(self._observer)
        tell: Callable[[Any], None] | None = getattr(self._observer, "parties", None)
        content = load_party_states(self._folder) if tell is not None else {}
        if tell is not None and content and content != self._parties:
            self._parties = content
            tell(content)

    def _report_start(self, observer: Observer) -> None:
        content = _load_json(self._folder / "started.json")
        if content is not None:
            self._started = True
            plan = decode_plan(content["plan"])
            self._done = int(content["done"])
            # By now the job's `auto` values are resolved.
            observer.started(load_run_job(self._folder), plan, self._folder, self._done)

    def _report_rounds(self, observer: Observer) -> None:
        path = self._folder / "rounds.jsonl"
        try:
            with path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
        except OSError:
            return
        # A line that is still being written has no newline yet.
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            if self._skipped < self._done:
                # A round before the run was resumed: it was reported then.
                self._skipped += 1
            else:
                observer.round_done(RoundLine.parse(line.decode("utf-8"), path))


def wait_until_ended(
    folder: Path,
    ended: Callable[[], str | None],
    *,
    look: Callable[[], None] = lambda: None,
    every: int = _STATUS_EVERY,
) -> str:
    """Wait for the end of a job's or a query session's run, and return how it ended.

    Args:
        ended: Returns how the run's process ended, or None while it runs; may raise.
        look: Called at each look into the folder.
        every: Number of looks per call of `ended`.

    Raises:
        The error that ended the run, with its original class.
    """
    looks, how = 0, None
    while how is None:
        look()
        looks += 1
        time.sleep(_POLL_S)
        how = ended() if looks % every == 0 else None
    # The state is `stopped` immediately, but the coordinator still writes how the run ended.
    until = time.monotonic() + (_LAST_WORDS_S if how == "stopped" else 0.0)
    while not any((folder / name).exists() for name in ("error.json", "summary.json")):
        if time.monotonic() >= until:
            break
        time.sleep(_POLL_S)
    look()
    raise_remote(folder)
    return how


def follow(
    folder: Path,
    *,
    ended: Callable[[], str | None],
    observer: Observer | None,
    every: int = _STATUS_EVERY,
) -> RunSummary:
    """Follow a job's run to its end and return its summary; raise ProcessError without one."""
    how = wait_until_ended(folder, ended, look=RunFollower(folder, observer).look, every=every)
    summary = read_summary(folder)
    if summary is not None:
        return summary
    if how == "stopped":
        raise RunStopped
    own = folder / "logs" / "server.log"  # of an engine's run, or else of a server
    log = own if own.exists() else folder.parent.parent / "logs" / "server.log"
    raise ProcessError(
        f"The run ended ({how}) without a summary: its process was killed, or could not start. The "
        f"log {log} has its last messages. Continue with: --resume {folder.name}"
    )


def raise_remote(folder: Path) -> None:
    """Raise the error in `error.json`, if the file exists."""
    content = _load_json(folder / "error.json")
    if content is None:
        return
    name, message = str(content.get("error")), str(content.get("message"))
    if name == "builtins.KeyboardInterrupt":
        raise RunStopped
    place = folder / "error.json"
    unknown = f"The run failed on the server with {name}: {message} (details in {place})"
    raise rebuild_error(name, message, unknown=unknown)


def rebuild_error(name: str, message: str, *, unknown: str) -> Exception:
    """Return another process's error with its original class, else a ProcessError with `unknown`.

    Later lines of a message are indented, so that they do not look like lines of our own.
    """
    if name not in KNOWN_ERRORS:
        return ProcessError(unknown.replace("\n", "\n  "))
    module, _, kind = name.rpartition(".")
    known: type[Exception] = getattr(importlib.import_module(module), kind)
    # Do not call its constructor: it may take other arguments than the message.
    error = known.__new__(known)
    Exception.__init__(error, message.replace("\n", "\n  "))
    return error


def _load_json(path: Path) -> dict[str, Any] | None:
    try:
        content = parse_strict_json(read_text(path))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
