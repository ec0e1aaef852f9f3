"""The page of attacks names tests that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("docs/attacks*.md"))


def test_every_attack_on_the_page_has_the_test_that_it_names():
    files = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/*.py")}
    named = re.findall(r"`(test_\w+\.py)::(\w*)`", PAGE)
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
        PAGE,
        re.MULTILINE,
    )
    assert all(re.search(r"`test_\w+\.py::\w*`$", row) for row in rows), rows
