"""The docs build as the first command in a fresh clone."""

import subprocess
from pathlib import Path

import pytest

mkdocs_config = pytest.importorskip("mkdocs.config")

_ROOT = Path(__file__).parents[1]


def test_the_folder_of_modules_is_made_before_a_plug_in_looks_for_it(monkeypatch):
    ran = []
    monkeypatch.setattr(subprocess, "run", lambda words, **_: ran.append(Path(words[-1])))
    config = mkdocs_config.load_config(str(_ROOT / "mkdocs.yml"))
    config.plugins.on_startup(command="build", dirty=False)
    assert ran == [_ROOT / ".ci" / "view"]
