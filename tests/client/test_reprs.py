"""No record is in the repr of what holds records: a log or a traceback may show a repr."""

import ast
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_RECORDS = {"rows", "labels", "frame", "features", "cells", "values"}
_ARRAYS = (
    *("NDArray[np.floating", "NDArray[np.generic", "NDArray[np.float64", "NDArray[Any", "Array"),
    *("Tensor", "FeatureRows", "pl.DataFrame", "pl.Series"),
)


def _list_classes_of_records():
    """Yield the dataclasses with a field of records, and whether they print their fields."""
    for folder in ("client/data", "client/party", "client/dp_sgd", "client/solvers"):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.ClassDef):
                    continue
                marks = [ast.unparse(each) for each in node.decorator_list]
                fields = {
                    each.target.id: ast.unparse(each.annotation)
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                }
                holds = any(
                    name in _RECORDS and kind.startswith(_ARRAYS) for name, kind in fields.items()
                )
                if holds and any(mark.startswith("dataclass") for mark in marks):
                    yield node, any("repr=False" in mark for mark in marks)


def test_no_dataclass_prints_its_records():
    found = list(_list_classes_of_records())
    assert len(found) >= 6
    for node, hidden in found:
        own = any(
            isinstance(each, ast.FunctionDef) and each.name == "__repr__" for each in node.body
        )
        assert hidden or own, node.name
