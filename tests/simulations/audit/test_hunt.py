"""Random jobs from all over the space of valid job files, audited: none may be refuted."""

import math
import zlib
from collections import Counter
from contextlib import suppress

import pytest
from audit_matrix import SCHEMA
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from parley.client.queries.base import QueryError
from parley.client.queries.correlations import CorrelationsQuery
from parley.client.queries.count_queries import Count, Histogram, MarginalsQuery
from parley.client.queries.filters.expressions import col
from parley.client.queries.kmeans import KMeansGrid, KMeansStep
from parley.client.queries.mode_query import Mode
from parley.client.queries.moments import Mean, Variance
from parley.client.queries.quantiles import Quantiles
from parley.client.queries.regression.regression_query import RegressionQuery
from parley.client.queries.sum_queries import ColumnSum
from parley.client.queries.survival import Survival
from parley.privacy.accounting.threat_model import NOISE_POINTS, Neighbouring
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.secure_agg.encoding import RingTooSmall
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.simulations.audit.audit_job_shrinking import AuditError
from parley.simulations.audit.audit_target import build_query_target
from parley.simulations.audit.guarantee_audit import (
    Effort,
    audit,
    audit_guarantee,
    choose_trials,
    list_views,
)


def key(name, *values):
    return st.sampled_from([f"{name}={value}" for value in values])


def squared_hinge(z, y):
    return max(0.0, 1 - y * z) ** 2


def log_cosh(z, y):
    return math.log(math.cosh(z - y))


BUDGET = st.tuples(
    key("privacy.epsilon", 0.05, 0.3, 1, 3, 8, 20),
    key("privacy.delta", 1e-9, 1e-5, 1e-3),
    key("secure-aggregation.ring-bits", "auto", 32, 64),
)
ROUNDS = st.tuples(key("algorithm.rounds", 1, 2, 5, 12))
COMMON = st.builds(
    lambda *parts: sum(parts, ()), BUDGET, ROUNDS, st.tuples(key("parties.count", 1, 2, 7))
)
WEIGHTS = key("model.class-weights", "[]", "[]", "[1,3]", "[0.2,1]")
GRADIENT = st.tuples(
    st.just("algorithm.kind=gradient-perturbation"),
    st.one_of(
        key("model.kind", "logistic", "huber-svm", "ridge", "softmax"),
        key("model.kind=own-loss model.steeper=clip model.loss", f"{__file__}:squared_hinge"),
        key("model.kind=own-residual-loss model.loss", f"{__file__}:log_cosh"),
        key("model.features", "random-fourier"),
    ),
    key("model.lambda", 1e-4, 0.01, 1),
    key("algorithm.clip-norm", "auto", 1e-3, 0.1, 0.5, 3),
    key("algorithm.momentum", "0", "0.9", "0.9 algorithm.nesterov=true"),
    st.one_of(
        key("parties.weights", "uniform", "size"),
        st.just("privacy.neighbouring=add-or-remove-one"),
    ),
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
WAYS = key("dp-sgd.per-example-method", "auto", "vmap")
NETWORK_OF_UNIT = st.one_of(
    st.tuples(
        st.just("privacy.unit=record"),
        key("privacy.neighbouring", "replace-one", "add-or-remove-one"),
        key("dp-sgd.sampling-rate", 0.05, 0.3, 0.9, 1),
        key("dp-sgd.local-steps", 1, 2, 4),
        key("dp-sgd.clip-norm", 1e-3, 0.5, 2),
        st.one_of(
            key("algorithm.kind=fedavg dp-sgd.clipped-fraction-share", 0, 0.1),
            key("algorithm.kind=fedavg parties.count=7 parties.per-round", 1, 0.15, 0.6),
            key("algorithm.kind=distributed-dp-sgd parties.count", 1, 2, 7),
            key("algorithm.kind=distributed-dp-sgd parties.count=7 parties.per-round", 0.15, 0.6),
        ),
        WAYS,
        key("model.kind", "mlp", "mlp", "pca-mlp"),
    ),
    st.tuples(
        st.just("privacy.unit=party"),
        key("algorithm.kind", "fedavg", "distributed-dp-sgd"),
        st.one_of(
            key("parties.count", 2, 7),
            key("parties.count=7 parties.per-round", 1, 0.15, 0.6),
            key("parties.count=7 parties.presence=known parties.per-round", 0.15, 0.6),
        ),
        key("dp-sgd.party-clip-norm", 1e-3, 0.5, 2),
    ),
    st.tuples(
        st.just("privacy.unit=both"),
        key("privacy.neighbouring", "replace-one", "add-or-remove-one"),
        key("algorithm.kind", "fedavg", "distributed-dp-sgd"),
        key("dp-sgd.sampling-rate", 0.05, 0.3, 0.9, 1),
        key("dp-sgd.local-steps", 1, 2),
        key("dp-sgd.clip-norm", 1e-3, 0.5, 2),
        key("dp-sgd.party-clip-norm", 0.5, 2),
        key("parties.count", 2, 7),
        WAYS,
    ),
)
NETWORK = st.builds(
    lambda *parts: sum(parts, ()),
    st.just(("model.kind=mlp", "parties.min-records=200")),
    BUDGET,
    ROUNDS,
    NETWORK_OF_UNIT,
    st.tuples(
        key("model.hidden", "[]", "[8]", "[8,8]"),
        key("privacy.noise-point", "server", "share"),
        WEIGHTS,
        key("dp-sgd.optimiser", "sgd", "adam"),
        key("dp-sgd.precision", "float32", "float64"),
    ),
)


TABLES = st.builds(
    lambda *parts: sum(parts, ()),
    BUDGET,
    st.tuples(
        key("parties.count", 1, 2, 7),
        st.one_of(
            st.just("algorithm.kind=marginals"),
            key("algorithm.kind=random-features algorithm.frequencies", 1, 8),
        ),
        st.just("model.kind=table"),
        st.just("parties.min-records=50"),
        key("privacy.neighbouring", "replace-one", "add-or-remove-one"),
        key("privacy.noise-point", "server", "share"),
    ),
    st.sampled_from(
        [
            ("privacy.noise=gaussian",),
            ("privacy.noise=discrete-gaussian", "privacy.calibration=cks20"),
        ]
    ),
)
TARGETS = ("=ridge", "log_cosh")
COUNTED = st.builds(
    lambda *parts: sum(parts, ()),
    LINEAR.filter(lambda job: not any(each.endswith(TARGETS) for each in job)),
    st.tuples(
        st.just("evaluation.kind=federated"),
        key("evaluation.epsilon", 0.1, 1, 5),
    ),
)


@st.composite
def batches(draw):
    """One to three queries of the matrix's kinds, of random columns, bins, conditions, groups."""
    numbers = st.sampled_from(["age", "stay"])
    groups = st.sampled_from([(), (), ("sex",), ("sex", "ward")])
    where = st.sampled_from(
        [
            None,
            None,
            col.age > 4,
            (col.sex == "Male") & (col.stay <= 0.25),
            col.ward.is_in(["a", "b"]) | (col.age < 1),
        ]
    )
    kinds = [
        st.builds(Count, where=where, by=groups),
        st.builds(Histogram, column=numbers, bins=st.integers(1, 9), where=where, by=groups),
        st.builds(Histogram, column=st.just("ward"), where=where),
        st.builds(ColumnSum, column=numbers, where=where, by=groups),
        st.builds(Mean, column=numbers, where=where, by=groups),
        st.builds(Variance, column=numbers, where=where, by=groups),
        st.builds(Quantiles, column=numbers, step=st.sampled_from([0.01, 0.5]), where=where),
        st.builds(
            MarginalsQuery,
            of=st.just(("sex", "ward", "sick")),
            ways=st.integers(1, 3),
            where=where,
        ),
        st.builds(Mode, column=st.just("ward"), where=where),
        st.builds(
            Survival,
            column=st.just("age"),
            event=st.just("sick"),
            occurred=st.sampled_from(["yes", "(missing)"]),
            bins=st.integers(1, 9),
            where=where,
            by=groups,
        ),
        st.builds(CorrelationsQuery, of=st.just(("age", "stay", "sick")), where=where, by=groups),
        st.builds(
            RegressionQuery,
            column=st.just("age"),
            of=st.sampled_from([("stay",), ("sex", "stay")]),
            family=st.just("hazards"),
            event=st.just("sick"),
            occurred=st.just("yes"),
            bins=st.integers(1, 3),
            where=where,
        ),
        st.builds(
            KMeansGrid,
            of=st.sampled_from([("age",), ("age", "stay")]),
            clusters=st.integers(1, 3),
            grid=st.integers(2, 8),
            where=where,
        ),
        st.builds(
            KMeansStep,
            of=st.just(("age", "stay")),
            centres=st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=2, max_size=6)
            .filter(lambda each: len(each) % 2 == 0)
            .map(tuple),
            where=where,
        ),
    ]
    return tuple(draw(st.lists(st.one_of(kinds), min_size=1, max_size=3)))


ASKED = {
    "queries": batches(),
    "epsilon": st.sampled_from([0.05, 0.5, 1.0, 4.0, 12.0]),
    "delta": st.sampled_from([0.0, 1e-9, 1e-5, 1e-3]),
    "neighbouring": st.sampled_from(Neighbouring),
    "noise_point": st.sampled_from(
        [NOISE_POINTS["server"], NOISE_POINTS["server"], NOISE_POINTS["share"]]
    ),
    "law": st.sampled_from(["auto", "laplace", "gaussian"]),
    "records": st.sampled_from([1, 2, 5]),
    "shares": st.sampled_from([None, (1.0, 3.0), (1.0, 0.1, 7.0)]),
}


def check_queries(queries, trials, **terms):
    """Refuted, or further apart than is charged: the batch that did it."""
    try:
        batch = build_query_target(queries, SCHEMA, **terms)
        reports = [
            audit_guarantee(
                each, Effort(trials=min(trials, choose_trials(each, short=trials < 5_000)))
            )
            for each in list_views(batch)
        ]
    except (QueryError, CalibrationError, RingTooSmall, AuditError) as error:
        return type(error).__name__  # Not a valid batch, or no record may be taken from one.
    for report in reports:
        assert report.verdict == "not-refuted", (queries, terms, report.to_json()["results"])
        assert report.results[0].reach <= 1 + 1e-9, (queries, terms, report.results[0].reach)
    return "audited"


def keys_of(overrides):
    return [each for several in overrides for each in several.split(" ")]


def check(overrides, trials, **shape):
    """Refuted, at the seed that the job gives: the job that did it."""
    overrides = keys_of(overrides)
    # Seeded shares have a stream for each party of each world, which is slow.
    shares = "privacy.noise-point=share" in overrides
    seed = None if shares else zlib.crc32(repr(overrides).encode())
    try:
        reports = audit(
            load_job(None, overrides=overrides), Effort(trials=trials, seed=seed), **shape
        )
    except (JobError, CalibrationError, RingTooSmall, AuditError) as error:
        return type(error).__name__  # Not a valid job, or no record may be taken from one party.
    for report in reports:
        assert report.verdict != "refuted", (overrides, report.to_json()["results"])
        # Parameters in float32 are rounded, after the noise, to more than such gradients move them.
        coarse = {"dp-sgd.precision=float32", "dp-sgd.clip-norm=0.001"} <= set(overrides)
        reach = None if coarse else report.results[0].reach
        assert reach is None or reach <= 1 + 1e-5, (overrides, reach)
    return "audited"


@pytest.mark.parametrize("jobs", [LINEAR, NETWORK, TABLES, COUNTED])
def test_most_jobs_that_are_drawn_are_valid_with_every_key_that_they_name(jobs):
    valid, seen = Counter(), Counter()

    @settings(max_examples=60, deadline=None, database=None, phases=[Phase.generate])
    @given(overrides=jobs)
    def draw(overrides):
        values = keys_of(overrides)
        seen.update(values)
        with suppress(JobError):
            load_job(None, overrides=values)
            valid.update(values)

    draw()
    # A value that no valid job has is audited in none: once class weights and depth were such.
    assert set(seen) - set(valid) <= {each for each in seen if seen[each] < 4}
    assert sum(valid.values()) > 0.7 * sum(seen.values())


HEAVY = (pytest.mark.heavy, pytest.mark.timeout(7200))
SHAPES = {"features": st.sampled_from([1, 2, 5]), "records": st.sampled_from([1, 3, 20])}


@pytest.mark.parametrize(
    ("drawn", "audit_of", "examples", "trials"),
    [
        ({"overrides": LINEAR}, check, 15, 1_000),
        (ASKED, check_queries, 12, 1_000),
        ({"overrides": st.one_of(TABLES, COUNTED)}, check, 6, 500),
        pytest.param({"overrides": LINEAR, **SHAPES}, check, 1_000, 20_000, marks=HEAVY),
        pytest.param(ASKED, check_queries, 1_000, 20_000, marks=HEAVY),
        pytest.param({"overrides": st.one_of(TABLES, COUNTED)}, check, 300, 10_000, marks=HEAVY),
        pytest.param({"overrides": NETWORK}, check, 200, 300, marks=HEAVY),
    ],
)
def test_no_random_job_or_batch_of_queries_is_refuted(drawn, audit_of, examples, trials):
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(**drawn)
    def draw(**job):
        audit_of(trials=trials, **job)

    draw()


def test_a_count_of_all_records_has_a_canary():
    terms = {"delta": 1e-5, "epsilon": 1.0, "law": "auto", "shares": None, "records": 2}
    relation = {
        "neighbouring": Neighbouring.ADD_OR_REMOVE_ONE,
        "noise_point": NOISE_POINTS["server"],
    }
    assert check_queries(queries=(Count(),), trials=200, **terms, **relation) == "audited"
