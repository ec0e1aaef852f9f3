"""Δ by brute force where a server's θ ties: margins that cancel, kinks, ±0, subnormal and huge."""

from types import SimpleNamespace

import numpy as np
import pytest

from parley.client.algorithms.base import PublicFacts
from parley.client.algorithms.gradient_perturbation import GradientPerturbation
from parley.client.data.party_block import PartyBlock
from parley.client.models.class_weights import apply_class_weights
from parley.client.models.huber_svm import HuberSVM
from parley.client.models.linear_models import LinearModel
from parley.client.models.logistic_loss import LogisticLoss
from parley.client.models.own_loss_tabulation import build_tabled_loss
from parley.client.models.row_quantization import prepare_rows
from parley.client.models.softmax_loss import SoftmaxLoss
from parley.client.models.squared_loss import SquaredLoss
from parley.client.models.tabulated_losses import TabledResidualLoss, TabledSignLoss
from parley.privacy.accounting.threat_model import Neighbouring

RECORDS, RADIUS = 7, 1e3
LOSSES = {
    "logistic": LogisticLoss(),
    "huber-svm": HuberSVM(width=1e-9),  # all but a kink
    "softmax": SoftmaxLoss(classes=3),
    "ridge": SquaredLoss(radius=RADIUS, label_bound=1.0),
    "own": build_tabled_loss(
        TabledSignLoss, lambda z, y: max(0.0, 1 - y * z) ** 2, lipschitz=4.0, steeper="clip"
    ),
    "weighted": apply_class_weights(HuberSVM(width=1e-9), (0.2, 3.0)),
    "weighted-softmax": apply_class_weights(SoftmaxLoss(classes=3), (3.0, 0.2, 1.0)),
    "own-residual": build_tabled_loss(TabledResidualLoss, lambda z, y: abs(z - y), lipschitz=1.0),
}


def tied(rng, loss, dtype, features):
    """Rows and labels, equal ones among them, and a θ under which the first one's margin ties."""
    rows = rng.normal(size=(RECORDS, features))
    rows[: rng.integers(1, RECORDS)] = rows[0]
    rows[-1] *= rng.choice([0.0, 1e-310, -1.0])
    rows = prepare_rows(rows.astype(dtype), intercept=False)
    theta = rng.normal(size=(loss.outputs, features)) * 10.0 ** rng.choice([0, 8, 16, 100, 300])
    first = rows[0].astype(np.float64)
    largest = np.argmax(np.abs(first))
    for own in theta:
        own[largest] -= (own @ first - rng.choice([0.0, 1.0, -1.0])) / first[largest]
    if rng.random() < 0.2:
        theta[:] = rng.choice([0.0, -0.0, 5e-324])
    elif loss.outputs > 1:
        theta[1] = theta[0]
    theta = np.minimum(1, loss.theta_radius / max(np.abs(theta).max() * features, 1)) * theta
    labels = loss.to_nearest_labels(rng.integers(-1, 3, RECORDS).astype(float))
    return rows, labels, theta.ravel()


def neighbours(rng, rows, labels, relation, loss):
    """Data sets that differ in one record."""
    for gone in range(RECORDS):
        kept = np.delete(np.arange(RECORDS), gone)
        if relation is Neighbouring.ADD_OR_REMOVE_ONE:
            yield rows[kept], labels[kept]
            continue
        for row in (-rows[gone], 0 * rows[gone], rows[rng.choice(kept)]):
            other, said = rows.copy(), labels.copy()
            other[gone] = row
            said[gone] = loss.to_nearest_labels(rng.integers(-1, 3, 1).astype(float))[0]
            yield other, said


@pytest.mark.parametrize("relation", Neighbouring)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", LOSSES)
def test_no_record_moves_a_sum_by_more_than_is_charged_where_theta_ties(name, dtype, relation):
    loss, rng = LOSSES[name], np.random.default_rng(5)
    facts = PublicFacts(
        parties=1, min_records=RECORDS, total_records=RECORDS, max_records=RECORDS,
        weights="uniform",
    )  # fmt: skip
    largest = 0.0
    for features, clip in ((1, 1.0), (5, 0.01), (64, loss.lipschitz), (31, loss.lipschitz)):
        model = LinearModel(loss=loss, features=features)
        algorithm = GradientPerturbation(
            model=model, lambda_=0.01, lipschitz=clip, weights="uniform", rounds=1,
            learning_rate=0.1, momentum=0.0, average=True, neighbouring=relation,
        )  # fmt: skip
        rows, labels, theta = tied(rng, loss, dtype, features)

        def given(own, said, algorithm=algorithm, theta=theta):
            block = PartyBlock(features=own, labels=said, offsets=np.array([0, len(said)]))
            plan = SimpleNamespace(
                min_records=RECORDS, mean_records=RECORDS, parties=1, round_number=1
            )
            return algorithm.local({**algorithm.init(), "theta": theta}, block, plan, None).values

        whole, charged = given(rows, labels), algorithm.claim(facts).covered_sensitivity
        for own, said in neighbours(rng, rows, labels, relation, loss):
            largest = max(largest, float(np.linalg.norm(whole - given(own, said))) / charged)
    assert 0.3 < largest <= 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_record_moves_others_where_classes_tie_by_rounding_alone(dtype):
    """θ of 10¹⁵ and more whose scores of equal rows cancel: a product of one row less rounds
    them otherwise, and every other record would be of another class."""
    rng, largest = np.random.default_rng(7), 0.0
    for case in range(150):
        classes, p = (2, 3, 10)[case % 3], (5, 8, 17, 31, 64)[case % 5]
        count = int(rng.choice([2, 3, 5, 8, 9, 13, 17, 33]))
        loss, row = SoftmaxLoss(classes=classes), rng.normal(size=p)
        rows = np.repeat(prepare_rows(row[None].astype(dtype), intercept=False), count, axis=0)
        first = rows[0].astype(np.float64)
        theta = rng.normal(size=(classes, p)) * 10.0 ** rng.choice([15, 16, 17, 18])
        most = np.argmax(np.abs(first))
        theta[:, most] -= (theta - theta[0]) @ first / first[most]
        facts = PublicFacts(
            parties=1, min_records=count, total_records=count, max_records=count, weights="uniform"
        )
        algorithm = GradientPerturbation(
            model=LinearModel(loss=loss, features=p), lambda_=0.01, lipschitz=loss.lipschitz,
            weights="uniform", rounds=1, learning_rate=0.1, momentum=0.0, average=True,
            neighbouring=Neighbouring.ADD_OR_REMOVE_ONE,
        )  # fmt: skip
        whole, rest = (
            algorithm.local(
                {**algorithm.init(), "theta": theta.ravel()},
                PartyBlock(
                    features=rows[gone:],
                    labels=np.zeros(count - gone, dtype=np.int64),
                    offsets=np.array([0, count - gone]),
                ),
                SimpleNamespace(min_records=count, mean_records=count, parties=1, round_number=1),
                None,
            ).values
            for gone in (0, 1)
        )
        largest = max(
            largest,
            float(np.linalg.norm(whole - rest)) / algorithm.claim(facts).covered_sensitivity,
        )
    assert 0.5 < largest <= 1
