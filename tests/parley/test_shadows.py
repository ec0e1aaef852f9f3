"""A user's own server.py or client/ beside the job is named, not run in the place of Parley's."""

import os
import subprocess
import sys

import pytest

import parley
from parley.shadows import PACKAGES


def python(*arguments, cwd, **environment):
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=env | environment,
    )


@pytest.mark.parametrize("name", PACKAGES)
def test_a_file_of_a_packages_name_is_named(name, tmp_path):
    (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong file ran')\n")
    done = python("-c", "import parley", cwd=tmp_path)
    assert done.returncode == 1
    assert f"Expected Parley's package `{name}`" in done.stderr
    assert f"{name}.py, which Python finds first. Rename it" in done.stderr
    assert "the wrong file ran" not in done.stderr


def test_python_m_parley_says_it_in_one_line(tmp_path):
    (tmp_path / "server.py").write_text("")
    done = python("-m", "parley", "--version", cwd=tmp_path)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert str(tmp_path / "server.py") in done.stderr


@pytest.mark.parametrize("inside", ["__init__.py", "records.csv"])
def test_a_folder_of_a_packages_name_is_named(inside, tmp_path):
    (tmp_path / "client").mkdir()
    (tmp_path / "client" / inside).write_text("")
    done = python("-c", "import parley; print('imported')", cwd=tmp_path)
    # A folder without __init__.py comes first only where Parley is installed as editable.
    named = str(tmp_path / "client") in done.stderr
    assert named or (done.stdout == "imported\n" and inside != "__init__.py")


def test_a_module_that_is_imported_already_is_named(tmp_path):
    (tmp_path / "privacy.py").write_text("mine = 1\n")
    script = "import privacy, sys; sys.path.pop(0); import parley"
    done = python("-c", script, cwd=tmp_path)
    assert "privacy.py, which Python finds first" in done.stderr


def test_the_command_leaves_the_current_folder_out(tmp_path):
    for name in PACKAGES:
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong file ran')\n")
    done = python("-P", "-m", "parley", "--version", cwd=tmp_path)
    assert done.stdout.split() == ["parley", parley.__version__]


def test_every_flat_package_is_looked_for():
    import tomllib
    from pathlib import Path

    project = tomllib.loads(
        (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    )
    flat = {name.split(".")[0] for name in project["tool"]["setuptools"]["packages"]}
    assert flat == {"parley", *PACKAGES}
