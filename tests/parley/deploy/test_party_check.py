"""What is wrong with a party's folder or its server, each item and each cause by itself."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from attending import World
from commands import invoked
from ledgers import ADULT, an_entry

from parley.client.contract.message_frames import (
    WIRE_VERSION,
    MessageFrame,
    decode_frame,
    encode_frame,
)
from parley.client.contract.roster import load_deployment
from parley.client.party.dataset_loader import load_dataset
from parley.client.party.owner_policy import OwnerPolicy, load_policy
from parley.deploy.certificate_making import make_server_certificate
from parley.deploy.party_check import _check_no_overlap, check_accounts, check_items
from parley.deploy.private_files import PkiError
from parley.deploy.process_errors import ProcessError
from parley.deploy.provisioning import rotate_party
from parley.deploy.server_address import DeployError
from parley.deploy.stream.grpc_client import check_known, check_reachable
from parley.deploy.stream.party_client import build_answer_request
from parley.privacy.ledger.block_composition import compute_block_number
from parley.privacy.ledger.ledger import Ledger
from parley.server.jobs.job_file import load_job
from parley.simulations.engine.party_folders import prepare_parties


@pytest.fixture
def north(world, tmp_path):
    """north's folder with records and a policy, all of it right."""
    home = world.home("north")
    prepare_parties(load_job(overrides=["parties.count=3"]), tmp_path / "prepared")
    for name in ("records.npz", "party.toml"):
        shutil.copy(tmp_path / "prepared" / "party-0" / name, home)
    return home


def items(home):
    return {item.what: item for item in check_items(home)}


def known(home, world):
    return check_known(home, world.address, load_deployment(home / "deployment.toml"))


def test_all_is_right_where_all_is_right(north, world):
    world.open()
    found = items(north)
    assert {item.status for item in found.values()} == {0}
    assert found["this party at the server"].said == "known as north"
    assert world.deployment.spoken in found["roster"].said
    assert "152 records" in found["data set breast-cancer"].said


def test_a_missing_server_hides_nothing_about_the_folder(north):
    (north / "records.npz").unlink()
    (north / "ledger.sqlite").touch()  # it was killed before its first charge
    found = items(north)
    assert {what: item.status for what, item in found.items()} == {
        "keys": 0,
        "certificate and clock": 0,
        "roster": 0,
        "policy": 0,
        "data set breast-cancer": 2,
        "ledger": 0,
        "contributions": 0,
        "server": 1,
    }
    assert [what for what, item in found.items() if item.waits] == ["server"]


def test_records_of_another_account_are_told_before_anybody_asks(north):
    """What was charged as another data set: the owner says that both have one account."""
    path = north / "party.toml"
    policy = path.read_text()
    dataset = load_policy(path).data["breast-cancer"]
    rows = load_dataset(dataset, north, label="network", intercept=False).row_digests
    with Ledger.open(north / "ledger.sqlite") as ledger:
        ledger.register(
            *dataset.build_budgets(name="visits", fingerprint="sha256:1", rows=rows[:7])
        )
    found = items(north)["accounts"]
    assert found.status == 2
    assert "7 in 'visits'" in found.said
    assert "account = 'visits'" in found.said
    section = policy[policy.index("[data.breast-cancer]") :]
    both = policy + section.replace("breast-cancer", "visits")
    path.write_text(both.replace('account = ""', 'account = "visits"', 1))
    assert items(north)["accounts"].said == "no record is in two accounts"
    (north / "ledger.sqlite.key").unlink()
    lost = items(north)["accounts"]
    assert (lost.status, "ledger.sqlite.key" in lost.said) == (2, True)
    assert not (north / "ledger.sqlite.key").exists()
    # Before the first charge, too.
    (north / "ledger.sqlite").unlink()
    assert not items(north)["accounts"].status
    path.write_text(both)
    assert "152 in 'visits'" in items(north)["accounts"].said
    # Those that are held out are released from, too.
    shutil.copy(north / "records.npz", north / "held.npz")
    with np.load(north / "records.npz") as rows:
        np.savez(north / "records.npz", **{name: rows[name][50:] for name in rows})
    path.write_text(
        policy.replace('held-out = ""', 'held-out = "held.npz"')
        + section.replace("breast-cancer", "visits").replace("records.npz", "held.npz")
    )
    assert "152 in 'visits'" in items(north)["accounts"].said
    path.write_text(policy.replace('account = ""', 'account = "visits"'))
    assert "Expected account of data set" in items(north)["policy"].said


def test_a_policy_that_is_changed_while_its_party_runs_is_checked_like_one_that_starts(north):
    path, answers = (
        north / "party.toml",
        build_answer_request(north, check=partial(check_accounts, north)),
    )

    def said():
        head = {"version": WIRE_VERSION, "dataset": "visits", "label": "logistic"}
        head |= {"run": "r", "intercept": True, "sizes": False, "features": {}, "blocks": []}
        head["clock"] = time.time()
        request = MessageFrame(kind="inspect", head=head, blobs=())
        return decode_frame(answers(encode_frame(request))).head.get("reason", "ok")

    assert said() == "unknown-dataset"
    dataset = load_policy(path).data["breast-cancer"]
    rows = load_dataset(dataset, north, label="network", intercept=False).row_digests
    with Ledger.open(north / "ledger.sqlite") as ledger:
        ledger.register(
            *dataset.build_budgets(name="breast-cancer", fingerprint="sha256:1", rows=rows[:7])
        )
    before = path.read_text()
    path.write_text(before.replace("[data.breast-cancer]", "[data.visits]"))  # a fresh budget
    assert (said(), said()) == ("error", "error")
    path.write_text(before)
    assert said() == "unknown-dataset"


def test_equal_records_deleted_from_a_block_are_told_with_what_to_write(north):
    said = {"path": "w.csv", "schema": "w.toml", "block-column": "year", "epsilon": 1, "delta": 0}
    year = {name: compute_block_number(name) for name in ("2022", "2023")}
    rows = np.array([[5, 5, year["2022"]], [5, 5, year["2023"]], [6, 6, year["2023"]]], np.uint64)
    path = north / "ledger.sqlite"
    own = OwnerPolicy.model_validate({"data": {"ward": said}})
    with Ledger.open(path) as ledger:
        facts = {"name": "ward", "fingerprint": "sha256:1", "contents": "rows"}
        (budget,) = own.data["ward"].build_budgets(**facts, rows=rows, reads=("2022",))
        ledger.register(budget)
        ledger.reserve((an_entry(1, dataset="ward", blocks=("2022",)),))
    assert _check_no_overlap(path, own, {"ward": rows}) == "no record is in two accounts"
    with pytest.raises(DeployError, match=r"deleted-records = 1 in \[data\.ward\] of party\.toml"):
        _check_no_overlap(path, own, {"ward": rows[1:]})
    told = OwnerPolicy.model_validate({"data": {"ward": said | {"deleted-records": 1}}})
    assert _check_no_overlap(path, told, {"ward": rows[1:]}) == "no record is in two accounts"


def spoil_mode(north):
    (north / "identity.key").chmod(0o644)


def lose_key(north):
    (north / "identity.key").unlink()


def spoil_key(north):
    (north / "party.key").write_text("no key")


def spoil_policy(north):
    (north / "party.toml").write_text("min-partys = 3\n")


def spoil_roster(north):
    path = north / "deployment.toml"
    path.write_text(path.read_text().replace('name = "south"', 'name = "sooth"'))


def spoil_data(north):
    (north / "records.npz").write_bytes(b"PK no arrays")


def spoil_ledger(north):
    path = north / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        ledger.register(replace(ADULT, name="breast-cancer"))
    with contextlib.closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("UPDATE parley_ledger_records SET body = replace(body, 'breast', 'least')")


def lose_a_contribution(north):
    (north / "state").mkdir(mode=0o700, exist_ok=True)
    kept = MessageFrame(
        kind="round", head={}, blobs=(b"MemoryError at steps.py:7 ".ljust(200), b"")
    )
    (north / "state" / "release-0a").write_bytes(encode_frame(kept))


def no_data(north):
    (north / "party.toml").write_text("")


@pytest.mark.parametrize(
    ("spoil", "wrong", "said"),
    [
        (spoil_mode, {"keys"}, "chmod 600"),
        (lose_key, {"keys", "roster"}, "not a party's folder"),
        (
            spoil_key,
            {"certificate and clock", "roster", "this party at the server"},
            "Expected a private key",
        ),
        (spoil_policy, {"policy"}, "min-part"),
        (spoil_roster, {"roster", "server"}, "changed by hand"),
        (spoil_data, {"data set breast-cancer"}, "plain arrays"),
        (spoil_ledger, {"ledger"}, "was edited, damaged or replaced"),
        (lose_a_contribution, {"contributions"}, "release-0a: MemoryError at steps.py:7"),
        (no_data, {"data"}, "declines every job"),
    ],
)
def test_each_fault_is_its_own_item(north, world, spoil, wrong, said):
    world.open()
    spoil(north)
    found = items(north)
    assert {what for what, item in found.items() if item.status} == wrong
    assert any(said in item.said for item in found.values() if item.status)


def test_the_command_prints_every_item_and_its_status_is_the_worst(north):
    done = invoked("party", north, "--check")
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert [line[:3] for line in lines if not line.startswith(" ")] == ["ok "] * 8 + ["NOT"]
    assert "Cannot reach the server" in lines[-1]
    (north / "party.toml").unlink()
    assert invoked("party", north, "--check").exit_code == 2


def test_who_is_refused_hears_it_in_our_words_with_what_to_do(world, tmp_path):
    world.open()
    for name, old, said in (
        ("north", "old north", r"refuses this caller.*another identity than the roster"),
        ("south", "", "Ask the server administrator for the current"),
    ):
        home = world.home(name)
        if old:
            shutil.copytree(home, tmp_path / old)
            rotate_party(world.root, name)  # after the server started: it has the old roster
            assert known(tmp_path / old, world) == name
        with pytest.raises(DeployError, match=said):
            known(home, world)
    other = World(tmp_path / "other")
    for file in ("party.key", "party.pem"):  # of another authority
        shutil.copy(other.home("east") / file, world.home("east"))
    with pytest.raises(ProcessError, match="did not answer this party"):
        known(world.home("east"), world)


def test_a_server_that_is_not_there_is_said_with_what_to_do(world):
    ca = world.home(0) / "ca.crt"
    with pytest.raises(ProcessError, match=r"name nowhere\.invalid does not .*--server HOST:PORT"):
        check_reachable("nowhere.invalid:9092", ca)
    with pytest.raises(
        ProcessError, match=r"no process listens there\. Check that `parley server` runs"
    ):
        check_reachable(world.address, ca)


def test_the_server_of_another_deployment_is_not_believed(world, tmp_path):
    world.open()
    other = World(tmp_path / "other")
    check_reachable(world.address, world.home(0) / "ca.crt")
    with pytest.raises(PkiError, match="Either it belongs to another deployment"):
        check_reachable(world.address, other.home(0) / "ca.crt")


@pytest.mark.parametrize(
    ("days", "said"), [(30, "is not valid yet by this machine's clock"), (-500, "has expired by")]
)
def test_a_clock_beyond_the_certificates_slack_is_named(world, in_days, days, said):
    with in_days(days):
        authority = world.root / "authority"
        make_server_certificate(world.root / "server", authority=authority, hosts=["127.0.0.1"])
    world.open()
    with pytest.raises(PkiError, match=said):
        check_reachable(world.address, world.home(0) / "ca.crt")


def test_a_database_is_asked_and_what_it_said_is_shown_without_a_secret(north, monkeypatch):
    path, held = north / "party.toml", north / "ward.db"
    (north / "s.toml").write_text(
        "[columns]\nage = { kind = 'numeric', range = [0, 100] }\n"
        "sick = { kind = 'label', positive = 1, negative = 0 }\n"
    )
    with sqlite3.connect(held) as connection:
        connection.execute("CREATE TABLE visits (age INTEGER, sick INTEGER)")
        connection.executemany(
            "INSERT INTO visits VALUES (?, ?)", [(at, at % 2) for at in range(9)]
        )
    connection.close()
    policy = path.read_text()

    def said(source, query):
        section = f"[data.ward]\nsource = '{source}'\nquery = '{query}'\nschema = 's.toml'\n"
        path.write_text(f"{policy}\n{section}epsilon = 1.0\ndelta = 1e-5\n")
        return items(north)

    found = said("sqlite:///ward.db", "SELECT * FROM visits")
    assert "9 records of 1 features" in found["data set ward"].said
    assert found["accounts"].said == "no record is in two accounts"
    wrong = said("sqlite:///ward.db", "SELECT * FROM nowhere")["data set ward"]
    assert (wrong.status, "a query that SQLite can run" in wrong.said) == (2, True)
    monkeypatch.setenv("WARD", "postgresql://me:s3cret@127.0.0.1:1/clinic")
    refused = said("env:WARD", "SELECT 1")["data set ward"]
    assert (refused.status, "a refused connection" in refused.said) == (2, True)
    assert "s3cret" not in refused.said
