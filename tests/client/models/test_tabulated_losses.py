"""A loss of one's own is a public table: what bounds a record is proved from the table itself."""

import json
import math

import numpy as np
import pytest

from parley.client.algorithms.gradient_perturbation import GradientPerturbation
from parley.client.algorithms.task_codec import decode_task, describe_task
from parley.client.contract.strict_decoding import DecodingError
from parley.client.models.linear_models import LinearModel
from parley.client.models.logistic_loss import LogisticLoss
from parley.client.models.own_loss_tabulation import build_tabled_loss
from parley.client.models.tabulated_losses import NODES, TabledResidualLoss, TabledSignLoss
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.planning.job_planner import build_model

PLACES = np.array([-1e300, -1e4, -16, -15.99, -1, -0.01, 0, 0.3, 7, 16, 17, 1e308, np.inf])


def logistic(z, y):
    return max(-y * z, 0.0) + math.log1p(math.exp(-abs(z)))


def squared_hinge(z, y):
    return max(0.0, 1 - y * z) ** 2


def log_cosh(z, y):
    return abs(z - y) + math.log1p(math.exp(-2 * abs(z - y)))


def algorithm(loss):
    return GradientPerturbation(
        model=LinearModel(loss=loss, features=3),
        lambda_=0.1,
        lipschitz=loss.lipschitz,
        weights="uniform",
        rounds=2,
        learning_rate=0.5,
        momentum=0.0,
        average=False,
    )


def test_the_table_of_a_known_loss_is_that_loss():
    own = build_tabled_loss(TabledSignLoss, logistic, lipschitz=1.0)
    rng = np.random.default_rng(0)
    z, y = rng.normal(0, 6, 4000), rng.choice([-1.0, 1.0], 4000)
    np.testing.assert_allclose(
        own.compute_slopes(z, y), LogisticLoss().compute_slopes(z, y), atol=1e-4
    )
    np.testing.assert_allclose(
        own.compute_values(z, y), LogisticLoss().compute_values(z, y), atol=1e-3
    )
    assert own.lipschitz == pytest.approx(1.0, abs=1e-6)
    assert own.lipschitz <= 1
    assert own.smoothness == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize(
    "own",
    [
        build_tabled_loss(TabledSignLoss, squared_hinge, lipschitz=3.0, steeper="clip"),
        build_tabled_loss(TabledResidualLoss, log_cosh, lipschitz=1.0),
    ],
)
def test_slope_and_curvature_are_derivatives_and_nothing_is_steeper_than_g(own):
    y = np.ones(len(PLACES))
    for label in (-1.0, 1.0):
        with np.errstate(all="ignore"):
            slopes = own.compute_slopes(PLACES, label * y)
            assert (np.abs(slopes) <= own.lipschitz).all()
            assert np.isnan(own.compute_slopes(np.array([np.nan]), np.array([label]))).all()
        z = np.random.default_rng(1).uniform(-20, 20, 500) + 1e-3
        up, down = (own.compute_values(z + e, np.full(500, label)) for e in (1e-6, -1e-6))
        at = own.compute_slopes(z, np.full(500, label))
        np.testing.assert_allclose((up - down) / 2e-6, at, atol=1e-4)
        assert (own.compute_curvatures(z, np.full(500, label)) <= own.smoothness).all()
        grown = own.compute_slopes(np.sort(z), np.full(500, label))
        assert (np.diff(grown) >= -1e-12).all()


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (squared_hinge, "at most 4, as stated, got 34 at z = 16, y = -1"),
        (lambda z, y: -(z**2) / 100, "convex in z"),
        (lambda z, y: 1 / z if z else math.inf, "convex in z|finite loss"),
        (lambda z, y: math.log(z), "got ValueError"),
        (lambda z, y: 3.0, "depends on the margin"),
        (lambda z, y: "x", "an object of type str .*line"),
        (lambda z, y: np.zeros((3, 2)), r"type ndarray and shape \(3, 2\) \(test_tabulated"),
    ],
)
def test_what_is_stated_falsely_or_is_no_such_loss_is_refused(loss, message):
    with pytest.raises(ValueError, match=message):
        build_tabled_loss(TabledSignLoss, loss, lipschitz=4.0)


def test_a_loss_of_residuals_depends_on_nothing_else():
    with pytest.raises(ValueError, match="function of z - y"):
        build_tabled_loss(TabledResidualLoss, lambda z, y: abs(z) + abs(y), lipschitz=1.0)


def changed(task, change):
    loss = dict(task["model"]["loss"])
    change(loss)
    return {**task, "model": {**task["model"], "loss": loss}}


@pytest.mark.parametrize(
    "change",
    [
        lambda loss: loss.update(slopes=[[0.0] * NODES]),
        lambda loss: loss.update(slopes=[[0.0] * 10**5, [1.0] * 10**5]),
        lambda loss: loss.update(slopes=[[math.nan] * NODES, [1.0] * NODES]),
        lambda loss: loss.update(slopes=[[1.0, 0.5] + [1.0] * (NODES - 2), [1.0] * NODES]),
        lambda loss: loss.update(slopes=[[1e9] * NODES, [1.0] * NODES]),
        lambda loss: loss.update(slopes=[[0.0] * NODES, [0.0] * NODES]),
        lambda loss: loss.update(slopes=[["1"] * NODES, [1.0] * NODES]),
        lambda loss: loss.update(starts=[0.0]),
        lambda loss: loss.update(lipschitz=0.1),
        lambda loss: loss.pop("starts"),
    ],
)
def test_a_task_carries_the_table_and_a_hostile_one_is_refused(change):
    own = algorithm(build_tabled_loss(TabledSignLoss, logistic, lipschitz=1.0))
    task = json.loads(json.dumps(describe_task(own), allow_nan=False))
    assert decode_task(task) == own
    with pytest.raises(DecodingError):
        decode_task(changed(task, change))


def test_a_job_names_the_function(tmp_path):
    (tmp_path / "mine.py").write_text("def hinge(z, y):\n    return max(0.0, 1 - y * z) ** 2\n")
    named = [f"model.loss={tmp_path / 'mine.py'}:hinge", "model.kind=own-loss"]
    with pytest.raises(JobError, match="steeper = 'clip'"):
        build_model(load_job(overrides=named), features=3, classes=2)
    job = load_job(overrides=[*named, "model.steeper=clip", "model.class-weights=[1, 3]"])
    assert build_model(job, features=3, classes=2).lipschitz == 3.0
    with pytest.raises(JobError, match=r"file\.py:function"):
        load_job(overrides=["model.kind=own-loss"])
    nowhere = load_job(overrides=["model.kind=own-loss", "model.loss=no_such:f"])
    with pytest.raises(JobError, match="no_such"):
        build_model(nowhere, features=3, classes=2)
