"""Golden texts: what a person reads of every kind of job, session, audit and sweep, word for word.

`python tests/vectors/make_golden.py` writes `golden/*.txt`: what `parley` prints, the text of its
pages, what the model file and the certificate state, and the answers of sessions in integers;
without times, places, digests (`golden_text.py`). With `--check` it compares, to the last character
on the machine that made them; names of texts limit both. `tests/test_golden.py` compares on any
machine, where the last digits may differ.

All are made with a seed, but for certificates: no seeded run gets one, none says what was drawn.
"""

from __future__ import annotations

import difflib
import functools
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from golden_sessions import SESSIONS, asked_in, composed, session
from golden_text import Sections, call, plain, text_of
from make_runs import JOBS

from parley.presentation.short_run import list_run_lines
from parley.server.jobs.job_file import load_job
from parley.server.model_file import open_model
from parley.server.records.run_reader import read_summary
from parley.simulations.engine.fast_engine import simulate
from parley.version import __version__

GOLDEN = Path(__file__).parent / "golden"
_EXAMPLES = Path(__file__).parents[2] / "examples"
_FIXTURES = Path(__file__).parents[1] / "fixtures"

_NETWORK = (
    *("model.kind=mlp", "model.hidden=[4]", "parties.count=3", "algorithm.rounds=2"),
    *("dp-sgd.sampling-rate=0.2", "dp-sgd.local-steps=2", "privacy.epsilon=8"),
)
_DISTRIBUTED = ("algorithm.kind=distributed-dp-sgd", *_NETWORK)
_TABLE = ("model.kind=table", "algorithm.steps=5", "algorithm.rows=40")

MORE: dict[str, tuple[str, ...]] = {
    "objective": ("algorithm.kind=objective-perturbation", "privacy.noise-point=party"),
    "pathak": ("algorithm.kind=pathak",),
    "rajkumar-agarwal": ("algorithm.kind=rajkumar-agarwal", "privacy.dataset-epsilon=4"),
    "noise-in-every-party": ("privacy.noise-point=party",),
    "own-algorithm": (
        f"algorithm.kind={_EXAMPLES / 'federated_count.py'}:FederatedCount",
        *("algorithm.rounds=1", "model.kind=none", "privacy.neighbouring=add-or-remove-one"),
    ),
    "flower-app": (
        *("algorithm.kind=flower", f"model.kind={_FIXTURES / 'flower_apps.py'}:quiet"),
        *("algorithm.rounds=2", "privacy.unit=party", "privacy.epsilon=8"),
    ),
    "own-loss": (
        *("model.kind=own-loss", "model.steeper=clip"),
        f"model.loss={Path(__file__).resolve()}:squared_hinge",
    ),
    "class-weights": ("model.class-weights=[1, 3]",),
    "held-out-counts": (*("evaluation.kind=federated", "evaluation.epsilon=5"),),
    "scattering": (
        *("data.source=digits", "model.kind=softmax", "model.features=scattering"),
        *("model.feature-settings={scales = 1, groups = 9}", "algorithm.rounds=2"),
    ),
    "random-fourier": ("model.features=random-fourier", "algorithm.rounds=2"),
    "bins": ("model.features=bins", "algorithm.rounds=2"),
    "marginals": ("algorithm.kind=marginals", "algorithm.pairs=label", *_TABLE),
    "random-features": ("algorithm.kind=random-features", "algorithm.frequencies=20", *_TABLE),
    "distributed": _DISTRIBUTED,
    "distributed-party": (*_DISTRIBUTED, "privacy.unit=party"),
    "distributed-both": (*_DISTRIBUTED, "privacy.unit=both", "dp-sgd.optimiser=adam"),
    "sampled-parties": (*_DISTRIBUTED, "privacy.unit=party", "parties.per-round=0.5"),
    "drawn-parties": (
        *("algorithm.kind=fedavg", *_NETWORK, "privacy.unit=party", "parties.per-round=2"),
    ),
    "canaries": ("model.kind=huber-svm", "privacy.epsilon=8"),
    "too-few-survivors": ("run.faults=drop:0.9",),
}
"""Overrides of the default job by name, beside those of `make_runs.JOBS`."""
_WORDS = {"canaries": ("--audit", "canaries=20")}
_TRUST = dict.fromkeys(("own-algorithm", "own-loss", "flower-app"), ("--trust-code",))
_CHANCE = {"gradients-clipped-faults", "too-few-survivors"}
"""Who drops out is drawn: what an unseeded run states differs from run to run."""


def squared_hinge(margins: Any, labels: Any) -> Any:
    """A loss of one's own."""
    return np.maximum(0.0, 1 - margins * labels) ** 2 / 2


def _sets(*keys: str) -> list[str]:
    return [word for key in keys for word in ("--set", key)]


def job(name: str, folder: Path) -> Sections:
    """A job as it is planned, run and reported, and what is stated of its model."""
    keys = ("privacy.noise-point=server", *(JOBS | MORE)[name], "data.seed=3")
    run, own = folder / "run", folder / "unseeded" / "run"
    said = {
        "plan": call("plan", "-v", *_sets(*keys), *_TRUST.get(name, ())),
        "plan in short": call("plan", *_sets(*keys), *_TRUST.get(name, ())),
        "terminal": call(
            *("run", "-v", *_sets(*keys, "run.seed=7"), *_WORDS.get(name, ()), "--out", run)
        ),
        "terminal in short": run_in_short(run),
        "model in short": call("show", run) if (run / "model.safetensors").exists() else "no model",
        "page": text_of(run / "report.html"),
        "statement of a seeded model": stated(run),
    }
    if name in _CHANCE:
        return said
    # Without a page: that would say what was drawn. Neither text says what the baseline reaches.
    simulate(load_job(overrides=[*keys, "run.baseline=false"]), out=own, version=__version__)
    return said | {"statement": stated(own), "certificate": certified(own, folder)}


def run_in_short(run: Path) -> str:
    """What `parley run` prints without -v."""
    summary = read_summary(run)
    return "" if summary is None else "\n".join(list_run_lines(summary, run))


def stated(run: Path) -> str:
    """The privacy statement in a run's model file."""
    if not (run / "model.safetensors").exists():
        return "no model"
    said = open_model(run).statement
    return "\n".join(f"{key}: {text}" for key, text in sorted(said.items()))


def certified(run: Path, folder: Path) -> str:
    """A run's certificate, and what came of verifying it."""
    out = run / "certificate.json"
    issued = call("certificate", run, "--key", folder / "signer.key", "--out", out)
    if not out.exists():
        return issued
    facts = sorted(json.loads(out.read_text())["statement"].items())
    lines = "\n".join(f"{key}: {json.dumps(fact)}" for key, fact in facts)
    return f"{call('certificate', 'verify', out, '--run', run)}{lines}"


def deployed(folder: Path) -> Sections:
    """A run by parties' services and a coordinator, and its report."""
    sys.path.append(str(_FIXTURES))
    from among_parties import among_parties

    keys = (*JOBS["gradients-masked"], "run.seed=7", "parties.count=3")
    run = among_parties(load_job(overrides=list(keys)), folder)
    call("report", run)
    return {"page": text_of(run / "report.html"), "statement of a seeded model": stated(run)}


def shared_ledger(folder: Path) -> Sections:
    """Two runs that share a ledger, side by side, and a third that it refuses, or cuts short."""
    ledger = folder / "ledger.sqlite"
    keys = [f"privacy.ledger={ledger}", "privacy.dataset-epsilon=1.6", "run.seed=7"]
    runs = [folder / name for name in ("first", "second")]
    for run, rounds in zip(runs, (2, 3), strict=True):
        call("run", *_sets(*keys, f"algorithm.rounds={rounds}"), "--out", run)
    page, third = folder / "compared.html", folder / "third"
    return {
        "compare": call("compare", *runs, "--out", page),
        "page": text_of(page),
        "ledger": call("ledger", "show", ledger),
        "verified": call("ledger", "verify", ledger),
        "plan": call("plan", "-v", *_sets(*keys)),
        "plan in short": call("plan", *_sets(*keys)),
        "refused": call("run", *_sets(*keys), "--out", third),
        "cut short": call("run", "-v", *_sets(*keys), "--partial", "--out", third),
        "cut short, in short": run_in_short(third),
        "page of what was cut short": text_of(third / "report.html"),
    }


_SWEEP: dict[str, Any] = {
    "parties": {"count": 3},
    "data": {"source": "synthetic", "records": 120},
    "algorithm": {"rounds": 2},
    "sweep": {
        "seeds": 2,
        "grid": {"privacy.epsilon": [0.5, 2]},
        "methods": {
            "shares": {"privacy.noise-point": "share"},
            "server": {"privacy.noise-point": "server"},
        },
        "non-private": ["aggregated"],
    },
}


def sweep(folder: Path) -> Sections:
    """A grid of eight runs."""
    (folder / "sweep.toml").write_text(tomli_w.dumps(_SWEEP))
    out = folder / "swept"
    words = ("sweep", folder / "sweep.toml", "--out", out, "--workers", 1, "--quiet")
    short, said = call(*words), call(*words, "-v")
    (page,) = out.glob("*.html")
    return {"terminal": said, "terminal in short": short, "page": text_of(page)}


_QUICK = ("--trials", "200", "--seed", "4")
_AUDITED = _sets("algorithm.rounds=1", "privacy.noise-point=server")
AUDITS: dict[str, tuple[str, ...]] = {
    "server": (*_QUICK, *_AUDITED),
    "shares": (*_QUICK, *_sets("algorithm.rounds=1")),
    "party": (
        *_QUICK,
        *_sets(*_DISTRIBUTED, "privacy.unit=party", "parties.min-records=20"),
        *("--attack", "party", "--method", "mu"),
    ),
    "released": (*_QUICK, *_AUDITED, "--attack", "membership,clipbkd,label-flip"),
}
"""Words of `parley audit` by name."""


def audit(name: str, folder: Path) -> Sections:
    """An audit of a job, and its page."""
    said = call("audit", "job", *AUDITS[name], "--out", folder / "found")
    return {"terminal": said, "page": text_of(folder / "found" / "audit.html")}


def audit_of_queries(folder: Path) -> Sections:
    """An audit of a file of queries."""
    said = call("audit", "job", asked_in(folder, "persons"), *_QUICK, "--out", folder / "found")
    return {"terminal": said, "page": text_of(folder / "found" / "audit.html")}


_ERRORS = ("--false-positives", "40/1000", "--false-negatives", "300/1000")
_GUESSED = ("--canaries", "500", "--guesses", "200", "--right", "150")
BOUNDS = {
    "pair": ("--hits-in", "400/1000", "--hits-out", "100/1000"),
    "mu": _ERRORS,
    "one-run": _GUESSED,
    "one-run-fdp": _GUESSED,
    "factor": ("--law", "gaussian", *("--vectors", "9", "--dimension", "3", "--mean-norm", "1")),
}
"""Words of `parley audit bound` by its command."""


def bounds(folder: Path) -> Sections:
    """Bounds from counts."""
    del folder
    return {name: call("audit", "bound", name, *words) for name, words in BOUNDS.items()}


def job_file(folder: Path) -> Sections:
    """Every key of a job with its comment."""
    del folder
    return {"terminal": call("run", "--print-job")}


def _all(prefix: str, names: Any, made: Callable[[str, Path], Sections]) -> dict[str, Any]:
    return {f"{prefix}-{name}": functools.partial(made, name) for name in names}


TEXTS: dict[str, Callable[[Path], Sections]] = {
    **_all("job", JOBS | MORE, job),
    "job-deployed": deployed,
    "job-file": job_file,
    **_all("session", SESSIONS, session),
    "session-composed": composed,
    **_all("audit", AUDITS, audit),
    "audit-queries": audit_of_queries,
    "audit-bounds": bounds,
    "ledger": shared_ledger,
    "sweep": sweep,
}
"""Name of a golden text → what makes its sections in a folder."""


def known(name: str) -> str:
    """A golden text as it is kept."""
    return (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def made(name: str) -> str:
    """A golden text as it is now."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        sections = TEXTS[name](folder)
        return "".join(f"== {title}\n{plain(text, folder)}\n\n" for title, text in sections.items())


if __name__ == "__main__":
    check, names = "--check" in sys.argv, [each for each in sys.argv[1:] if each[0] != "-"]
    differ = False
    for name in names or TEXTS:
        text = made(name)
        if not check:
            (GOLDEN / f"{name}.txt").write_text(text, encoding="utf-8")
        elif text != known(name):
            differ = True
            lines = (known(name).splitlines(), text.splitlines())
            print("\n".join(difflib.unified_diff(*lines, name, "now", lineterm="", n=0)))
    sys.exit(differ)
