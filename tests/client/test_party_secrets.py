"""What a party's folder, answers and log may hold, and what nobody may find there afterwards."""

import os
import re
import stat
import subprocess
import sys

import numpy as np
import pytest

from parley.client.contract.message_frames import WIRE_VERSION, encode_frame
from parley.client.party.party_folder import PartyFolder, PartyFolderError


def test_files_are_readable_by_their_owner_alone(tmp_path, wired):
    world = wired.World(tmp_path)
    old = os.umask(0)
    try:
        world.join()
        world.vectors(1)
        world.opened()
    finally:
        os.umask(old)
    made = ["ledger.sqlite", "party.log", "party.lock", "state"]
    made += [f"state/{path.name}" for path in (world.folders[0] / "state").iterdir()]
    assert len(made) == 8
    for name in made:
        mode = stat.S_IMODE((world.folders[0] / name).stat().st_mode)
        assert mode == (0o700 if name == "state" else 0o600), name


def test_the_secrets_of_a_run_are_gone_once_it_is_finished(tmp_path, wired):
    world = wired.World(tmp_path, reopen=False)
    world.join()
    world.vectors(1)
    held = b"".join(world.files(0).values())
    assert any(secret in held for secret in world.drawn if len(secret) == 32)
    world.opened()
    world.vectors(2, 2)
    for i in range(3):
        wired.ok(world.ask(i, "finish", session=world.session))
    for i in range(3):
        left = b"".join(world.files(i).values())
        assert not [s for s in world.drawn if len(s) >= 16 and s in left]
        assert not list((world.folders[i] / "state").glob("session-*"))
        assert not list((world.folders[i] / "state").glob("*.part"))


def test_a_new_session_of_a_run_erases_the_one_before(tmp_path, wired):
    world = wired.World(tmp_path)
    world.join("0a" * 16)
    world.join("0b" * 16)
    (kept,) = (world.folders[0] / "state").glob("session-*")
    assert kept.name == "session-" + "0b" * 16
    reply = world.ask(0, "prepare", [b""], session="0a" * 16, prepare=2)
    assert wired.reason(reply) == "unknown-session"


def test_runs_that_are_never_finished_make_room_for_new_ones(tmp_path, wired):
    world = wired.World(tmp_path, policy={"max-sessions": 2})
    for n in range(4):
        session = f"{n:032x}"
        plan = world.plan.with_run_id(f"r-{n}")
        wired.ok(
            world.ask(0, "join", **world.join_head(session, run=f"r-{n}", plan=plan.to_json()))
        )
    kept = sorted(path.name for path in (world.folders[0] / "state").glob("session-*"))
    assert kept == [f"session-{n:032x}" for n in (2, 3)]


def test_a_session_whose_server_never_came_back_is_erased_after_a_week(tmp_path, wired):
    world = wired.World(tmp_path)
    world.join("0a" * 16)
    (left,) = (world.folders[0] / "state").glob("session-*")
    week = 7 * 24 * 3600
    world.uptime_s += week - 60
    world.inspect()
    assert left.exists()
    world.uptime_s += 61
    world.inspect()
    assert not left.exists()


def test_neither_answers_nor_log_say_anything_of_the_data(tmp_path, wired):
    world = wired.World(tmp_path)
    answers = []
    raw = world.raw

    def listening(party, request):
        answers.append((party, raw(party, request)))
        return answers[-1][1]

    world.raw = listening
    world.inspect(sizes=False)
    world.join()
    world.vectors(1)
    world.opened()
    world.vectors(2, 1, state=world.state(np.ones(5)))
    assert len(answers) > 12
    rows, _ = wired.rows_of(0, wired.SIZES[0])
    kept = next((world.folders[0] / "state").glob("release-*")).read_bytes()
    words = np.frombuffer(kept[-4 * world.plan.dimension :], np.uint32)
    mine = b"".join(encode_frame(frame) for party, frame in answers if party == 0)
    log = (world.folders[0] / "party.log").read_text()
    for text in (mine, log.encode()):
        assert rows[0].tobytes() not in text
        assert bytes(words) not in text
        assert world.keys[0] not in text
        assert world.keys[0].hex().encode() not in text
    assert "plan-changed" in log
    said = re.sub(r"^\S+Z ", "", log, flags=re.MULTILINE)  # without times, which may contain 40
    assert not re.search(r"\b40\b", said)  # the number of records, which nobody asked for


def test_a_fault_of_the_data_is_logged_without_the_cell(tmp_path, wired):
    world = wired.World(tmp_path)
    folder = world.folders[0]
    (folder / "ward.csv").write_text("age,sick\n30,yes\nmagenta,no\n")
    (folder / "ward.toml").write_text(
        "[columns]\n"
        'age = { kind = "numeric", range = [0, 100] }\n'
        'sick = { kind = "label", positive = "yes", negative = "no" }\n'
    )
    data = {"prepared": "", "path": "ward.csv", "schema": "ward.toml"}
    world.consent({}, party=0, **data)
    assert wired.reason(world.inspect()) == "data-unreadable"
    log = (folder / "party.log").read_text()
    assert "ward.csv" in log
    assert "magenta" not in log
    assert wired.reason(world.inspect(label="softmax")) == "model"
    (folder / "ward.csv").write_text("age,sick\n30,yes\n50,no\n")
    seen = wired.ok(world.inspect()).head
    assert (seen["features"], seen["classes"], seen["records"]) == (1, 0, 2)


def test_a_key_or_folder_that_others_can_read_is_refused_on_this_machine(tmp_path, wired):
    world = wired.World(tmp_path)
    folder = world.folders[0]
    key = folder / "identity.key"
    key.chmod(0o640)
    with pytest.raises(PartyFolderError, match=r"chmod 600 .*identity\.key"):
        world.open(0)
    key.chmod(0o600)
    key.write_text("abc")
    with pytest.raises(PartyFolderError, match="64 hex digits"):
        world.open(0)
    key.write_text("77" * 32)
    with pytest.raises(PartyFolderError, match="another deployment"):
        world.open(0)
    key.unlink()
    with pytest.raises(PartyFolderError, match="no such file"):
        world.open(0)
    (folder / "state").chmod(0o750)
    with pytest.raises(PartyFolderError, match="chmod 700"):
        PartyFolder.open(folder)
    (folder / "state").chmod(0o700)
    folder.chmod(0o777)
    with pytest.raises(PartyFolderError, match="only its owner can write"):
        PartyFolder.open(folder)
    with pytest.raises(PartyFolderError, match="no such file"):
        PartyFolder.open(tmp_path / "nowhere")


def test_what_a_killed_process_left_half_written_is_erased(tmp_path, wired):
    world = wired.World(tmp_path)
    draft = world.folders[0] / "state" / "session-x.part"
    draft.write_bytes(b"secret")
    wired.ok(world.inspect())
    assert not draft.exists()


def test_a_party_of_linear_models_never_loads_torch(tmp_path, wired):
    world = wired.World(tmp_path)
    code = (
        "import sys, pathlib\n"
        "from parley.client.party.party_service import PartyService\n"
        f"folder = pathlib.Path({str(world.folders[0])!r})\n"
        f"s = PartyService.open(folder, clock=lambda: {wired.NOW})\n"
        "from parley.client.contract.message_frames import MessageFrame\n"
        "from parley.client.contract.message_frames import encode_frame, decode_frame\n"
        f"head = {world.join_head()!r} | {{'version': {WIRE_VERSION}}}\n"
        "frame = MessageFrame(kind='join', head=head, blobs=(b'',))\n"
        "answer = decode_frame(s.handle(encode_frame(frame)))\n"
        "assert answer.head['status'] == 'ok', answer\n"
        "assert not {'torch', 'flwr', 'opacus'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=120)


def test_a_servers_words_stay_on_one_printable_line_of_the_log(tmp_path, wired):
    world = wired.World(tmp_path)
    plan = {**world.plan.to_json(), "\x1b[2J\nroot: all is well": 1}
    assert wired.reason(world.ask(0, "join", **world.join_head(plan=plan))) == "protocol"
    log = (world.folders[0] / "party.log").read_text()
    assert len(log.splitlines()) == 1
    assert "\x1b" not in log
