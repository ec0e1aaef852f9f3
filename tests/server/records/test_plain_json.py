"""No JSON that we write has NaN or Infinity in it, whatever is measured."""

import ast
import json
from pathlib import Path

import pytest

from parley.server.records.plain_json import json_text

ROOT = Path(__file__).parents[3]
PACKAGES = ("client", "server", "simulations", "parley", "privacy", "secure_agg")


def test_numbers_that_are_not_finite_are_null_at_any_depth() -> None:
    value = {"a": float("nan"), "b": [1.5, float("-inf"), {"c": (float("inf"), "NaN")}], "d": 2}
    read = json.loads(json_text(value), parse_constant=pytest.fail)
    assert read == {"a": None, "b": [1.5, None, {"c": [None, "NaN"]}], "d": 2}


def test_every_json_text_of_ours_is_written_where_nan_cannot_be() -> None:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                if (
                    node.func.attr not in ("dump", "dumps")
                    or ast.unparse(node.func.value) != "json"
                ):
                    continue
                given = {word.arg: ast.unparse(word.value) for word in node.keywords}
                assert given.get("allow_nan") == "False", f"{path}:{node.lineno}"
