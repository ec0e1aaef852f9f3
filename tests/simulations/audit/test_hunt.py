"""Random jobs from all over the space of valid job files, audited: none may be refuted."""

import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley.privacy.calibration.gaussian import CalibrationError
from parley.secure_agg.encoding import RingTooSmall
from parley.server.jobs.file import load_job
from parley.server.jobs.job import JobError
from parley.simulations.audit.measure import Effort, audit


def key(name, *values):
    return st.sampled_from([f"{name}={value}" for value in values])


COMMON = st.tuples(
    key("privacy.epsilon", 0.05, 0.3, 1, 3, 8, 20),
    key("privacy.delta", 1e-9, 1e-5, 1e-3),
    key("algorithm.rounds", 1, 2, 5, 12),
    key("parties.count", 1, 2, 7),
    key("secure-aggregation.ring-bits", "auto", 32, 64),
)
WEIGHTS = key("model.class-weights", "[]", "[]", "[1, 3]", "[0.2, 1]")
GRADIENT = st.tuples(
    st.just("algorithm.kind=gradient-perturbation"),
    key("model.kind", "logistic", "huber-svm", "ridge", "softmax"),
    key("model.lambda", 1e-4, 0.01, 1),
    key("algorithm.clip-norm", "auto", 1e-3, 0.1, 0.5, 3),
    key("parties.weights", "uniform", "size"),
    key("algorithm.momentum", 0, 0.9),
    key("algorithm.nesterov", "false", "false", "true"),
    key("privacy.neighbouring", "replace-one", "replace-one", "add-or-remove-one"),
    st.just("parties.min-records=2"),
    WEIGHTS,
)
OUTPUT = st.tuples(
    st.just("algorithm.kind=output-perturbation"),
    key("model.kind", "logistic", "huber-svm"),
    key("model.lambda", 0.05, 0.3, 1),
    key("algorithm.relative-tolerance", 1e-3, 0.1, 1),
    key("parties.weights", "uniform", "size"),
    WEIGHTS,
)
LAWS = st.sampled_from(
    [
        ("privacy.noise=gaussian", "privacy.calibration=exact", "privacy.noise-point=server"),
        ("privacy.noise=gaussian", "privacy.calibration=zcdp", "privacy.noise-point=server"),
        ("privacy.noise=gaussian", "privacy.calibration=as-printed", "privacy.noise-point=server"),
        ("privacy.noise=gaussian", "privacy.noise-point=share"),
        (
            "privacy.noise=discrete-gaussian",
            "privacy.calibration=cks20",
            "privacy.noise-point=server",
        ),
        ("privacy.noise=l2-laplace", "privacy.noise-point=server"),
        ("privacy.noise=laplace-l1", "privacy.noise-point=server"),
        ("privacy.noise=laplace-as-printed", "privacy.noise-point=server"),
        ("privacy.noise=auto", "privacy.noise-point=server"),
    ]
)
LINEAR = st.builds(lambda *parts: sum(parts, ()), COMMON, st.one_of(GRADIENT, OUTPUT), LAWS)
NETWORK = st.builds(
    lambda *parts: sum(parts, ()),
    COMMON,
    st.tuples(
        key("algorithm.kind", "fedavg", "distributed-dp-sgd"),
        key("model.kind", "mlp", "mlp", "pca-mlp"),
        key("model.hidden", "[]", "[8]", "[8, 8]"),
        key("privacy.noise-point", "server", "share"),
        WEIGHTS,
        key("dp-sgd.per-example-method", "auto", "auto", "ghost", "vmap", "opacus", "loop"),
        key("dp-sgd.optimiser", "sgd", "adam"),
        st.just("parties.min-records=200"),
        key("dp-sgd.sampling-rate", 0.05, 0.3, 0.9, 1),
        key("dp-sgd.local-steps", 1, 2, 4),
        key("dp-sgd.clip-norm", 1e-3, 0.5, 2),
        key("privacy.unit", "record", "party", "both"),
        key("privacy.neighbouring", "replace-one", "add-or-remove-one"),
        key("dp-sgd.clipped-fraction-share", 0, 0, 0.1),
        key("dp-sgd.precision", "float32", "float64"),
    ),
)


def check(overrides, trials, **shape):
    """Refuted, at the seed that the job gives: the job that did it."""
    # Seeded shares have a stream for each party of each world, which is slow.
    shares = "privacy.noise-point=share" in overrides
    seed = None if shares else zlib.crc32(repr(overrides).encode())
    try:
        reports = audit(
            load_job(None, overrides=overrides), Effort(trials=trials, seed=seed), **shape
        )
    except (JobError, CalibrationError, RingTooSmall):
        return  # Not a valid job.
    for report in reports:
        assert report.verdict != "refuted", (overrides, report.to_json()["results"])


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(overrides=LINEAR)
def test_no_random_job_of_a_linear_model_is_refuted(overrides):
    check(overrides, 1_000)


@pytest.mark.heavy
@pytest.mark.timeout(7200)
@settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(overrides=LINEAR, features=st.sampled_from([1, 2, 5]), records=st.sampled_from([1, 3, 20]))
def test_no_random_job_of_a_linear_model_is_refuted_by_many_trials(overrides, features, records):
    check(overrides, 20_000, features=features, records=records)


@pytest.mark.heavy
@pytest.mark.timeout(7200)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(overrides=NETWORK)
def test_no_random_job_of_a_network_is_refuted(overrides):
    check(overrides, 300)
