"""From a job to its release plan, against the specification's numbers."""

import math

import numpy as np
import pytest

from parley.privacy.accounting.composition import Composition
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.secure_agg.encoding import RingTooSmall
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.planning.job_planner import (
    build_algorithm,
    build_model,
    plan_release,
    scale_to_average,
)
from parley.server.records.round_line import RoundAccount


def by_round(plan, *, rounds):
    event = plan.compute_event(plan.primary.unit)
    spent = (Composition().add(event, count=count) for count in range(1, rounds + 1))
    return [RoundAccount.from_composition(each, plan.primary.delta) for each in spent]


def planned(*overrides, features=103, parties=100, records=500, total=None):
    job = load_job(overrides=[f"parties.count={parties}", "algorithm.rounds=10", *overrides])
    federation = Federation(
        parties=parties,
        min_records=records,
        total_records=total or parties * records,
        max_records=max(records, (total or 0) // parties),
    )
    algorithm = build_algorithm(job, build_model(job, features=features, classes=0), federation)
    return job, plan_release(job, algorithm=algorithm, federation=federation)


@pytest.mark.parametrize(
    ("epsilon", "calibration", "sigma"),
    [
        (0.5, "as-printed", 0.00383882),
        (0.5, "zcdp", 0.00388006),
        (0.5, "cks20", 0.00306686),
        (0.5, "exact", 0.00281273),
        (1, "as-printed", 0.00191941),
        (1, "zcdp", 0.00196022),
        (1, "cks20", 0.00161805),
        (1, "exact", 0.00149225),
    ],
)
def test_sigma_of_the_average_is_the_specifications_but_for_the_grid(epsilon, calibration, sigma):
    _, plan = planned(
        f"privacy.epsilon={epsilon}", f"privacy.calibration={calibration}", "algorithm.rounds=100"
    )
    assert scale_to_average(plan, plan.primary).scale == pytest.approx(
        sigma / 1 * (1 + plan.inflation), rel=2e-6
    )
    assert 0 < plan.inflation < 1e-3
    last = by_round(plan, rounds=100)[-1]
    assert last.epsilon_charged <= epsilon * (1 + 1e-9)
    assert last.epsilon["exact"] <= last.epsilon["cks20"] <= last.epsilon["zcdp"]


def test_output_perturbation_has_the_papers_scale_with_tolerance_and_grid_on_top():
    _, plan = planned(
        "algorithm.kind=output-perturbation", "privacy.epsilon=0.5", "model.lambda=0.01"
    )
    printed = 2 * 1.0 / (100 * 500 * 0.01 * 0.5)
    assert scale_to_average(plan, plan.primary).scale == pytest.approx(
        printed * 1.001 * (1 + plan.inflation)
    )
    assert plan.primary.mechanism.law == "l2-laplace"


def test_as_printed_laplace_is_charged_what_it_costs():
    _, plan = planned(
        "algorithm.kind=output-perturbation",
        "privacy.epsilon=0.5",
        "privacy.delta=1e-5",
        "privacy.noise=laplace-as-printed",
    )
    (line,) = by_round(plan, rounds=1)
    assert line.epsilon["pure"] == pytest.approx(math.sqrt(104) * 0.5)
    assert line.epsilon_charged == pytest.approx(2.16572, abs=1e-5)


def test_size_weights_never_need_more_noise():
    _, uniform = planned(records=100)
    _, size = planned("parties.weights=size", records=100, total=50_000)
    assert size.primary.sensitivity == pytest.approx(2 / 500)
    assert size.primary.sensitivity < uniform.primary.sensitivity


def test_every_prefix_of_the_rounds_is_within_the_budgets_share():
    _, plan = planned("algorithm.rounds=16", "privacy.calibration=zcdp")
    table = by_round(plan, rounds=16)
    for number, line in enumerate(table, start=1):
        # √(t/T)·ε by the zCDP calibration (specification, section 2).
        assert line.epsilon["zcdp"] <= math.sqrt(number / 16) * 1.0 * (1 + 1e-9)
    assert np.all(np.diff([line.epsilon_charged for line in table]) > 0)


def test_the_grid_and_a_whole_cohort_fit_the_ring():
    for parties in (1, 2, 1000, 100_000):
        _, plan = planned("secure-aggregation.ring-bits=64", parties=parties)
        plan.encoding.check_capacity(parties, plan.primary.mechanism.noise_tail(2.0**-50))


def test_what_cannot_be_given_is_refused_with_the_numbers():
    with pytest.raises(RingTooSmall, match="2\\^15"):
        planned("secure-aggregation.ring-bits=16", parties=1_000_000, records=1)
    with pytest.raises(CalibrationError):
        planned("privacy.calibration=as-printed", "privacy.epsilon=9")
    with pytest.raises(JobError, match="party 1 holds 3"):
        Federation.from_sizes(np.array([5, 3, 9]), 4)


@pytest.mark.parametrize("unit", ["party", "both"])
def test_a_unit_that_the_algorithm_does_not_hide_is_refused(unit):
    job = load_job(
        overrides=[
            "algorithm.kind=examples/federated_count.py:FederatedCount",
            "model.kind=none",
            "privacy.neighbouring=add-or-remove-one",
            f"privacy.unit={unit}",
        ]
    )
    federation = Federation.from_sizes(np.array([50, 60, 70]))
    algorithm = build_algorithm(job, build_model(job, features=3, classes=2), federation)
    words = r"privacy.unit = 'record', for which .*FederatedCount is proved, got"
    with pytest.raises(JobError, match=words):
        plan_release(job, algorithm=algorithm, federation=federation)


@pytest.mark.parametrize(("names", "who"), [(("north", "south"), "south"), ((), "party 1")])
def test_the_smallest_party_is_named(names, who) -> None:
    with pytest.raises(JobError, match=rf"min-records = 5 records, {who} holds 3\."):
        Federation.from_sizes(np.array([8, 3]), 5, names)
