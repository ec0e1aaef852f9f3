"""Decode a release plan and its guarantees from JSON values, strictly.

A party decodes what a server proposes. Nothing here decides whether to accept it
(`parley.client.party.plan_verification`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parley.client.contract.guarantee import Guarantee
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.strict_decoding import DecodingError, decode_dataclass, format_received
from parley.privacy.accounting.threat_model import Unit, get_noise_point
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.noise_shares import Shares
from parley.privacy.mechanisms.registry import MECHANISM_CLASSES
from parley.secure_agg.encoding import FixedPoint


def decode_plan(value: Any) -> ReleasePlan:
    """Build a proposed plan from JSON values; the inverse of `ReleasePlan.to_json`.

    Raises:
        DecodingError: the values are malformed or out of range.
    """
    if not isinstance(value, Mapping):
        raise DecodingError(f"Expected a plan as an object, got {type(value).__name__}.")
    guarantees = value.get("guarantees")
    if not isinstance(guarantees, list) or len(guarantees) > len(Unit):
        raise DecodingError(f"Expected a list of at most {len(Unit)} guarantees in a plan.")
    plan = decode_dataclass(
        ReleasePlan,
        {key: part for key, part in value.items() if key not in {"encoding", "guarantees"}},
        encoding=decode_dataclass(FixedPoint, value.get("encoding")),
        guarantees=tuple(decode_guarantee(each) for each in guarantees),
    )
    if plan.round_number < 0 or min(plan.dimension, plan.parties, plan.min_records) < 1:
        raise DecodingError("Expected round >= 0, dimension, parties and min_records >= 1.")
    if not 1 <= plan.min_survivors <= plan.parties or plan.weights not in ("uniform", "size"):
        raise DecodingError("Expected min_survivors from 1 to m and known weights, got others.")
    if any(each.mechanism.dimension != plan.dimension for each in plan.guarantees):
        expected = f"Expected mechanisms of the plan's dimension, {plan.dimension}"
        raise DecodingError(f"{expected}, got others.")
    if min(plan.lipschitz, plan.mean_records) <= 0 or plan.lambda_ < 0:
        raise DecodingError("Expected G and mean records > 0, λ >= 0.")
    if not 1 <= plan.step <= plan.steps:
        raise DecodingError(f"Expected a step from 1 to {plan.steps}, got {plan.step}.")
    return plan


def decode_guarantee(value: Any) -> Guarantee:
    """Build a guarantee from JSON values; the inverse of `Guarantee.to_json`.

    Raises:
        DecodingError: the values are malformed.
    """
    if not isinstance(value, Mapping):
        raise DecodingError(f"Expected a guarantee as an object, got {type(value).__name__}.")
    decoded: dict[str, Any] = {"mechanism": decode_mechanism(value.get("mechanism"))}
    if "noise_point" in value:
        try:
            decoded["noise_point"] = get_noise_point(value["noise_point"])
        except ValueError as error:
            raise DecodingError(f"{error} Got {format_received(value['noise_point'])}.") from None
    if "shares" in value:
        split = value["shares"]
        decoded["shares"] = None if split is None else decode_dataclass(Shares, split)
    rest = {key: part for key, part in value.items() if key not in decoded}
    return decode_dataclass(Guarantee, rest, **decoded)


def decode_mechanism(value: Any) -> Mechanism:
    """Build a mechanism from JSON values; the inverse of `encode_mechanism`.

    Raises:
        DecodingError: the values are malformed.
    """
    if not isinstance(value, Mapping):
        raise DecodingError(f"Expected a mechanism as an object, got {type(value).__name__}.")
    law = value.get("law")
    if not isinstance(law, str) or law not in MECHANISM_CLASSES:
        expected = f"Expected a noise law of {', '.join(MECHANISM_CLASSES)}"
        raise DecodingError(f"{expected}, got {format_received(law)}.")
    settings = {key: part for key, part in value.items() if key != "law"}
    mechanism: Mechanism = decode_dataclass(MECHANISM_CLASSES[law], settings)
    return mechanism
