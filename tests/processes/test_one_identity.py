"""Two processes on one folder, or on one key: real servers and parties."""

import shutil
import tomllib

import pytest
import tomli_w

from parley.deploy.child_processes import find_free_ports


def move_port(home):
    """Writes another port into a server's settings, as somebody would who starts a second one."""
    settings = home / "server" / "server.toml"
    (port,) = find_free_ports(1)
    settings.write_text(tomli_w.dumps(tomllib.loads(settings.read_text()) | {"port": port}))


@pytest.mark.heavy  # twelve processes; `test_port.py` has the copied key in threads
def test_one_process_serves_a_folder_and_one_attends_with_a_key(parley, consortium, tmp_path):
    server = parley.serve(consortium)
    parties = parley.everybody(consortium, server)
    settings = (consortium / "server" / "server.toml").read_text()
    move_port(consortium)
    said = parley("server", consortium / "server", expect=1)
    assert "Expected to be the only server on" in said
    assert f"process {parley.running[server][0].pid} runs on it" in said
    (consortium / "server" / "server.toml").write_text(settings)
    north = consortium / "parties" / "north"
    assert "Expected to be the only party on" in parley("party", north, expect=1)

    shutil.copytree(north, tmp_path / "copy")
    copy = parley.start("party", tmp_path / "copy")
    parley.until(copy, "another process is connected with this party's key")
    parley.until(server, "north is connected twice")
    parley.until(parties[0], "Another process connected")
    assert "north attends twice" in parley("status", consortium)
    parley("submit", tmp_path / "job.toml", "--to", consortium, "-q")  # with the first one
    assert not (tmp_path / "copy" / "ledger.sqlite").exists()
    process, _ = parley.running[parties[0]]
    process.terminate()
    process.wait(30)
    parley.until(copy, "Connected to")  # the first one is gone: the key is the party
