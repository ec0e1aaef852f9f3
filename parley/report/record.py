"""What a run's folder says about the run, read and checked: the facts a report is made of.

`read_run` takes `job.toml`, `rounds.jsonl` and `summary.json`. The summary is written when a run
ends, so a run that was interrupted has none: what it would say is then taken from the job and from
the rounds so far, and the record's `status` is "interrupted". Nothing here computes a privacy
figure; every ε, δ and ρ is the one that the run wrote down.
"""

import json
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from parley.client.contract.toml_reading import parse_toml

__all__ = ["ReportError", "RoundRecord", "RunRecord", "read_run"]

_FIGURES = (
    "loss",
    "baseline_loss",
    "excess_loss",
    "accuracy",
    "baseline_accuracy",
    "majority_accuracy",
)


class ReportError(Exception):
    """The run folder doesn't hold what a report needs; the message names the file."""

    __module__ = "parley.report.page"  # where users find it


@dataclass(frozen=True, kw_only=True)
class RoundRecord:
    """One line of `rounds.jsonl`.

    ``epsilons`` maps each conversion proved for what was released so far to its ε at ``delta``;
    ``epsilon`` is the one charged; ``party`` is the same of a second budget, the parties'.
    ``clipped`` is the released fraction of clipped gradients. Loss and accuracy are simulation-only
    figures.
    """

    number: int
    asked: int = 0
    answered: int = 0
    declined: int = 0
    dropped: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0
    epsilons: Mapping[str, float] = field(default_factory=dict)
    epsilon: float | None = None
    conversion: str = ""
    delta: float | None = None
    rho: float | None = None
    clipped: float | None = None
    loss: float | None = None
    test_loss: float | None = None
    accuracy: float | None = None
    party: "RoundRecord | None" = None


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run as its folder tells it. ``None`` or an empty text: the folder doesn't say.

    ``party_level`` and ``record_bounds`` are there where a run has two guarantees, ``clipped``
    where it released the fraction of clipped gradients.
    """

    name: str
    run_id: str
    status: str
    reason: str
    simulated: bool
    created: str
    parley_version: str
    algorithm: str
    model: str
    metric: str
    data: str
    parties: int
    records_by_party: Sequence[int]
    min_records: int | None
    weights: str
    rounds_planned: int
    rounds_done: int
    epsilon: float | None
    delta: float | None
    epsilon_budget: float | None
    delta_budget: float | None
    rho: float | None
    conversion: str
    unit: str
    neighbouring: str
    law: str
    calibration: str
    noise_point: str
    noise_scale: float | None
    noise_scale_of_sum: float | None
    noise_norm: float | None
    sensitivity: float | None
    seeded: bool | None
    shared_ledger: bool
    secure_sum: Mapping[str, Any]
    figures: Mapping[str, float | None]
    simulation_only: frozenset[str]
    seconds: float | None
    seconds_per_round: float | None
    advice: Sequence[str]
    rounds: Sequence[RoundRecord]
    notes: Sequence[str]
    job_text: str
    dp_sgd: Mapping[str, Any] = field(default_factory=dict)
    party_level: Mapping[str, Any] = field(default_factory=dict)
    record_bounds: Mapping[str, Any] = field(default_factory=dict)
    components: Mapping[str, Any] = field(default_factory=dict)
    clipped: Mapping[str, Any] = field(default_factory=dict)
    partition: Mapping[str, Any] = field(default_factory=dict)

    def of_parties(self) -> "RunRecord | None":
        """The run as its second guarantee sees it, of unit party; None where there is one only."""
        told = self.party_level
        if not told:
            return None
        noise = told.get("noise") or {}
        return replace(
            self,
            unit=str(told.get("unit", "party")),
            neighbouring=str(told.get("neighbouring", "replace-one")),
            epsilon=_lenient(told.get("epsilon")),
            delta=_lenient(told.get("delta")),
            epsilon_budget=_lenient(told.get("epsilon_budget")),
            delta_budget=_lenient(told.get("delta_budget")),
            rho=_lenient(told.get("rho")),
            conversion=str(told.get("conversion", "")),
            law=str(noise.get("law", "gaussian")),
            calibration=str(told.get("calibration", "")),
            noise_point="server",
            noise_scale=_lenient(noise.get("scale")),
            noise_scale_of_sum=_lenient(noise.get("scale_of_sum")),
            noise_norm=_lenient(noise.get("expected_norm")),
            sensitivity=_lenient(noise.get("sensitivity")),
            rounds=[
                replace(
                    line,
                    epsilons=line.party.epsilons,
                    epsilon=line.party.epsilon,
                    delta=line.party.delta,
                    rho=line.party.rho,
                )
                for line in self.rounds
                if line.party is not None
            ],
        )


def read_run(run_dir: Path) -> RunRecord:
    """Read a run folder.

    Raises ReportError when the folder or `job.toml` is missing, when a file isn't what its name
    says, or when there is neither a summary nor a finished round to report on.
    """
    if not run_dir.is_dir():
        raise ReportError(f"Expected a run folder, got {run_dir}, which is not a directory.")
    job_text = _text(run_dir / "job.toml")
    try:
        job = parse_toml(job_text)
    except tomllib.TOMLDecodeError as error:
        raise ReportError(f"Expected TOML in {run_dir / 'job.toml'}, got: {error}.") from error
    summary = _summary(run_dir / "summary.json")
    rounds, notes = _rounds(run_dir / "rounds.jsonl", required=summary is None)
    return _record(run_dir, job, summary, job_text=job_text, rounds=rounds, notes=notes)


def _record(
    run_dir: Path,
    job: Mapping[str, Any],
    summary: Mapping[str, Any] | None,
    *,
    job_text: str,
    rounds: Sequence[RoundRecord],
    notes: Sequence[str],
) -> RunRecord:
    where = run_dir / "summary.json"
    facts: Mapping[str, Any] = summary or {}
    noise = _table(facts, "noise", where)
    secure_sum = _table(facts, "secure_aggregation", where)
    last = rounds[-1] if rounds else RoundRecord(number=0)

    def job_value(section: str, key: str) -> Any:
        table = job.get(section)
        return table.get(key) if isinstance(table, Mapping) else None

    def real(key: str, fallback: object = None, table: Mapping[str, Any] = facts) -> float | None:
        return _real(table.get(key), key, where) if key in table else _lenient(fallback)

    def whole(key: str, fallback: object) -> int:
        return _whole(real(key, fallback))

    def word(key: str, fallback: object = "", table: Mapping[str, Any] = facts) -> str:
        value = table.get(key)
        value = fallback if value is None else value
        return str(value) if value is not None else ""

    status = word("status", "complete") if summary is not None else "interrupted"
    sizes = facts.get("records_by_party") or ()
    if not isinstance(sizes, list | tuple) or not all(_is_number(size) for size in sizes):
        raise ReportError(f"Expected numbers as records_by_party in {where}, got {sizes!r:.60}.")
    advice = facts.get("advice") or ()
    count = job_value("parties", "count")
    marked = facts.get("simulation_only")
    mode = {"mode": job_value("secure-aggregation", "backend") or ""}
    algorithm = word("algorithm", job_value("algorithm", "kind"))
    planned = 1 if algorithm == "output-perturbation" else job_value("algorithm", "rounds")
    law = job_value("privacy", "noise")
    if law == "default":
        law = "l2-laplace" if algorithm == "output-perturbation" else "gaussian"
    seed = job_value("run", "seed")
    seeded = noise.get("seeded", isinstance(seed, int) if seed is not None else None)
    scale, parties = real("scale", table=noise), whole("parties", last.asked or count)
    shown = any(line.loss is not None or line.accuracy is not None for line in rounds)
    return RunRecord(
        name=run_dir.resolve().name,
        run_id=word("run_id", _run_id(run_dir)),
        status=status,
        reason=word("reason"),
        simulated=shown or facts.get("engine") == "fast",
        created=word("created"),
        parley_version=word("parley_version"),
        algorithm=algorithm,
        model=word("model", job_value("model", "kind")),
        metric=word("metric", "accuracy"),
        data=word("data", job_value("data", "source")),
        parties=parties,
        records_by_party=tuple(int(size) for size in sizes),
        min_records=whole("min_records", job_value("parties", "min-records")) or None,
        weights=str(job_value("parties", "weights") or ""),
        rounds_planned=whole("rounds", planned or len(rounds)),
        rounds_done=whole("rounds_done", last.number),
        epsilon=real("epsilon", last.epsilon),
        delta=real("delta", last.delta),
        epsilon_budget=real("epsilon_budget", job_value("privacy", "epsilon")),
        delta_budget=real("delta_budget", job_value("privacy", "delta")),
        rho=real("rho", last.rho),
        conversion=word("conversion", last.conversion),
        # The specification's own default where a job doesn't say: replace one record.
        unit=word("unit", job_value("privacy", "unit") or "record"),
        neighbouring=word("neighbouring", job_value("privacy", "neighbouring") or "replace-one"),
        law=word("law", law, noise),
        calibration=word("calibration", job_value("privacy", "calibration")),
        noise_point=word("point", table=noise),
        noise_scale=scale,
        noise_scale_of_sum=real(
            "scale_of_sum", None if scale is None else scale * parties, table=noise
        ),
        noise_norm=real("expected_norm", table=noise),
        sensitivity=real("sensitivity", table=noise),
        seeded=seeded if isinstance(seeded, bool) else None,
        shared_ledger=bool(job_value("privacy", "ledger")),
        secure_sum=secure_sum or mode,
        figures=_figures(facts, rounds, where),
        simulation_only=frozenset(
            (*_FIGURES, "records_by_party", "partition") if marked is None else map(str, marked)
        ),
        seconds=real("seconds", sum(line.seconds for line in rounds) or None),
        seconds_per_round=real("seconds_per_round"),
        advice=(advice,) if isinstance(advice, str) else tuple(str(line) for line in advice),
        rounds=tuple(rounds),
        notes=tuple(notes),
        job_text=job_text,
        dp_sgd=_table(facts, "dp_sgd", where),
        party_level=_table(facts, "party_level", where) or _party_so_far(last, job_value),
        record_bounds=_table(facts, "record_bounds", where),
        components=_table(facts, "components", where),
        clipped=_table(facts, "clipped_fraction", where),
        partition=_table(facts, "partition", where),
    )


def _party_so_far(last: RoundRecord, job_value: Callable[[str, str], Any]) -> dict[str, Any]:
    """The second guarantee of a run that was interrupted, from its last round and its job."""
    if last.party is None:
        return {}
    epsilon, delta = job_value("privacy", "party-epsilon"), job_value("privacy", "party-delta")
    return {
        "epsilon": last.party.epsilon,
        "delta": last.party.delta,
        "rho": last.party.rho,
        "conversion": last.party.conversion,
        "epsilon_budget": job_value("privacy", "epsilon") if epsilon == "auto" else epsilon,
        "delta_budget": job_value("privacy", "delta") if delta == "auto" else delta,
    }


def _run_id(run_dir: Path) -> str:
    path = run_dir / "run-id"
    return _text(path).strip() if path.exists() else ""


def _figures(
    facts: Mapping[str, Any], rounds: Sequence[RoundRecord], where: Path
) -> dict[str, float | None]:
    figures = {name: _real(facts.get(name), name, where) for name in _FIGURES}
    if not facts:  # interrupted: the last ones; the baseline is computed when a run ends
        for line in rounds:
            figures["loss"] = line.loss if line.loss is not None else figures["loss"]
            figures["accuracy"] = (
                line.accuracy if line.accuracy is not None else figures["accuracy"]
            )
    return figures


def _summary(path: Path) -> Mapping[str, Any] | None:
    if not path.exists():
        return None
    try:
        summary = json.loads(_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ReportError(f"Expected JSON in {path}, got: {error}.") from error
    if not isinstance(summary, dict):
        raise ReportError(f"Expected a JSON object in {path}, got {type(summary).__name__}.")
    return summary


def _rounds(path: Path, *, required: bool) -> tuple[list[RoundRecord], list[str]]:
    """Rounds in order, each once, and remarks. The last line may be torn by a crash."""
    if not path.exists() and not required:
        return [], ["rounds.jsonl is missing: the report has the summary only."]
    lines = [line for line in _text(path).splitlines() if line.strip()]
    by_number: dict[int, RoundRecord] = {}
    notes: list[str] = []
    for number, line in enumerate(lines, start=1):
        try:
            record = _round(json.loads(line), f"{path}, line {number}")
        except (json.JSONDecodeError, RecursionError) as error:
            if number < len(lines):
                raise ReportError(f"Expected JSON in {path}, line {number}: {error}.") from error
            notes.append(f"The last line of rounds.jsonl (line {number}) is torn; it is left out.")
        else:
            by_number[record.number] = record  # a resumed run may write a round's line again
    if required and not by_number:
        raise ReportError(
            f"Expected summary.json or at least one finished round in {path.parent}, got neither."
        )
    return [by_number[number] for number in sorted(by_number)], notes


def _round(line: object, where: str) -> RoundRecord:
    if not isinstance(line, dict) or not _is_number(line.get("round")):
        raise ReportError(f"Expected a JSON object with a round number in {where}.")
    parties = _table(line, "parties", where)
    shown = _table(line, "simulation_only", where)
    epsilons = _table(line, "epsilon", where)

    def real(key: str, table: Mapping[str, Any]) -> float | None:
        return _real(table.get(key), key, where)

    def whole(key: str, table: Mapping[str, Any]) -> int:
        return _whole(real(key, table))

    proved = {str(name): real(str(name), epsilons) for name in epsilons}
    party = _table(line, "party_level", where)
    return RoundRecord(
        party=_round({"round": line["round"], **party}, where) if party else None,
        number=int(line["round"]),
        asked=whole("asked", parties),
        answered=whole("answered", parties),
        declined=whole("declined", parties),
        dropped=whole("dropped", parties),
        bytes_up=whole("bytes_up", line),
        bytes_down=whole("bytes_down", line),
        seconds=real("seconds", line) or 0.0,
        epsilons={name: value for name, value in proved.items() if value is not None},
        epsilon=real("epsilon_charged", line),
        conversion=str(line.get("conversion") or ""),
        delta=real("delta", line),
        rho=real("rho", line),
        clipped=real("clipped_fraction", line),
        loss=real("loss", shown),
        test_loss=real("test_loss", shown),
        accuracy=real("accuracy", shown),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ReportError(f"Expected {path.name} in {path.parent}, got no such file.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"Expected to read {path}, got: {error}.") from error


def _table(facts: Mapping[str, Any], key: str, where: object) -> Mapping[str, Any]:
    value = facts.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ReportError(f"Expected {key} to be an object in {where}, got {value!r:.60}.")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _real(value: object, key: str, where: object) -> float | None:
    """A number, or None where there is none (JSON's null, NaN); infinity stays (an infinite ε)."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ReportError(f"Expected {key} to be a number in {where}, got {value!r:.60}.")
    return float(value)


def _whole(value: float | None) -> int:
    return int(value) if value is not None and math.isfinite(value) else 0


def _lenient(value: object) -> float | None:
    """A job's value where the summary is missing: texts such as "auto" say nothing yet."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
