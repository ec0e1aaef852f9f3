"""An honest job is not refuted, and its bounds are near its claim."""

import csv
from itertools import product
from pathlib import Path

import pytest
from audit_matrix import ASKED, ROWS, claims_of
from audited_choices import CHOICES

from parley.client.algorithms.registry import ALGORITHMS
from parley.client.queries.registry import QUERIES
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.mechanisms.registry import MECHANISMS
from parley.server.jobs.job_file import load_job
from parley.simulations.audit.audit_job_shrinking import AuditError
from parley.simulations.audit.audit_results import combine_verdicts
from parley.simulations.audit.audit_target import build_target
from parley.simulations.audit.guarantee_audit import (
    Effort,
    audit,
    audit_guarantee,
    choose_trials,
)
from parley.simulations.audit.neighbouring_worlds import build_neighbours
from parley.simulations.audit.trial_observations import build_hypotheses, compute_reach

OUTPUT = (
    "algorithm.kind=output-perturbation",
    "model.kind=huber-svm",
    "model.lambda=1",
    "privacy.noise-point=server",
)
NETWORK = (
    "algorithm.kind=fedavg",
    "model.kind=mlp",
    "parties.min-records=100",
    "privacy.epsilon=4",
    "algorithm.rounds=8",
    "dp-sgd.local-steps=1",
    "model.hidden=[]",
)
SAMPLED = (*NETWORK, "dp-sgd.sampling-rate=0.25", "privacy.neighbouring=add-or-remove-one")


def of_claim(overrides, *, trials, method, **shape):
    effort = Effort(trials=trials, seed=11, attacks=("dirac",), methods=(method,))
    (report,) = audit(load_job(None, overrides=overrides), effort, **shape)
    (result,) = report.results
    assert report.verdict == "not-refuted"
    assert not result.refuted
    return result.fraction_of_claim


def test_a_unit_whose_claim_delta_covers_has_no_part_of_it():
    """Records clipped to a 500th of their party, which its noise hides: ε of one is 0 at this δ."""
    overrides = (
        *("algorithm.kind=distributed-dp-sgd", "model.kind=mlp", "model.hidden=[]"),
        *("algorithm.rounds=1", "dp-sgd.local-steps=1", "dp-sgd.sampling-rate=1"),
        *("dp-sgd.clip-norm=0.001", "dp-sgd.party-clip-norm=0.5", "parties.min-records=200"),
        *("privacy.unit=both", "privacy.epsilon=0.05", "privacy.delta=0.001"),
        *("privacy.neighbouring=add-or-remove-one", "privacy.noise-point=server"),
    )
    effort = Effort(trials=60, seed=11, methods=("pair",))
    reports = audit(load_job(None, overrides=overrides), effort)
    (record,) = [each for each in reports if not each.claim.epsilon]
    assert {each.fraction_of_claim for each in record.results} == {None}
    assert {each.verdict for each in reports} == {"not-refuted"}


def test_bounds_are_tight():
    gradient = ("privacy.epsilon=4", "algorithm.rounds=1", "privacy.noise-point=server")
    assert of_claim(gradient, trials=100_000, method="mu") > 0.97
    pure = (*OUTPUT, "privacy.epsilon=4", "privacy.noise=laplace-l1")
    assert of_claim(pure, trials=150_000, method="pair", features=1) > 0.95
    assert of_claim(OUTPUT, trials=20_000, method="factor", features=10) > 0.98
    assert of_claim(SAMPLED, trials=3_000, method="profile") > 0.4


@pytest.mark.heavy
def test_the_whole_curve_of_sampled_steps_is_tight():
    assert of_claim(SAMPLED, trials=20_000, method="profile") >= 0.80


@pytest.mark.parametrize(
    "rows",
    [
        # Every fifth row of queries: each batch, and settings in turn.
        pytest.param([row for row in ROWS if row not in ASKED] + [*ASKED[::5]], id="short"),
        pytest.param(ROWS, id="whole", marks=pytest.mark.heavy),
    ],
)
def test_no_case_of_the_matrix_is_refuted_and_no_kind_is_left_out(rows):
    kinds, laws = set(), set()
    for claim in (claim for row in rows for claim in claims_of(row)):
        # From entropy: a false alarm has to pass the second look, at 10⁻⁶.
        report = audit_guarantee(claim, Effort(trials=choose_trials(claim, short=True)))
        assert report.verdict == "not-refuted", report.to_json()
        kinds.add(claim.algorithm.kind)
        laws.add(report.claim.law)
    # A row that is added to a table fails here until the matrix audits it.
    # A Flower app's plan is that of fedavg with unit party (test_flower_app), which is audited.
    assert kinds == set(ALGORITHMS) - {"flower"}
    assert laws == {*MECHANISMS, "laplace", "dp-sgd", "sampled-gaussian", "objective-perturbation"}


@pytest.mark.parametrize("kind", QUERIES)
def test_every_query_has_its_rows_by_every_law_relation_unit_and_noise_point(kind):
    rows = [row for row in ASKED if kind in {query.kind for query in row.queries}]
    found = {(row.law, row.point, row.relation, row.counting.unit) for row in rows}
    if kind in {choice.query.kind for choice in CHOICES.values() if choice.together}:
        # It adds nothing to a sum: its row is of `audited_choices`.
        assert QUERIES[kind].law
        assert not rows
        return
    for unit in (Unit.RECORD, Unit.PARTY):
        assert found >= set(product(("laplace", "gaussian"), ("server",), Neighbouring, (unit,)))
        assert any(point == "share" and own is unit for _, point, _, own in found)
    # And nothing noise is added to is in a row without being in the table of queries.
    assert {query.kind for row in ASKED for query in row.queries} <= set(QUERIES)


MILLION = 1_000_000

NAMES = {
    "second-moments": "principal components",
    "held-out-counts": "evaluation",
    "query": "count",
}
"""What the table of the documentation calls algorithms that are parts of a job, and queries."""


def test_every_algorithm_and_every_law_has_a_row_of_a_million_worlds_in_the_documentation():
    with (Path(__file__).parents[3] / "docs/audit-rows.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["trials per world"] == f"{MILLION:,}"]
    said = [row["claim"].split(", ") for row in rows]
    kinds = set(ALGORITHMS) - {"flower"}  # as above
    assert {NAMES.get(kind, kind) for kind in kinds} <= {first for first, *_ in said}
    laws = {*MECHANISMS, "laplace", "dp-sgd", "sampled-gaussian", "objective-perturbation"}
    assert laws <= {law for _, law, *_ in said}


@pytest.mark.heavy
@pytest.mark.timeout(1800)
def test_none_of_two_hundred_honest_audits_is_refuted():
    job = load_job(
        None, overrides=["privacy.epsilon=4", "algorithm.rounds=4", "privacy.noise-point=server"]
    )
    found = [audit(job, Effort(trials=20_000, seed=seed))[0].verdict for seed in range(200)]
    assert combine_verdicts(found) == "not-refuted"


def test_the_same_seed_gives_the_same_audit():
    job = load_job(None, overrides=["algorithm.rounds=2", "privacy.noise-point=server"])
    first, again = (audit(job, Effort(trials=500, seed=3))[0].to_json() for _ in range(2))
    for each in first["results"] + again["results"]:
        for clock in ("seconds", "trials_per_second", "peak_mib", "worlds_mib"):
            each.pop(clock)
    assert first == again


@pytest.mark.parametrize(("weights", "clip"), [("[0.2,1]", 1), ("[0.05,0.05]", 1), ("[]", 10)])
@pytest.mark.parametrize("hidden", ["[]", "[5]"])
def test_a_networks_canaries_are_clipped_whatever_the_weights_of_classes(hidden, weights, clip):
    own = [f"model.class-weights={weights}", f"dp-sgd.clip-norm={clip}", f"model.hidden={hidden}"]
    given = build_target(load_job(None, overrides=[*NETWORK, *own]))
    assert compute_reach(given, build_hypotheses(given, build_neighbours(given, "dirac"))) > 0.99


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"confidence": 0.5}, "(0.5, 1)"),
        ({"confidence": 1.0}, "(0.5, 1)"),
        ({"trials": 3}, "trials >= 20, got 3"),
        ({"attacks": ("magic",)}, "attacks of dirac"),
        ({"methods": ("magic",)}, "methods of pair"),
    ],
)
def test_an_effort_that_says_nothing_is_refused(wrong, said):
    with pytest.raises(AuditError) as error:
        Effort(**wrong)
    assert said in str(error.value)


def test_a_method_that_does_not_fit_the_claim_is_refused_with_those_that_do():
    job = load_job(None, overrides=["privacy.noise=l2-laplace", "privacy.noise-point=server"])
    with pytest.raises(AuditError, match=r"\(pair, factor, white\), got 'mu'"):
        audit(job, Effort(trials=100, methods=("mu",)))
