"""What Parley depends on: bounded above, pinned for CI, declared where imported."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIREMENTS = [
    Requirement(line)
    for line in (
        *PROJECT["dependencies"],
        *(line for group in PROJECT["optional-dependencies"].values() for line in group),
    )
    if not line.startswith("parley[")
]
PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
)


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=str)
def test_a_dependency_has_an_upper_bound_and_a_pin_within_its_bounds(requirement):
    assert any(bound.operator == "<" for bound in requirement.specifier)
    assert PINS[canonicalize_name(requirement.name)] in requirement.specifier


def test_the_lock_file_has_a_hash_of_each_file_and_the_versions_of_the_constraints():
    text = (ROOT / "deploy" / "requirements.lock").read_text(encoding="utf-8")
    lines = text.replace("\\\n", " ").splitlines()
    entries = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    locked = dict(entry[0].split("==") for entry in entries)
    assert len(locked) == len(entries)
    assert {name: PINS.get(name) for name in locked} == locked
    for entry in entries:
        hashes = [word for word in entry if word.startswith("--hash=")]
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", word) for word in hashes)
    # setuptools builds Parley itself, without a download of its own.
    needed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["postgres"], "setuptools"]
    assert {canonicalize_name(Requirement(line).name) for line in needed} <= set(locked)


def test_every_file_that_the_code_reads_is_in_a_wheel():
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = whole["tool"]["setuptools"]["package-data"]["*"]
    packages = ("parley", "simulations", "server", "client", "secure_agg", "privacy")
    read = [
        path
        for name in packages
        for path in (ROOT / name).rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    ]
    assert {"document.html.j2", "page.css"} <= {path.name for path in read}
    for path in read:
        assert any(path.match(pattern) for pattern in patterns), path


def test_ci_installs_the_pins_and_looks_for_undeclared_imports():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert 'PIP_CONSTRAINT="$PWD/constraints.txt"' in script
    assert "\ndeptry .\n" in script


def test_every_import_is_declared_and_every_dependency_imported():
    done = subprocess.run(
        [sys.executable, "-m", "deptry", "."], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_room_is_imported_by_its_full_name():
    """`import client.flower_client_app` would work in this folder alone, where `client/` lies."""
    folders = ("client", "server", "simulations", "privacy", "secure_agg")
    flat = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(folders)})\b", re.MULTILINE)
    found = [
        str(path)
        for folder in ("parley", *folders, "tests", "benchmarks", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if flat.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []
