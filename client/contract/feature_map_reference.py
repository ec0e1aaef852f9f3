"""The form in which server and parties name a public feature map: name, settings and digest.

Before a run, the server requests a map by `name` and `settings`, and every party returns its
`digest`. From then on all three are agreed on, and contributions are bound to them. An empty
mapping means no map.

    >>> asked = {"name": "scattering", "settings": {"scales": 2}}
    >>> parse_feature_map(asked, agreed=False) == asked
    True
    >>> parse_feature_map({}, agreed=True)
    {}
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from parley.client.contract.refusals import Declined, Reason
from parley.client.contract.strict_decoding import MAX_TEXT_LENGTH

_MAX_SETTINGS_LENGTH: Final = 1 << 14
"""Maximum number of characters of a map's settings."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def parse_feature_map(value: Any, *, agreed: bool) -> dict[str, Any]:
    """Return the map that a request names; empty for none.

    Args:
        agreed: whether the map includes its digest.

    Raises:
        Declined: protocol, if the map is malformed.
    """
    keys = {"name", "settings", "digest"} if agreed else {"name", "settings"}
    if not isinstance(value, Mapping) or (value and set(value) != keys):
        raise Declined(Reason.PROTOCOL, f"Expected {sorted(keys)} of features, or nothing.")
    if not value:
        return {}
    name, settings = value["name"], value["settings"]
    if not isinstance(name, str) or not 0 < len(name) <= MAX_TEXT_LENGTH:
        raise Declined(Reason.PROTOCOL, "Expected a text as the name of features.")
    if not isinstance(settings, Mapping):
        raise Declined(Reason.PROTOCOL, "Expected settings of features, got none.")
    try:
        length = len(json.dumps(settings, allow_nan=False))
    except (ValueError, TypeError) as error:  # a number that overflowed on its way
        raise Declined(Reason.PROTOCOL, "Expected finite settings of features.") from error
    if length > _MAX_SETTINGS_LENGTH:
        raise Declined(Reason.PROTOCOL, "Expected shorter settings of features.")
    if agreed:
        digest = value["digest"]
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise Declined(Reason.PROTOCOL, "Expected the digest of features in 64 hex digits.")
    return dict(value)


def compute_prepared_schema(features: int, classes: int) -> str:
    """Return a hex digest that replaces the schema's for rows that their owner prepared."""
    facts = f"prepared: {features} features, {classes} classes"
    return hashlib.sha256(facts.encode()).hexdigest()
