"""Who of a run's parties declines, for the operator: reason class, what was asked, where to look.

A party says one reason class and no more (`parley.client.contract.protocol.Reason`). What each may
mean is public; which of it is true is in that party's own `party.log`, for its owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parley.client.contract.file_reading import text_of
from parley.client.contract.model_names import public_name
from parley.client.contract.printable import one_line
from parley.client.contract.protocol import strict_json
from parley.privacy.accounting.rounding import as_written
from parley.server.jobs.job import Job
from parley.server.rounds.inspection import served_name

MEANINGS = {
    "unknown-dataset": "its party.toml serves no data set of that name",
    "data-unreadable": "its data file or schema cannot be read",
    "schema": "its schema is another than the others'",
    "sizes-not-disclosed": "its number of records is private: by its budget (unit party or both, "
    "or add-or-remove-one), or by its policy",
    "version": "it has another version of Parley",
    "clock-skew": "its clock and the server's differ by more than its policy allows",
    "unknown-session": "it does not know this run: it was restarted without its state",
    "wrong-run": "its roster is another than the server's",
    "cohort-too-small": "fewer parties than its policy's min-parties or min-survivors",
    "unit": "its data set's budget is for another privacy.unit",
    "neighbouring": "its data set's budget is for another privacy.neighbouring",
    "mechanism": "its policy does not accept this noise",
    "calibration": "the noise is smaller than it computes itself for what the job claims",
    "seeded-noise": "the job has a seed, which is for simulations",
    "algorithm": "its policy does not accept this algorithm or its settings",
    "model": "its party.toml does not accept this model, or its labels do not fit it",
    "sensitivity": "one record of its can change more than the job's noise covers",
    "too-few-records": "it has fewer records than parties.min-records or its policy asks for",
    "budget-exhausted": "the job asks for more than its policy allows a job, or than is left",
    "record-bound": "its records are to be covered by noise that only the server adds",
    "grid": "the sum's grid is coarser than it computes itself",
    "degenerate": "the task would make contributions zero or constant",
    "plan-changed": "the server asked for another release than it had agreed to",
    "other-survivors": "it opened this release with other survivors; a new run is another release",
    "protocol": "the server's message was malformed, or came out of turn",
    "busy": "it is answering another request",
    "error": "something failed on its machine",
}
"""What a reason class may mean; each is about public facts and the party's own policy."""


def asked(job: Job) -> str:
    """What a job asks of a party, all of it public.

    >>> from parley.server.jobs.file import load_job
    >>> asked(load_job(overrides=["data.source=ward"]))  # doctest: +ELLIPSIS
    'epsilon = 1, delta = 1e-05 for a record (replace-one) of ward, gradient-perturbation, ...'
    """
    own = job.privacy
    first, *others = (
        f"epsilon = {as_written(each.epsilon)}, delta = {as_written(each.delta)} for a {each.unit}"
        for each in job.budgets
    )
    both = "".join(f" and {each}" for each in others)
    return (
        f"{first} ({own.neighbouring}){both} of {served_name(job)}, {job.algorithm.kind}, "
        f"{getattr(job.algorithm, 'rounds', 1)} rounds, {job.parties.count} parties"
    )


def refusals(run: Path, job: Job) -> list[str]:
    """A line for every party of a run that declines, as its board has it; none for none."""
    parties = board_of(run).get("parties", [])
    lost = [party for party in parties if party["state"] in {"declined", "failed"}]
    if not lost:
        return []
    lines = [f"The job asks {asked(job)}."]
    for party in lost:
        reason = party["reason"]
        meaning = MEANINGS.get(reason, "")
        lines.append(
            f"  {party['name']} {party['state']}"
            + (f" ({reason}{f': {meaning}' if meaning else ''})" if reason else "")
            + f"; its owner finds the cause in {party['name']}'s party.log."
        )
    if ":" in job.model.kind and any(party["reason"] == "model" for party in lost):
        name = public_name(job.model.kind)
        lines.append(
            "A party never runs a server's code. Its owner puts a file that it has read beside the "
            f'party\'s own party.toml, and lists the model there: "{name}" in models.'
        )
    return lines


def counted(refused: Mapping[str, int]) -> tuple[str, ...]:
    """How many parties refused something in a run, by the class of their reason.

    >>> counted({"clock-skew": 2})[0]
    "2 parties: clock-skew (its clock and the server's differ by more than its policy allows)"
    """
    return tuple(
        f"{count} {'party' if count == 1 else 'parties'}: {reason}"
        + (f" ({MEANINGS[reason]})" if reason in MEANINGS else "")
        for reason, count in sorted(refused.items())
    )


def board_of(run: Path) -> dict[str, Any]:
    """Where a run's parties stand (`rounds.party_status`); empty where it is not known."""
    try:
        return board_from(strict_json(text_of(run / "parties.json")))
    except (OSError, ValueError):
        return {}


def board_from(said: Any) -> dict[str, Any]:
    """A board that came from elsewhere, its texts one line each; empty where it is none."""
    if not isinstance(said, dict) or not isinstance(said.get("parties"), list):
        return {}
    parties, refused = said["parties"], said.get("refused", {})
    if not all(isinstance(each, dict) for each in (refused, *parties)):
        return {}
    return {
        "round": said["round"] if isinstance(said.get("round"), int) else 0,
        "stage": one_line(str(said.get("stage", ""))),
        "parties": [
            {key: one_line(str(each.get(key) or "")) for key in ("name", "state", "reason")}
            for each in parties
        ],
        "refused": {
            one_line(reason): count for reason, count in refused.items() if type(count) is int
        },
    }
