"""What a party lets itself be asked of its second moments, and which components it projects on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from agreements import NETWORK
from plans import with_primary
from proposals import LESS, mechanism
from safetensors.numpy import save

from parley.client.algorithms.task_codec import decode_task, describe_task
from parley.privacy.accounting.threat_model import NOISE_POINTS, Adversary, Unit
from parley.secure_agg.grid_selection import choose_grid
from parley.server.jobs.job_file import load_job
from parley.server.planning.principal_components import plan_components_release

FEATURES = 4


@pytest.fixture(scope="module")
def world(tmp_path_factory, wired):
    return wired.World(tmp_path_factory.mktemp("parties"), overrides=NETWORK, reopen=False)


@pytest.fixture(scope="module")
def ahead(world):
    return asked(world, "server")


@pytest.fixture(scope="module")
def ahead_in_shares(world):
    return asked(world, "share")


def asked(world, point):
    """The release of second moments before the training, with noise added there."""
    job = load_job(
        overrides=[
            *("algorithm.kind=fedavg", "model.kind=pca-mlp", "model.components=2"),
            *("parties.count=3", "run.seed=none", "privacy.epsilon=3"),
            f"privacy.noise-point={point}",
            *("secure-aggregation.min-survivors=2", "secure-aggregation.corrupt=0"),
        ]
    )
    return plan_components_release(
        job, features=FEATURES, federation=world.federation, run_id=world.run
    )


def joined(world, *, session="03" * 16, plan, task, blob=b"", rounds=1, bits=None):
    parameters = world.parameters(session, ring_bits=bits or plan.encoding.ring_bits)
    head = world.join_head(
        session,
        plan=plan.to_json(),
        task=task,
        rounds=rounds,
        parameters=parameters.to_bytes().hex(),
    )
    return world.ask(0, "join", [blob], **head)


def test_an_honest_release_is_accepted_and_its_task_travels(
    world, ahead, ahead_in_shares, wired
) -> None:
    for session, release in (("03" * 16, ahead), ("05" * 16, ahead_in_shares)):
        task = describe_task(release.moments)
        assert decode_task(task) == release.moments
        wired.ok(joined(world, session=session, plan=release.plan, task=task))


CLAIMS = {
    **LESS,
    "weights": (lambda p: replace(p, weights="size"), "sensitivity"),
    "a round": (lambda p: p.with_round(1), "wrong-run"),
    "another unit": (lambda p: with_primary(p, unit=Unit.PARTY, charges=(Unit.PARTY,)), "unit"),
    "clipped records": (lambda p: with_primary(p, clip_norm=0.5), "sensitivity"),
}


def test_noise_inside_a_party_that_trains_nothing_is_no_plan(ahead) -> None:
    with pytest.raises(ValueError, match="shares if, and only if, the parties add the noise"):
        with_primary(
            ahead.plan, noise_point=NOISE_POINTS["party"], against=Adversary.OTHERS, shares=None
        )


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_plan_that_claims_less_than_it_costs_is_declined(world, ahead, wired, claim) -> None:
    change, expected = CLAIMS[claim]
    reply = joined(world, plan=change(ahead.plan), task=describe_task(ahead.moments))
    assert wired.reason(reply) == expected


# In shares the noise is in before a contribution is rounded to the ring: its grid hides nothing.
@pytest.mark.parametrize("claim", [each for each in CLAIMS if "grid" not in CLAIMS[each][1]])
def test_a_plan_in_shares_that_claims_less_than_it_costs_is_declined(
    world, ahead_in_shares, wired, claim
) -> None:
    change, expected = CLAIMS[claim]
    plan, task = change(ahead_in_shares.plan), describe_task(ahead_in_shares.moments)
    assert wired.reason(joined(world, plan=plan, task=task)) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"features": 5}, "model"),
        ({"features": 10**5}, "model"),
        ({"features": 0}, "protocol"),
        ({"features": 10**30}, "protocol"),
        ({"features": "4"}, "protocol"),
        ({"settings": {"neighbouring": "add-or-remove-one", "bound": 60.0}}, "neighbouring"),
        ({"settings": {"neighbouring": "replace-one", "bound": 1e9}}, "sensitivity"),
        ({"settings": {"neighbouring": "replace-one", "bound": 0.1}}, "protocol"),
        ({"settings": {"neighbouring": "replace-one"}}, "protocol"),
        ({"more": 1}, "protocol"),
    ],
)
def test_another_task_is_declined(world, ahead, wired, changes, expected) -> None:
    task = {**describe_task(ahead.moments), **changes}
    assert wired.reason(joined(world, plan=ahead.plan, task=task)) == expected


def test_who_does_not_list_the_release_or_its_model_is_not_asked(tmp_path, ahead, wired) -> None:
    for policy, expected in (
        ({"algorithms": ["fedavg"]}, "algorithm"),
        ({"models": ["mlp"]}, "model"),
        ({"largest-model": 9}, "model"),
    ):
        folder = tmp_path / str(policy)
        folder.mkdir()
        world = wired.World(folder, policy=policy)
        reply = joined(world, plan=ahead.plan, task=describe_task(ahead.moments))
        assert wired.reason(reply) == expected


def components(rows=FEATURES, count=2):
    return np.ones((rows, count)) / 2


def network(world, kind, width):
    task = describe_task(world.algorithm)
    return {**task, "network": {**task["network"], "kind": kind, "features": width}}


def plan_of(world, width):
    # Two layers: width → 3 → 2, with biases.
    dimension = 3 * width + 3 + 3 * 2 + 2
    encoding = choose_grid(
        bound=world.algorithm.update_bound / dimension**0.5 * (1 + 1e-9),
        parties=world.plan.parties,
        dimension=dimension,
        noise_tail=lambda _: 0.0,
        sensitivity=None,
        ring_bits=world.plan.encoding.ring_bits,
    )
    plan = mechanism(world.plan, dimension=dimension)
    return replace(plan, dimension=dimension, encoding=encoding)


def test_rows_are_projected_where_the_model_is_made_for_it(world, wired) -> None:
    blob = save({"components": components()})
    reply = joined(
        world,
        session="04" * 16,
        plan=plan_of(world, 2),
        task=network(world, "pca-mlp", 2),
        blob=blob,
        rounds=world.rounds,
    )
    wired.ok(reply)


def with_entry(value):
    matrix = components()
    matrix[1, 1] = value
    return matrix


OTHERS = {
    "none": ("pca-mlp", 2, b"", "model"),
    "for another model": ("mlp", 4, save({"components": components()}), "model"),
    "for a narrower one": ("mlp", 2, save({"components": components()}), "model"),
    "of other rows": ("pca-mlp", 2, save({"components": components(rows=5)}), "model"),
    "too many": ("pca-mlp", 2, save({"components": components(count=3)}), "model"),
    "more than rows": ("pca-mlp", 2, save({"components": components(rows=1)}), "protocol"),
    "not a number": ("pca-mlp", 2, save({"components": with_entry(np.nan)}), "protocol"),
    "too large": ("pca-mlp", 2, save({"components": with_entry(1e4)}), "protocol"),
    "floats": (
        "pca-mlp",
        2,
        save({"components": components().astype(np.float32)}),
        "protocol",
    ),
    "flat": ("pca-mlp", 2, save({"components": components().ravel()}), "protocol"),
    "named otherwise": ("pca-mlp", 2, save({"theta": components()}), "protocol"),
    "not alone": (
        "pca-mlp",
        2,
        save({"components": components(), "more": components()}),
        "protocol",
    ),
    "no tensors": ("pca-mlp", 2, b"no tensors", "protocol"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_components_are_declined(world, wired, name) -> None:
    kind, width, blob, expected = OTHERS[name]
    reply = joined(
        world,
        plan=plan_of(world, width),
        task=network(world, kind, width),
        blob=blob,
        rounds=world.rounds,
    )
    assert wired.reason(reply) == expected


def test_a_linear_model_takes_no_components(tmp_path, wired) -> None:
    world = wired.World(tmp_path)
    blob = save({"components": components(rows=5)})
    reply = world.ask(0, "join", [blob], **world.join_head())
    assert wired.reason(reply) == "model"
