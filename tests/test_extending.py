"""The page on extending: its examples work as they stand, and its table names what is there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = "\n".join(
    path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/extending*.md"))
)
SECTIONS = dict(re.findall(r"^## An? ([a-z ]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
WORKED = (("mechanism", "accountant", "transport", "loss"), ("noise point",), ("query",))


@pytest.mark.parametrize("kinds", WORKED, ids=" and ".join)
def test_a_worked_example_keeps_what_its_kind_promises(kinds, tmp_path):
    """In processes of their own: they add rows to tables, and those of a process have to agree."""
    names = [f"test_{kind.replace(' ', '_')}.py" for kind in kinds]
    for kind, name in zip(kinds, names, strict=True):
        blocks = re.findall(r"^```python\n(.*?)^```", SECTIONS[kind], re.MULTILINE | re.DOTALL)
        more = ROOT / "tests/fixtures/extending" / f"{kind.replace(' ', '_')}.py"
        if more.exists():
            blocks.append(more.read_text(encoding="utf-8"))
        (tmp_path / name).write_text("\n\n".join(blocks), encoding="utf-8")
    paths = [str(ROOT / each) for each in (".", "tests/conformance", "tests/fixtures")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", *names],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for name in names:
        assert f"PASSED {name}::" in done.stdout


def test_the_table_names_classes_and_tables_that_are_there():
    named = re.findall(r"`(test_\w+\.py)::(\w+)`", PAGE)
    for file, name in named:
        text = (ROOT / "tests" / "conformance" / file).read_text(encoding="utf-8")
        assert f"class {name}:" in text, (file, name)
        assert "def test_every_" in text, file
    rows = re.findall(r"^\| [^|]* \| `([\w/]+)/` \| `(\w+)` in `(\w+\.py)`", PAGE, re.MULTILINE)
    tables = {"MECHANISMS", "NOISE_POINTS", "ACCOUNTANTS", "ALGORITHMS", "ENGINES", "QUERIES"}
    assert {name for _, name, _ in rows} == tables
    for folder, name, file in rows:
        text = (ROOT / folder / file).read_text(encoding="utf-8")
        assert re.search(rf"^{name}(: dict\[| = PluginTable\[)", text, re.MULTILINE), name


@pytest.mark.parametrize(
    ("section", "file"),
    [
        ("algorithm", "examples/federated_count.py"),
        ("sum of clipped records", "tests/fixtures/own_sum.py"),
    ],
)
def test_an_algorithm_on_the_page_is_the_one_that_is_tested(section, file):
    (block,) = re.findall(r"^```python\n(.*?)^```", SECTIONS[section], re.MULTILINE | re.DOTALL)
    assert block in (ROOT / file).read_text(encoding="utf-8")
