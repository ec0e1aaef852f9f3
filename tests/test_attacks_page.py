"""The page of attacks names tests that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_attack_on_the_page_has_the_test_that_it_names():
    page = (ROOT / "docs" / "attacks.md").read_text(encoding="utf-8")
    files = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/*.py")}
    named = re.findall(r"`(test_\w+\.py)::(\w*)`", page)
    assert len(named) > 50
    missing = [
        f"{file}::{test}"
        for file, test in named
        if file not in files or not re.search(rf"def {test or 'test_'}", files[file])
    ]
    assert not missing


def test_every_row_of_the_page_ends_with_a_test():
    rows = re.findall(
        r"^\| (?!attack|---)(.*) \|$",
        (ROOT / "docs" / "attacks.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert all(re.search(r"`test_\w+\.py::\w*`$", row) for row in rows), rows
