"""Load the public feature map of a model file, with exactly the digest of the one in training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.client.contract.feature_map_reference import parse_feature_map
from parley.client.contract.refusals import Declined
from parley.client.features.feature_error import FeatureError
from parley.client.features.map_building import build_map
from parley.prediction.permitted_code import describe_missing_code, match_own_code
from parley.server.model_file import ModelFileError

if TYPE_CHECKING:
    from parley.client.features.base import FeatureMap


def load_feature_map(file: Path, described: Any, own_models: tuple[str, ...]) -> FeatureMap:
    """Build the map that a model file describes; raise ModelFileError if it is not the same.

    Args:
        own_models: names of the caller's own code that may be run.
    """
    try:
        named = parse_feature_map(described, agreed=True)
        made = build_map(
            named.get("name", ""),
            named.get("settings", {}),
            own_maps=match_own_code(named.get("name"), own_models),
        )
        digest = made.digest
    except (Declined, FeatureError) as error:
        name = described.get("name") if isinstance(described, Mapping) else None
        missing = describe_missing_code(name, own_models)
        raise ModelFileError(f"{file}: {missing or error}") from error
    if digest != named["digest"]:
        raise ModelFileError(
            f"Expected features of digest {named['digest']}, with which {file} was trained, got "
            f"{digest}: their code, weights or version of Parley differ."
        )
    return made
