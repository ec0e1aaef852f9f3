"""Known answers of the noise on synthetic data's one release, by plans: a server adds it."""

import pytest

from parley.planning.plan_job import plan
from parley.privacy.accounting.privacy_events import PoissonSampledGaussian
from parley.privacy.accounting.subsampled_gaussian import compute_pld_epsilon, compute_rdp_epsilon
from parley.privacy.calibration.inverse_curves import compute_gaussian_mu
from parley.server.jobs.job_file import load_job

LABEL = 'sick = { kind = "label", positive = "yes", negative = "no" }'
IMAGES = 'picture = { kind = "array", shape = [28, 28], range = [0, 255] }'
DIGITS = f'digit = {{ kind = "label", classes = {list(range(10))} }}'


def planned(tmp_path, columns, *overrides):
    schema = tmp_path / "known.schema.toml"
    schema.write_text("\n".join(["[columns]", *columns]))
    overrides = (
        *("model.kind=table", "data.source=known.csv", f"data.schema={schema}"),
        *("privacy.epsilon=1", "privacy.delta=1e-5", "privacy.noise-point=server"),
        *overrides,
    )
    return plan(load_job(overrides=list(overrides))).synthetic


@pytest.mark.parametrize(
    ("epsilon", "mu"), [(0.3, 0.0889834529), (1.0, 0.268051123), (3.0, 0.719117435)]
)
def test_the_mu_of_a_budget(epsilon, mu):
    assert compute_gaussian_mu(epsilon, 1e-5) == pytest.approx(mu, rel=1e-8)


@pytest.mark.parametrize(
    ("pairs", "sensitivity", "noise"),
    [("all", 13.4907376, 50.3289723), ("label", 5.09901951, 19.0225635)],
)
def test_the_noise_of_a_cell_of_fourteen_columns(tmp_path, pairs, sensitivity, noise):
    columns = [f'c{at} = {{ kind = "numeric", range = [0, 1] }}' for at in range(13)]
    found = planned(
        tmp_path, [*columns, LABEL], "algorithm.kind=marginals", f"algorithm.pairs={pairs}",
        "parties.count=30", "parties.min-records=800",
    )  # fmt: skip
    # The grid adds √d of its steps to Δ: a ten-thousandth.
    assert found.sensitivity == pytest.approx(sensitivity, rel=2e-4)
    assert found.sensitivity >= sensitivity * (1 - 1e-8)
    assert found.noise == pytest.approx(noise, rel=2e-4)


def test_the_noise_on_the_mean_embedding_of_sixty_thousand_images(tmp_path):
    found = planned(
        tmp_path, [IMAGES, DIGITS], "algorithm.kind=random-features", "algorithm.frequencies=5000",
        "parties.count=10", "parties.min-records=6000",
    )  # fmt: skip
    assert found.noise == pytest.approx(7.46126327, rel=2e-4)
    assert found.noise_norm == pytest.approx(0.0393243103, rel=3e-4)  # and ten counts


def test_what_a_thousand_steps_of_a_diffusion_model_cost_whatever_a_loss_draws():
    step = PoissonSampledGaussian(
        sampling_rate=0.01, noise_multiplier=0.8, neighbouring="add-or-remove-one"
    )
    assert compute_rdp_epsilon(((step, 1000),), delta=1e-5) == pytest.approx(3.69561, rel=1e-4)
    assert compute_pld_epsilon(((step, 1000),), delta=1e-5) == pytest.approx(3.14102, rel=1e-3)
