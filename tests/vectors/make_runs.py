"""Seeded runs, whole: what a change of structure must leave as it is.

`python tests/vectors/make_runs.py` writes `runs.json`: for every job below the model, every
round's line, the plan, the ledger's entries and the summary, without times and places.
`python tests/vectors/make_runs.py --check` compares to the last bit on the machine that made them;
`tests/test_seeded_runs.py` compares on any machine, where floating-point kernels may differ.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent / "runs.json"

_FEDAVG = (
    "algorithm.kind=fedavg",
    "model.kind=mlp",
    "model.hidden=[4]",
    "algorithm.rounds=2",
    "parties.count=3",
    "dp-sgd.sampling-rate=0.2",
    "dp-sgd.local-steps=2",
)

_BEFORE = ("privacy.noise-point=server", "algorithm.rounds=10")
"""What was meant before defaults were others."""

JOBS: dict[str, tuple[str, ...]] = {
    "gradients": (),
    "gradients-sizes-momentum": (
        "parties.weights=size",
        "data.partition=dirichlet",
        "algorithm.momentum=0.5",
        "algorithm.average=false",
        "run.evaluate-every=3",
    ),
    "gradients-clipped-faults": (
        "parties.count=8",
        "algorithm.clip-norm=0.5",
        "run.faults=drop:0.2,decline:0.1",
        "model.intercept=false",
    ),
    "gradients-masked": ("secure-aggregation.backend=masked", "algorithm.rounds=3"),
    "gradients-discrete": ("privacy.noise=discrete-gaussian", "privacy.calibration=cks20"),
    "gradients-as-printed": ("privacy.calibration=as-printed", "privacy.epsilon=0.5"),
    "softmax": ("model.kind=softmax", "data.source=digits", "model.features=none"),
    "ridge": ("model.kind=ridge", "data.source=synthetic", "data.records=500", "model.radius=2"),
    "svm": ("model.kind=huber-svm",),
    "output": ("algorithm.kind=output-perturbation",),
    "output-pure": (
        "algorithm.kind=output-perturbation",
        "privacy.delta=0",
        "privacy.noise=laplace-l1",
        "parties.weights=size",
    ),
    "output-auto": ("algorithm.kind=output-perturbation", "privacy.noise=auto"),
    "output-as-printed": (
        "algorithm.kind=output-perturbation",
        "privacy.noise=laplace-as-printed",
        "privacy.epsilon=0.2",
        "privacy.dataset-epsilon=1",
    ),
    "record": _FEDAVG,
    "record-clipped-fraction": (*_FEDAVG, "dp-sgd.clipped-fraction-share=0.05"),
    "record-add-or-remove": (
        *_FEDAVG,
        "privacy.neighbouring=add-or-remove-one",
        "parties.min-records=100",
        "dp-sgd.server-optimiser=adam",
        "dp-sgd.optimiser=adam",
        "dp-sgd.per-example-method=vmap",
    ),
    "party": (*_FEDAVG, "privacy.unit=party", "privacy.epsilon=8", "dp-sgd.precision=float32"),
    "both": (
        *_FEDAVG,
        "privacy.unit=both",
        "privacy.party-epsilon=4",
        "privacy.party-delta=1e-4",
    ),
    "components": (
        *_FEDAVG,
        "model.kind=pca-mlp",
        "model.components=4",
        "data.source=digits",
    ),
    "shares": ("privacy.noise-point=share", "run.noise-shares=full", "algorithm.rounds=3"),
    "shares-dealt": (
        "privacy.noise-point=share",
        "run.noise-shares=deal",
        "parties.count=8",
        "algorithm.rounds=3",
    ),
    "shares-16-bits": (
        "privacy.noise-point=share",
        "secure-aggregation.ring-bits=16",
        "algorithm.rounds=2",
    ),
    "shares-l2-laplace": ("privacy.noise-point=share", "algorithm.kind=output-perturbation"),
    "shares-laplace-l1": (
        "privacy.noise-point=share",
        "algorithm.kind=output-perturbation",
        "privacy.noise=laplace-l1",
        "privacy.delta=0",
    ),
    "shares-components": (
        *_FEDAVG,
        "privacy.noise-point=share",
        "model.kind=pca-mlp",
        "model.components=4",
        "data.source=digits",
    ),
    "public-components": (
        *_FEDAVG,
        "model.kind=pca-mlp",
        "model.components=4",
        "model.pca=public",
    ),
}
"""Overrides of the default job by name; all with a seed."""

_TIMES = {
    "seconds", "seconds_per_round", "peak_mib", "data_mib", "stage_seconds", "created",
    "run_dir", "run_id", "ledger_head",
    "parley_version", "seed", "job", "setup_stage_seconds", "hash", "previous", "at", "bytes_up",
    "bytes_down", "fingerprint", "dataset", "statement", "masked_check", "advice", "warnings",
    "format", "judgement", "baseline_judgement", "algorithm_title", "assumptions",
}  # fmt: skip


def record(overrides: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """One run, as plain values without times, places and figures of the held-out records."""
    import parley

    job = parley.load_job(overrides=[*_BEFORE, *overrides, "run.seed=7", "data.seed=3"])
    result = parley.run(job, out=folder / "run")
    lines = (result.folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    summary = json.loads((result.folder / "summary.json").read_text(encoding="utf-8"))
    del summary["simulation_only"]  # the names of figures, which may become more
    return {
        "theta": [float(value) for value in result.theta],
        "rounds": [_plain(json.loads(line)) for line in lines],
        "summary": _plain(summary),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        # What is not known is absent, or null in an older format.
        told = {k: v for k, v in sorted(value.items()) if k not in _TIMES and v is not None}
        return {k: _plain(v) for k, v in told.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def record_all() -> dict[str, Any]:
    """Every job's record."""
    records = {}
    for name, overrides in JOBS.items():
        with tempfile.TemporaryDirectory() as folder:
            records[name] = record(overrides, Path(folder))
    return records


def differences(old: Any, new: Any, place: str = "") -> list[str]:
    """Where two records differ, by path."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            found
            for key in sorted(set(old) | set(new))
            for found in differences(old.get(key), new.get(key), f"{place}.{key}")
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            found
            for at, (one, other) in enumerate(zip(old, new, strict=True))
            for found in differences(one, other, f"{place}[{at}]")
        ]
    return [] if old == new else [f"{place}: {old!r} -> {new!r}"]


if __name__ == "__main__":
    made = record_all()
    if "--check" in sys.argv:
        known = json.loads(VECTORS.read_text(encoding="utf-8"))
        found = differences(known, made)
        print("\n".join(found[:200]) or "the same to the last bit")
        sys.exit(bool(found))
    VECTORS.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", encoding="utf-8")
