"""Who mistypes is told what there is; every expected error has an exit status."""

import importlib
import subprocess
import sys

import pytest

from parley.cli import main
from parley.deploy.provisioning import make_deployment, make_own_keys
from parley.exit_status import _STATUS, get_exit_status
from parley.privacy.ledger.ledger_errors import LedgerCorrupt

TYPED = {
    "submit --epsilon 1": "--set privacy.epsilon=…",
    "submit --rounds 3": "--set algorithm.rounds=…",
    "plan --lambda 2": "--set model.lambda=…",
    "submit --parties 3": "--set parties.count=…",
    "submit --clip-norm 1": "--set dp-sgd.clip-norm=…",
    "train": "'run'",
    "infer rows.csv": "'schema infer'",
    "pln": "'plan'",
    "rnu": "'run'",
    "deploy init --epsilon 1": None,
    "run --jsn": "'--json'",
    "deploy add-prty": "'add-party'",
    "run --frobnicate": None,
    "audit --epsilom 2": None,
    "ledger ls": None,
}


@pytest.mark.parametrize("typed", TYPED)
def test_what_is_suggested_is_what_was_meant_or_nothing(typed, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["parley", *typed.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    said, meant = capsys.readouterr().err, TYPED[typed]
    assert ended.value.code == 2
    assert "No such" in said
    assert ("Did you mean" in said) == (meant is not None)
    assert (meant or "") in said


@pytest.mark.parametrize(
    ("typed", "said", "status"),
    [("", "got the end of the input", 2), ("n\n", "the answer was no", 1)],
)
def test_a_question_without_a_yes_ends_in_a_sentence(typed, said, status, tmp_path):
    home = tmp_path / "consortium"
    make_deployment(home, hosts=["localhost"], parties=["north", "south"])
    entry = make_own_keys(home / "parties" / "north")
    done = subprocess.run(
        [sys.executable, "-m", "parley", "deploy", "accept", home, entry],
        input=typed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.splitlines()[-1][:8]) == (status, "parley: ")
    assert said in done.stderr
    assert "nothing was changed" in done.stderr.lower()


@pytest.mark.parametrize("name", _STATUS)
def test_the_table_names_a_class(name):
    module, _, attribute = name.rpartition(".")
    kind = getattr(importlib.import_module(module), attribute)
    assert f"{kind.__module__}.{kind.__qualname__}" == name


def test_a_subclass_has_its_parents_status_and_a_bug_has_none():
    assert get_exit_status(LedgerCorrupt("x")) == 1
    assert get_exit_status(OSError(28, "No space left on device")) == 1
    assert get_exit_status(KeyError("bug")) is None
