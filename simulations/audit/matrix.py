"""What `parley audit --matrix` runs: each law, algorithm, unit, relation and gradient way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from parley.server.jobs.file import load_job
from parley.server.jobs.job import Job
from parley.simulations.audit.audited import Audited
from parley.simulations.audit.matrix_queries import ASKED, Asked
from parley.simulations.audit.measure import views_of
from parley.simulations.audit.shapes import LEARNERS, answer_of

_GRADIENT = ("algorithm.rounds=4", "algorithm.clip-norm=0.4", "privacy.noise-point=server")
_OUTPUT = (
    "algorithm.kind=output-perturbation",
    "model.kind=huber-svm",
    "model.lambda=1",
    "privacy.noise-point=server",
)
_DP_SGD = (
    "algorithm.kind=fedavg",
    "model.kind=mlp",
    "parties.min-records=100",
    "privacy.epsilon=4",
    "algorithm.rounds=3",
    "dp-sgd.local-steps=1",
)
_STEPS = (*_DP_SGD, "algorithm.kind=distributed-dp-sgd", "algorithm.rounds=2")
_SHARES = ("privacy.noise-point=share", "parties.count=5")
_FULL = "dp-sgd.sampling-rate=1"
_ADD = "privacy.neighbouring=add-or-remove-one"
_DISCRETE = ("privacy.noise=discrete-gaussian", "privacy.calibration=cks20")
_TABLES = ("algorithm.kind=marginals", "model.kind=table", "parties.min-records=100")
_FEATURES = (
    *("algorithm.kind=random-features", "algorithm.frequencies=8"),
    *("model.kind=table", "parties.min-records=100"),
)
_COUNTED = (
    "algorithm.rounds=1",
    "parties.min-records=100",
    "evaluation.kind=federated",
    "evaluation.epsilon=1",
)

CASES: tuple[tuple[str, ...], ...] = (
    # Gradient perturbation: each law, loss and weighting.
    (*_GRADIENT, "privacy.noise=gaussian"),
    (*_GRADIENT, *_DISCRETE),
    (*_GRADIENT, "privacy.noise=l2-laplace"),
    (*_GRADIENT, "privacy.noise=laplace-l1"),
    (*_GRADIENT, "privacy.noise=laplace-as-printed"),
    ("algorithm.rounds=4", "privacy.epsilon=4", "privacy.noise-point=server"),
    (
        "algorithm.rounds=2",
        "model.kind=softmax",
        "data.source=digits",
        "privacy.noise-point=server",
    ),
    (
        "algorithm.rounds=2",
        "model.kind=huber-svm",
        "parties.weights=size",
        "privacy.noise-point=server",
    ),
    (*_GRADIENT, "privacy.calibration=as-printed"),
    # Noise in shares: the sum that a server with its colluders sees, and the one readers see.
    (*_GRADIENT, *_SHARES, "privacy.noise=gaussian"),
    (*_SHARES, "algorithm.rounds=1", "privacy.noise=laplace-l1"),
    (*_SHARES, "algorithm.rounds=1", "privacy.noise=l2-laplace"),
    # Output perturbation: each law.
    (*_OUTPUT, "privacy.noise=l2-laplace"),
    (*_OUTPUT, "privacy.noise=laplace-l1"),
    (*_OUTPUT, "privacy.noise=laplace-as-printed"),
    (*_OUTPUT, "privacy.noise=gaussian"),
    (*_OUTPUT, *_DISCRETE),
    # DP-SGD: relations, sampling, units, and each way of per-record gradients.
    (*_DP_SGD, _FULL),
    (*_DP_SGD, _FULL, _ADD),
    (*_DP_SGD, "dp-sgd.sampling-rate=0.25"),
    (*_DP_SGD, "dp-sgd.sampling-rate=0.25", _ADD),
    (*_DP_SGD, _FULL, "dp-sgd.clipped-fraction-share=0.05"),
    (*_DP_SGD, _FULL, "dp-sgd.precision=float32"),
    (*_DP_SGD, _FULL, "dp-sgd.per-example-method=vmap", "model.hidden=[]"),
    (*_DP_SGD, _FULL, "model.hidden=[]"),
    (*_DP_SGD, "privacy.unit=party", "privacy.noise-point=server"),
    (*_DP_SGD, "privacy.unit=party", *_SHARES),
    (*_DP_SGD, "privacy.unit=both", "dp-sgd.sampling-rate=0.5", "privacy.noise-point=server"),
    # Each party in a round by its own coin.
    (*_DP_SGD, "privacy.unit=party", "parties.per-round=0.5", "privacy.noise-point=server"),
    (*_DP_SGD, "privacy.unit=party", "parties.per-round=0.5", _ADD, "privacy.noise-point=server"),
    # A release ahead of the rounds, and rounds on what it found.
    (*_DP_SGD, _FULL, "model.kind=pca-mlp", "privacy.noise-point=server"),
    (*_DP_SGD, _FULL, "model.kind=pca-mlp", _ADD, *_SHARES),
    # Distributed DP-SGD: every step a secure sum.
    (*_STEPS, _FULL, "privacy.noise-point=server"),
    (*_STEPS, _FULL, *_SHARES),
    (*_STEPS, "dp-sgd.sampling-rate=0.25", _ADD, "privacy.noise-point=server"),
    (*_STEPS, "dp-sgd.sampling-rate=0.25", "privacy.unit=both", "privacy.noise-point=server"),
    (*_STEPS, _FULL, "privacy.unit=party", "privacy.noise-point=server"),
    # All of the noise in every party.
    (*_GRADIENT[:2], "privacy.noise-point=party"),
    (*_OUTPUT[:3], "privacy.noise-point=party"),
    ("algorithm.kind=objective-perturbation", "model.lambda=1", "privacy.noise-point=party"),
    # As of their papers: what they are charged, not what they print.
    ("algorithm.kind=pathak", *_OUTPUT[1:], "parties.count=2"),
    ("algorithm.kind=rajkumar-agarwal", *_GRADIENT, "privacy.epsilon=0.5"),
    # Tables of pairs, for synthetic rows.
    (*_TABLES, "privacy.noise-point=server"),
    (*_TABLES, *_DISCRETE, "privacy.noise-point=server"),
    (*_TABLES, _ADD, *_SHARES),
    (*_FEATURES, "privacy.noise-point=server"),
    (*_FEATURES, _ADD, *_SHARES),
    # After the rounds: right and wrong answers on records that were held out.
    (*_COUNTED, "privacy.noise-point=server"),
    (*_COUNTED, _ADD, "evaluation.by-class=true", *_SHARES),
)


Row = tuple[str, ...] | Asked
_SEEN: tuple[tuple[str, ...], ...] = (
    # A record is charged for the rounds that its party's coin puts it in, and the coin is seen.
    (*_DP_SGD, _FULL, "parties.per-round=0.5"),
    (*_DP_SGD, "dp-sgd.sampling-rate=0.25", "parties.per-round=0.5", _ADD),
)
ROWS: tuple[Row, ...] = (*CASES, *ASKED, *_SEEN)
"""What came last stands last: figures go by the number of a row."""


def matrix(
    *, overrides: Sequence[str] = (), short: bool = False, seed: int | None = None, **shape: Any
) -> Iterator[tuple[Audited, int]]:
    """Every claim to audit, and in how many worlds.

    Args:
        overrides: of every job.
        short: in few.
        seed: of the worlds.
        shape: of the jobs' worlds.
    """
    for row in ROWS:
        yield from claims_of(row, overrides=overrides, short=short, seed=seed, **shape)


def claims_of(
    row: Row,
    *,
    overrides: Sequence[str] = (),
    short: bool = False,
    seed: int | None = None,
    **shape: Any,
) -> Iterator[tuple[Audited, int]]:
    """The same of one row."""
    if isinstance(row, Asked):
        for each in row.claims(seed=seed):
            yield each, trials_of_queries(each, short=short)
        return
    job = load_job(None, overrides=[*row, *overrides])
    trials = trials_of(job, short=short)
    for each in views_of(job, seed=seed, **shape):
        yield each, trials


def row_name(row: Row) -> str:
    """What a row is, in few words."""
    return str(row) if isinstance(row, Asked) else " ".join(each.split(".")[-1] for each in row)


def written_out(claim: Audited) -> bool:
    """Whether every party of every world is trained by itself: 80 worlds a second."""
    return (
        claim.job is not None
        and claim.answer.noisy
        and claim.job.dp_sgd.per_example_method == "vmap"
    )


def trials_of(job: Job, *, short: bool = False) -> int:
    """As many worlds as are cheap, many or few: networks cost more, ways without a batch most."""
    shared = job.privacy.point.in_contributions
    slow = answer_of(job.algorithm.kind).slow
    if LEARNERS[job.model.learns].cheap and not slow:
        return _trials(shared=shared, short=short)
    by_cost = (
        # Every party of every world trains by itself.
        (job.privacy.unit == "party" and (shared or job.parties.per_round != "all"), 2_000, 30),
        (slow, 1_000, 40),
        (job.privacy.unit == "party", 20_000, 1_500),
        (job.dp_sgd.per_example_method == "vmap", 200, 30),
        (True, 5_000, 300),
    )
    many, few = next((many, few) for costs, many, few in by_cost if costs)
    return few if short else many


def trials_of_queries(audited: Audited, *, short: bool = False) -> int:
    """The same of a batch of queries."""
    return _trials(shared=audited.charged.shares is not None, short=short)


def _trials(*, shared: bool, short: bool) -> int:
    """Of what is cheap but for its noise."""
    if not short:
        return 100_000
    return 500 if shared else 5_000
