"""What `parley audit --matrix` runs: each law, algorithm, unit, relation and gradient way."""

from __future__ import annotations

from parley.privacy.mechanisms.share_laws import SHARED_LAWS
from parley.server.jobs.job import Job
from parley.simulations.audit.shapes import LEARNERS, answer_of

__all__ = ["CASES", "trials_of"]

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

CASES: tuple[tuple[str, ...], ...] = (
    # Gradient perturbation: each law, loss and weighting.
    (*_GRADIENT, "privacy.noise=gaussian"),
    (*_GRADIENT, "privacy.noise=discrete-gaussian", "privacy.calibration=cks20"),
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
    (*_OUTPUT, "privacy.noise=discrete-gaussian", "privacy.calibration=cks20"),
    # DP-SGD: relations, sampling, units, and each way of per-record gradients.
    (*_DP_SGD, _FULL),
    (*_DP_SGD, _FULL, _ADD),
    (*_DP_SGD, "dp-sgd.sampling-rate=0.25"),
    (*_DP_SGD, "dp-sgd.sampling-rate=0.25", _ADD),
    (*_DP_SGD, _FULL, "dp-sgd.clipped-fraction-share=0.05"),
    (*_DP_SGD, _FULL, "dp-sgd.precision=float32"),
    (*_DP_SGD, _FULL, "dp-sgd.per-example-method=vmap", "model.hidden=[]"),
    (*_DP_SGD, _FULL, "dp-sgd.per-example-method=opacus"),
    (*_DP_SGD, _FULL, "dp-sgd.per-example-method=loop"),
    (*_DP_SGD, _FULL, "model.hidden=[]"),
    (*_DP_SGD, "privacy.unit=party", "privacy.noise-point=server"),
    (*_DP_SGD, "privacy.unit=party", *_SHARES),
    (*_DP_SGD, "privacy.unit=both", "dp-sgd.sampling-rate=0.5", "privacy.noise-point=server"),
    # A release ahead of the rounds, and rounds on what it found.
    (*_DP_SGD, _FULL, "model.kind=pca-mlp", "privacy.noise-point=server"),
    (*_DP_SGD, _FULL, "model.kind=pca-mlp", _ADD, *_SHARES),
    # Distributed DP-SGD: every step a secure sum.
    (*_STEPS, _FULL, "privacy.noise-point=server"),
    (*_STEPS, _FULL, *_SHARES),
    (*_STEPS, "dp-sgd.sampling-rate=0.25", _ADD, "privacy.noise-point=server"),
    (*_STEPS, "dp-sgd.sampling-rate=0.25", "privacy.unit=both", "privacy.noise-point=server"),
    (*_STEPS, _FULL, "privacy.unit=party", "privacy.noise-point=server"),
)


def trials_of(job: Job, *, short: bool = False) -> int:
    """As many worlds as are cheap, many or few: networks cost more, and ways without a batch most.

    A share of a law that is not normal is settled in many digits.
    """
    cheap, shared = LEARNERS[job.model.learns].cheap, job.privacy.noise_point != "server"
    by_cost = (
        (cheap and shared and not SHARED_LAWS[job.noise].normal, 300, 40),
        (cheap, 100_000, 5_000),
        # Every party of every world trains by itself.
        (job.privacy.unit == "party" and shared, 2_000, 30),
        (answer_of(job.algorithm.kind).slow, 1_000, 40),
        (job.privacy.unit == "party", 20_000, 1_500),
        (job.dp_sgd.per_example_method in {"vmap", "opacus", "loop"}, 200, 30),
        (True, 5_000, 300),
    )
    many, few = next((many, few) for costs, many, few in by_cost if costs)
    return few if short else many
