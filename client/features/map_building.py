"""Feature maps built from plain values, of a job or from the network; unknown ones are refused.

A row of `FEATURES` is a class whose fields are its settings.

    >>> build_map("bins", {"bins": 4}).settings
    {'bins': 4, 'edges': {}, 'products': []}
    >>> build_map("scattering", {"scale": 2})
    Traceback (most recent call last):
        ...
    parley.client.features.feature_error.FeatureError: Unknown key model.feature-settings...
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parley.client.contract.strict_decoding import DecodingError, decode_dataclass
from parley.client.features.feature_error import FeatureError
from parley.client.features.registry import FEATURES
from parley.client.own_code.own_code_names import get_public_name

if TYPE_CHECKING:
    from parley.client.features.base import FeatureMap

_NONE: Mapping[str, str] = MappingProxyType({})


def build_map(
    name: str, settings: Mapping[str, Any], *, own_maps: Mapping[str, str] = _NONE
) -> FeatureMap:
    """Build the map of this name, from `FEATURES` or from `own_maps`.

    Args:
        settings: kebab-case or snake_case keys; missing ones have their defaults.
        own_maps: user-defined maps that may be run: their public name → the path of the code.
    """
    if name in FEATURES:
        return _build_from_settings(FEATURES[name], settings, {})
    place = own_maps.get(get_public_name(name), "")
    if ":" not in place:
        raise FeatureError(
            f"Expected features of {', '.join(FEATURES)}, or your own 'file.py:function' that the "
            f"policy lists in features, got {name!r:.80}."
        )
    from parley.client.features.own_feature_map import OwnFeatureMap  # noqa: PLC0415 - start-up: `plan` of built-in features loads no torch (1.4 s)

    return _build_from_settings(OwnFeatureMap, settings, {"place": place})


def _build_from_settings(
    kind: type[FeatureMap], settings: Mapping[str, Any], fixed_fields: dict[str, Any]
) -> FeatureMap:
    own = [each for each in fields(kind) if each.name not in fixed_fields]
    known = {each.name.replace("_", "-"): each for each in own}
    plain = {str(key).replace("_", "-"): value for key, value in settings.items()}
    if unknown := sorted(set(plain) - set(known)):
        remedy = f"Expected one of: {', '.join(known)}."
        raise FeatureError(f"Unknown key model.feature-settings.{unknown[0]:.80}. {remedy}")
    full = {}
    for key, each in known.items():
        default = each.default if each.default is not MISSING else {}
        full[each.name] = plain.get(key, default)
    try:
        return decode_dataclass(kind, json.loads(json.dumps(full, allow_nan=False)), **fixed_fields)
    except (DecodingError, TypeError, ValueError) as error:
        raise FeatureError(f"model.feature-settings: {error}") from error
