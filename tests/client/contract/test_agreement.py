"""Masks are keyed by everything that a party computes from: what one is told otherwise is noise."""

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum

import numpy as np
import pytest
from agreements import NETWORK
from safetensors.numpy import save

from parley.client.contract.agreement import Agreement
from parley.client.contract.canonical_encoding import encode_canonical
from parley.client.contract.message_frames import REQUESTS
from parley.client.contract.refusals import Declined

BOTH = (*NETWORK, "privacy.unit=both", "privacy.party-epsilon=3", "privacy.record-bound=inner")


KINDS = {
    "gradients": ((), {}),
    "a network": (NETWORK, {}),
    "both units": (BOTH, {"party-epsilon": 50.0, "party-delta": 1e-5}),
}


def joined(wired, folder, kind):
    overrides, data = KINDS[kind]
    world = wired.World(folder, overrides=overrides, reopen=False, **data)
    world.join()
    plan, state = world.plan.with_round(1), world.state()
    return world, replace(
        world.agreement, plan=plan, serial=1, state=state, components=save({"components": ROWS})
    )


ROWS = np.eye(4)[:, :2]


def leaves(value, path=()):
    """Every leaf of an agreement, by the fields of the types and the keys of the mappings."""
    if is_dataclass(value):
        for each in fields(value):
            yield from leaves(getattr(value, each.name), (*path, each.name))
    elif isinstance(value, Mapping):
        for key in value:
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, tuple | list) and value:
        for place, item in enumerate(value):
            yield from leaves(item, (*path, place))
    else:
        yield path, value


def other(value):
    """Another value of the type, as near as there is one."""
    if value is None:
        return 0.25
    if isinstance(value, bool):
        return not value
    if isinstance(value, Enum):
        return next(member for member in type(value) if member is not value)
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return float(np.nextafter(value, np.inf))
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:] if value else b"\0"
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, tuple | list):
        return ("0",)
    raise TypeError(f"Expected a type with another value, got {type(value).__name__}.")


def changed(value, path, new):
    """`value` with the leaf at `path` set, past every check of a constructor."""
    if not path:
        return new
    step, rest = path[0], path[1:]
    if is_dataclass(value):
        copy = object.__new__(type(value))
        for each in fields(value):
            object.__setattr__(copy, each.name, getattr(value, each.name))
        object.__setattr__(copy, step, changed(getattr(value, step), rest, new))
        return copy
    if isinstance(value, Mapping):
        return {**value, step: changed(value[step], rest, new)}
    return tuple(changed(v, rest, new) if n == step else v for n, v in enumerate(value))


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_of_an_agreement_is_left_out_of_what_keys_the_masks(wired, tmp_path, kind):
    _, agreed = joined(wired, tmp_path, kind)
    bindings = {agreed.compute_binding()}
    found = list(leaves(agreed))
    assert len(found) > 45
    for path, value in found:
        bindings.add(changed(agreed, path, other(value)).compute_binding())
    assert len(bindings) == 1 + len(found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_yes_is_to_every_field_but_the_names_of_a_session_and_a_round(wired, tmp_path, kind):
    _, agreed = joined(wired, tmp_path, kind)
    same = {("present",), ("components",), ("serial",), ("state",)}
    same |= {("parameters", name) for name in ("run_id", "commitments", "beacon")}
    for path, value in leaves(agreed):
        with suppress(ValueError):  # else no parameters at all
            own = (
                changed(agreed, path, other(value)).compute_proposal_digest()
                == agreed.compute_proposal_digest()
            )
            assert own == (path in same), path


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_request_can_say_is_bound_or_refused(wired, tmp_path, kind):
    _, agreed = joined(wired, tmp_path, kind)
    assert set(REQUESTS["join"][0]) == set(REQUESTS["propose"][0]) == set(agreed.build_head())
    # The rest of a round's request: its plan, shares of another round, which are no part of it, and
    # ciphertexts, which key the masks themselves.
    assert (set(REQUESTS["round"][0]), REQUESTS["round"][1]) == ({"session", "plan", "prepare"}, 3)
    head = json.loads(json.dumps(agreed.build_head()))
    told = {"components": agreed.components, "identities": agreed.identities}
    honest = Agreement.from_head(head, **told).compute_binding()
    found = [path for path, _ in leaves(head)]
    assert len(found) > 40
    for path, value in leaves(head):
        lying = json.loads(json.dumps(changed(head, path, other(value))))
        with suppress(Declined):
            assert Agreement.from_head(lying, **told).compute_binding() != honest, path


def test_a_field_that_is_added_later_is_bound_by_being_added():
    @dataclass(frozen=True)
    class Later(Agreement):
        temperature: float = 1.0

    def built(cls, **more):
        names = [each.name for each in fields(Agreement)]
        made = object.__new__(cls)
        for name, value in {**dict.fromkeys(names), **more}.items():
            object.__setattr__(made, name, value)
        return made

    cold, warm = (built(Later, temperature=t) for t in (1.0, 2.0))
    assert encode_canonical(cold) != encode_canonical(warm)
    assert cold.compute_binding() != warm.compute_binding()
    with pytest.raises(TypeError, match="canonical encoding, got set"):
        built(Later, temperature={1.0}).compute_binding()
    with pytest.raises(dataclasses.FrozenInstanceError):
        cold.temperature = 3.0


def test_values_that_are_alike_have_encodings_that_are_not():
    alike = [1, 1.0, True, "1", b"1", None, (1,), (), {"1": 1}, {}, "", b"", 0, -0.0, 0.0, ((),)]
    alike += [("ab", "c"), ("a", "bc"), {"a": 1, "b": 2}, {"a": 1, "c": 2}, Enum("Kind", "A").A]
    assert len({encode_canonical(value) for value in alike}) == len(alike)
    with pytest.raises(ValueError, match="NaN"):
        encode_canonical({"a": float("nan")})


# What decides no value.
NAMES_OF_PLAN = {("plan", name) for name in ("run_id", "round_number", "step")}
NAMES = {"run_id", "identities", "parameters", "present", "rounds", "serial"}


def test_the_content_of_two_rounds_is_the_same_whatever_they_are_called(wired, tmp_path):
    _, agreed = joined(wired, tmp_path, "gradients")
    for path, value in leaves(agreed):
        one = changed(agreed, path, other(value))
        named = path[0] in NAMES or path in NAMES_OF_PLAN
        if path[:2] == ("plan", "guarantees") and path[3] in ("unit", "charges"):
            with pytest.raises(ValueError, match="each charged once"):
                one.compute_content_digest()  # A plan that contradicts itself has none.
            continue
        assert (one.compute_content_digest() == agreed.compute_content_digest()) == named, path
