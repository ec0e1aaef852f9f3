"""Files of your own algorithms: they work with text annotations, or are refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.client.algorithms.own_algorithm import OwnAlgorithmError, build_own
from parley.client.algorithms.registry import describe_task, task_from

EXAMPLE = Path(__file__).parents[3] / "examples" / "federated_count.py"
TEXT = EXAMPLE.read_text()
FUTURE = TEXT.replace("from dataclasses", "from __future__ import annotations\n\nfrom dataclasses")


def test_text_annotations_are_types_as_any(tmp_path: Path) -> None:
    file = tmp_path / "federated_count.py"
    file.write_text(FUTURE)
    name = f"{file}:FederatedCount"
    built = build_own(name, {"most": 7}, features=3, classes=2)
    task = describe_task(built)
    again = task_from(task, own_algorithms={"federated_count.py:FederatedCount": name})
    assert (again.most, again.features, again.dimension) == (7, 3, 1)  # type: ignore[attr-defined]
    with pytest.raises(OwnAlgorithmError, match="most"):
        build_own(name, {"most": "many"}, features=3, classes=2)


REFUSED = {
    "syntax": (TEXT + "\ndef (:\n", r"SyntaxError.*federated_count\.py, line"),
    "missing package": ("import no_such_package_here\n" + TEXT, "No module named 'no_such_pack"),
    "raises": ("\n1 / 0\n" + TEXT.replace('"""A fed', '"""A fed'), r"ZeroDivisionError.*line 2\)"),
    "leaves": ("import sys\nsys.exit(3)\n", "SystemExit"),
    "no class": (TEXT.replace("class FederatedCount", "class Other"), "none of that name"),
    "no dataclass": ("FederatedCount = 5\n", "an object of type int"),
    "hidden type": (
        FUTURE.replace("    most: int =", "    most: Hidden ="),
        "Cannot read the types.*Hidden",
    ),
    "fails when built": (
        TEXT + "\n    def __post_init__(self):\n        {}['x']\n",
        r"KeyError.*federated_count\.py, line",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_fails_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    text, said = REFUSED[name]
    file = tmp_path / "federated_count.py"
    file.write_text(text)
    with pytest.raises(OwnAlgorithmError, match=said) as refused:
        build_own(f"{file}:FederatedCount", {}, features=3, classes=2)
    assert "\n" not in str(refused.value)
