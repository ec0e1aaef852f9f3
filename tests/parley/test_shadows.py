"""Files of a user's own in the current folder, with the names of Parley's packages."""

import subprocess
import sys
from importlib.metadata import distribution

ROOMS = ("client", "server", "simulations", "secure_agg", "privacy")


def test_files_and_folders_named_like_parleys_rooms_are_not_in_its_way(tmp_path):
    for name in ROOMS:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong one')")
    code = "import parley; parley.load_job(); from parley.server.planning import job_planner"
    for command in (["-m", "parley", "plan"], ["-c", code]):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_an_installation_has_one_top_level_package():
    """A distribution that brought a package called `server` would collide with others."""
    assert distribution("parley").read_text("top_level.txt").split() == ["parley"]
