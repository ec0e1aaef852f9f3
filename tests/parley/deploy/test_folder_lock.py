"""One process holds a folder, and the lock is no way to another file."""

import os
import subprocess
import sys

import pytest

from parley.deploy.folder_lock import hold_folder
from parley.deploy.process_errors import ProcessError
from parley.safe_io.os_errors import describe_error

_HOLD = """
import sys
from pathlib import Path
from parley.deploy.folder_lock import hold_folder
with hold_folder(Path(sys.argv[1]), role="server", command="parley server"):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(folder):
    return hold_folder(folder, role="server", command="parley server")


def test_a_second_process_is_refused_until_the_first_ends_however_it_ends(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "home")
    first = subprocess.Popen(
        [sys.executable, "-c", _HOLD, tmp_path / "home"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert first.stdout.readline() == b"held\n"
    with (
        pytest.raises(ProcessError, match=f"process {first.pid} runs on it"),
        hold(tmp_path / "link"),
    ):
        pass
    first.kill()
    first.wait()
    with hold(tmp_path / "home"):
        assert (tmp_path / "home" / ".server.lock").read_text() == f"{os.getpid()}\n"


def test_a_lock_that_is_a_link_is_not_written_through(tmp_path):
    (tmp_path / "kept").write_text("kept")
    (tmp_path / ".server.lock").symlink_to(tmp_path / "kept")
    with pytest.raises(OSError, match="") as raised, hold(tmp_path):
        pass
    assert describe_error(raised.value).endswith("Remove the link.")
    assert (tmp_path / "kept").read_text() == "kept"
