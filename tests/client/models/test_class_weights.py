"""Public class weights: what a record of class k counts, and what that costs."""

import numpy as np
import pytest
import torch
from plain_gradients import plain_gradients

from parley.client.algorithms.gradient_perturbation import GradientPerturbation
from parley.client.algorithms.task_codec import decode_task, describe_task
from parley.client.contract.canonical_encoding import encode_canonical
from parley.client.contract.strict_decoding import DecodingError
from parley.client.data.party_block import PartyBlock
from parley.client.dp_sgd.torch_clipping import compute_clipped_sum, compute_plain_sum
from parley.client.models.class_weights import ClassWeightedLoss
from parley.client.models.huber_svm import HuberSVM
from parley.client.models.integer_gradients import compute_gradients
from parley.client.models.layer_checks import NetworkError
from parley.client.models.linear_models import LinearModel
from parley.client.models.logistic_loss import LogisticLoss
from parley.client.models.networks import Network
from parley.client.models.record_losses import RecordLosses
from parley.client.models.row_quantization import prepare_rows
from parley.client.models.softmax_loss import SoftmaxLoss
from parley.client.models.squared_loss import SquaredLoss
from parley.client.solvers.local_optima import solve_local_optima

LOSSES = {
    "logistic": ClassWeightedLoss(loss=LogisticLoss(), weights=(1.0, 3.0)),
    "huber-svm": ClassWeightedLoss(loss=HuberSVM(width=0.2), weights=(2.0, 1.0)),
    "softmax": ClassWeightedLoss(loss=SoftmaxLoss(classes=3), weights=(1.0, 2.0, 4.0)),
}
EACH = pytest.mark.parametrize("name", list(LOSSES))


def records(loss, count=60, features=5, seed=0):
    rng = np.random.default_rng(seed)
    rows = prepare_rows(rng.normal(size=(count, features)), intercept=True)
    labels = (
        rng.integers(0, loss.classes, count)
        if loss.classes
        else np.where(rng.random(count) < 0.3, 1.0, -1.0)
    )
    return rows, labels, LinearModel(loss=loss, features=features + 1)


def repeated(loss, rows, labels):
    """Every record as often as its class weighs: whole weights alone."""
    of = labels if loss.classes else (labels > 0).astype(int)
    times = np.asarray(loss.weights)[of].astype(int)
    return np.repeat(rows, times, axis=0), np.repeat(labels, times), times.sum()


def one_party(rows, labels):
    return PartyBlock(features=rows, labels=labels, offsets=np.array([0, len(labels)]))


@EACH
def test_a_weight_is_that_many_copies_of_the_record(name):
    loss = LOSSES[name]
    rows, labels, model = records(loss)
    more, its, count = repeated(loss, rows, labels)
    plain = LinearModel(loss=loss.loss, features=model.features)
    theta = np.random.default_rng(1).normal(size=model.dimension)
    ours, theirs = (
        (plain_gradients(of, theta, party), of.losses(theta, party))
        for of, party in ((model, one_party(rows, labels)), (plain, one_party(more, its)))
    )
    scale = count / len(labels)
    np.testing.assert_allclose(ours[0], theirs[0] * scale, rtol=1e-12)
    np.testing.assert_allclose(ours[1], theirs[1] * scale, rtol=1e-12)
    # And so is the optimum, where λ grows as the data do.
    tolerance = 1e-9
    solved = solve_local_optima(model, one_party(rows, labels), 0.02 * scale, tolerance)
    copies = solve_local_optima(plain, one_party(more, its), 0.02, tolerance)
    assert solved.certified.all()
    assert copies.certified.all()
    np.testing.assert_allclose(solved.theta, copies.theta, atol=1e-6)


def test_constants_are_the_largest_weights():
    weighted = ClassWeightedLoss(loss=LogisticLoss(), weights=(0.5, 8.0))
    assert (weighted.lipschitz, weighted.smoothness) == (8.0, 2.0)
    of_classes = ClassWeightedLoss(loss=SoftmaxLoss(classes=2), weights=(3.0, 1.0))
    assert of_classes.lipschitz == pytest.approx(3 * np.sqrt(2))
    # Attained by a record of the heavy class that is as wrong as can be, and by no other.
    model = LinearModel(loss=weighted, features=1)
    for label, longest in ((1.0, 8.0), (-1.0, 0.5)):
        block = one_party(np.array([[1.0]]), np.array([label]))
        gradient = compute_gradients(model, np.array([-60.0 * label]), block)
        assert abs(gradient[0, 0]) == pytest.approx(longest)


def test_weights_travel_in_the_task_and_nothing_else_changes_without_them():
    def algorithm(loss):
        return GradientPerturbation(
            model=LinearModel(loss=loss, features=3),
            lambda_=0.01,
            lipschitz=loss.lipschitz,
            weights="uniform",
            rounds=2,
            learning_rate=1.0,
            momentum=0.0,
            average=False,
        )

    plain, weighted = algorithm(LogisticLoss()), algorithm(LOSSES["logistic"])
    task = describe_task(weighted)
    assert task["model"]["loss"] == {"kind": "logistic", "class_weights": [1.0, 3.0]}
    # The masks of a round are keyed by the task: other weights, other masks.
    other = describe_task(algorithm(ClassWeightedLoss(loss=LogisticLoss(), weights=(3.0, 1.0))))
    assert len({encode_canonical(told) for told in (task, other, describe_task(plain))}) == 3
    assert "class_weights" not in describe_task(plain)["model"]["loss"]
    assert decode_task(task, device="cpu", own_models={}) == weighted
    for bad in ([], [1.0], [1.0, 0.0], [1.0, True], [1.0, -2.0], "12", [1.0, 1e9]):
        task["model"]["loss"]["class_weights"] = bad
        with pytest.raises(DecodingError):
            decode_task(task, device="cpu", own_models={})


def test_targets_have_no_classes():
    with pytest.raises(ValueError, match="loss of labels"):
        ClassWeightedLoss(loss=SquaredLoss(radius=1.0, label_bound=1.0), weights=(1.0, 2.0))


WEIGHTS = (1.0, 2.5, 0.25)


def network(**changes):
    built = {"features": 6, "classes": 3, "hidden": (5,), "precision": "float64"} | changes
    return Network.build("mlp", class_weights=WEIGHTS, **built)


def test_records_are_clipped_after_the_weights():
    of = network()
    rng = torch.Generator().manual_seed(1)
    x = torch.randn((7, 6), generator=rng, dtype=torch.float64)
    y = torch.randint(0, 3, (7,), generator=rng)
    alone = torch.stack(
        [compute_plain_sum(of.module, r[None], k[None]) for r, k in zip(x, y, strict=True)]
    )
    heavy = alone * torch.tensor(WEIGHTS, dtype=torch.float64)[y][:, None]
    clip = float(heavy.norm(dim=1).median())
    total, norms = compute_clipped_sum(of.module, x, y, clip, losses=of.losses)
    np.testing.assert_allclose(norms, heavy.norm(dim=1), rtol=1e-9)
    expected = (clip / heavy.norm(dim=1)).clamp_max(1) @ heavy
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-6 * clip)


def test_a_networks_weights_are_one_a_class():
    with pytest.raises(NetworkError, match="Expected 4 class weights"):
        network(classes=4)
    assert RecordLosses.from_class_weights((), 3).weights == ()
