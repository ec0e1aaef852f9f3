"""What a party says of itself before a run, if its owner discloses it: nothing about a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parley.client.contract.feature_map import features_from
from parley.client.contract.protocol import Declined, Reason
from parley.client.party.consent import Consent
from parley.client.party.dataset import Holding


def public_facts(
    asked: Mapping[str, Any],
    consent: Consent,
    *,
    clock: float,
    holding_of: Callable[[str, str, bool, Mapping[str, Any]], Holding],
) -> dict[str, Any]:
    """Columns, classes and, where it is public, the number of records.

    Args:
        asked: head of an `inspect` request, of checked types.
        consent: the policy.
        clock: this machine's, in seconds.
        holding_of: the data by name, reading of the label, intercept, and public map of features.

    Raises:
        Declined: clocks too far apart, or a question about sizes that are not disclosed.
    """
    theirs = asked["clock"]
    if not abs(theirs - clock) <= consent.clock_skew_s:
        raise Declined(
            Reason.CLOCK_SKEW,
            f"Expected clocks within {consent.clock_skew_s:g} s, they are "
            f"{theirs - clock:+.0f} s apart.",
        )
    dataset = consent.dataset(asked["dataset"])
    if asked["sizes"] and not consent.discloses_size(dataset):
        raise Declined(Reason.SIZES_NOT_DISCLOSED, "Expected no question about sizes.")
    features = features_from(asked["features"], agreed=False)
    facts = holding_of(asked["dataset"], asked["label"], asked["intercept"], features).facts
    return {
        "features": facts.features,
        "classes": facts.classes,
        "schema": facts.schema,
        "map": facts.map,
        "records": facts.records if asked["sizes"] else None,
        "clock": clock,
    }
