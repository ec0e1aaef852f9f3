"""The methods that are there to compare with: known answers, and what each is charged."""

import pytest

import parley
from parley.privacy.accounting.composition import Composition
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.planning.job_planner import (
    build_algorithm,
    build_model,
    plan_release,
    scale_to_average,
)

OUTPUT = (
    "algorithm.kind=output-perturbation",
    "algorithm.relative-tolerance=1e-6",
    "model.lambda=0.01",
    "privacy.epsilon=0.5",
    "parties.count=100",
)
OF_100 = Federation(parties=100, min_records=500, total_records=50_000, max_records=500)


def planned(*overrides, federation=OF_100):
    job = load_job(overrides=overrides)
    algorithm = build_algorithm(job, build_model(job, features=9, classes=2), federation)
    return plan_release(job, algorithm=algorithm, federation=federation)


@pytest.mark.parametrize(
    ("changed", "b"),
    [
        ((), 0.008),
        (("privacy.noise-point=server",), 0.008),
        (("algorithm.kind=pathak",), 0.8),
        (("algorithm.kind=pathak", "privacy.noise-point=server"), 0.8),
    ],
)
def test_scales_of_output_perturbation_on_the_average(changed, b):
    """n = 500, λ = .01, ε = .5, G = 1, m = 100 (experiments: methods 5 and 4)."""
    plan = planned(*OUTPUT, *changed)
    assert scale_to_average(plan, plan.primary).scale == pytest.approx(b, rel=1e-3)


def test_the_scale_of_a_party_that_adds_all_of_the_noise():
    """Method 3: b = .8 on its own model, whoever else there is; ε against everybody."""
    plan = planned(*OUTPUT, "privacy.noise-point=party")
    own = plan.primary
    assert own.mechanism.scale / own.compute_unit_scale(plan.encoding.scale) == pytest.approx(
        0.8, rel=1e-3
    )
    assert own.shares.scale == own.mechanism.scale
    assert own.noise_growth == 10  # √100 parties' noise in the sum


@pytest.mark.parametrize("parties", [1, 4, 100])
def test_pathaks_noise_is_charged_what_it_costs(parties):
    federation = Federation(
        parties=parties, min_records=500, total_records=500 * parties, max_records=500
    )
    plan = planned(
        *OUTPUT,
        f"parties.count={parties}",
        "algorithm.kind=pathak",
        "privacy.noise-point=server",
        federation=federation,
    )
    spent = Composition.from_events([plan.primary.event]).compute_epsilons(plan.primary.delta)[
        "pure"
    ]
    assert spent == pytest.approx(0.5 / parties)


RAJKUMAR = ("algorithm.kind=rajkumar-agarwal", "privacy.epsilon=0.5", "algorithm.rounds=20")


def test_every_round_of_rajkumar_and_agarwal_is_charged():
    plan = planned(*RAJKUMAR, "parties.count=100")
    event, delta = plan.primary.event, plan.primary.delta
    one, all_of_them = (
        Composition().add(event, count=n).compute_lowest_epsilon(delta)[1] for n in (1, 20)
    )
    assert one == pytest.approx(0.5, rel=1e-6)
    assert all_of_them > 2  # by composition; as printed .5


def test_it_needs_a_budget_for_all_rounds(tmp_path):
    job = load_job(overrides=[*RAJKUMAR, f"run.out={tmp_path}", "run.seed=1"])
    with pytest.raises(JobError, match=r"privacy\.dataset-epsilon"):
        parley.run(job)
    enough = load_job(
        overrides=[*RAJKUMAR, f"run.out={tmp_path}", "run.seed=1", "privacy.dataset-epsilon=9"]
    )
    summary = parley.run(enough).summary
    assert summary.primary.epsilon > 2
    assert summary.rounds_done == 20


def test_the_tilt_of_its_objective_is_public_and_costs_nothing():
    job = load_job(overrides=RAJKUMAR)
    model = build_model(job, features=9, classes=2)
    algorithm = build_algorithm(job, model, OF_100)
    again = build_algorithm(job, model, OF_100)
    assert (algorithm.tilt == again.tilt).all()
    assert 0.0039999 < algorithm.claim(OF_100.to_public_facts("uniform")).sensitivity <= 2 / 500


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("algorithm.kind=objective-perturbation",), "noise-point = 'party'"),
        (("algorithm.kind=pathak", "privacy.noise=gaussian"), "l2-laplace"),
        (("algorithm.kind=rajkumar-agarwal", "model.kind=ridge"), "model.kind"),
        (
            ("algorithm.kind=fedavg", "model.kind=mlp", "privacy.noise-point=party"),
            "noise-point",
        ),
    ],
)
def test_what_is_not_proved_is_refused(overrides, said):
    with pytest.raises(JobError, match=said):
        load_job(overrides=overrides)
