"""Held-out counts and answers by party, over the wire: what a record changes in what is said.

Two deployments whose holdings differ in one record are asked the same. Kinds, heads and lengths of
all replies, refusals, logs and charges are equal: nothing but masked vectors can tell them apart.
"""

from __future__ import annotations

import re
import shutil

import numpy as np
import polars as pl
import pytest
from attending import NAMES, Consortium
from query_parties import make_parties, open_session, rows_of

from parley.client.contract.protocol import decode_frame
from parley.client.party.service import PartyService
from parley.deploy.stream.party import party_answers
from parley.privacy.ledger.ledger import Ledger
from parley.secure_agg.interface import TooFewSurvivors
from parley.server.jobs.file import load_job
from parley.simulations.engine.local_parties import party_folders, prepare_parties

EVALUATED = ("evaluation.kind=federated",)


def shape(reply):
    """All of a reply but what is uniform or masked: its head, and how long its parts are."""
    frame = decode_frame(reply)
    head = {key: value for key, value in frame.head.items() if key != "clock"}
    return frame.kind, head, [len(blob) for blob in frame.blobs]


def log_of(folder):
    """What a party's log says, without times and what a run's name draws."""
    text = "".join(path.read_text() for path in sorted(folder.glob("*.log")))
    return re.sub(r"\d{4}-\d\d-\d\d\S*|[0-9a-f]{12,}|\d{8}-\d{6}", "…", text)


def charges(folder):
    with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
        return [
            (held.entry.index, held.entry.event, held.state, held.entry.facts)
            for held in ledger.entries()
        ]


def another_label(path):
    with np.load(path) as held:
        arrays = dict(held)
    arrays["labels"][0] = -arrays["labels"][0]
    np.savez(path, **arrays)


def evaluated(root, *, changed):
    """What each party says in a run that is measured on held-out records; changes one's record."""
    root.mkdir()
    made = Consortium(root)
    job = load_job(
        overrides=[
            "parties.count=3", "algorithm.rounds=1", "data.records=150", "run.seed=5",
            "secure-aggregation.backend=masked", "run.stage-timeout=60", *EVALUATED,
        ]
    )  # fmt: skip
    prepare_parties(job, root / "held")
    for index in range(3):
        for path in (root / "held" / f"party-{index}").glob("*.npz"):
            shutil.copy(path, made.home(index))
        policy = (root / "held" / f"party-{index}" / "party.toml").read_text()
        (made.home(index) / "party.toml").write_text(policy)
    (held_out,) = [path for path in made.home(0).glob("*.npz") if path.name != "records.npz"]
    if changed:
        another_label(held_out)
    said = {index: [] for index in range(3)}

    def answers(folder):
        plain, index = party_answers(folder), NAMES.index(folder.name)

        def answer(request):
            said[index].append(reply := plain(request))
            return reply

        return answer

    try:
        serving = made.serve()
        made.everybody(answers)
        made.submit(job)
        assert serving.next().state == "complete"
    finally:
        made.close()
    for index in range(3):
        home = made.home(index)
        yield [shape(reply) for reply in said[index]], log_of(home), charges(home)


def test_a_held_out_record_changes_nothing_that_a_party_says_beside_its_masked_counts(tmp_path):
    one, other = (
        list(evaluated(tmp_path / str(changed), changed=changed)) for changed in (False, True)
    )
    assert sum(len(charged) for _, _, charged in one) == 6  # a round and the measurement
    assert one == other


def by_party(root, monkeypatch, *, rows, policies):
    """What parties say to questions by party: answered, refused, beyond the budget."""
    said = []
    with monkeypatch.context() as patch:
        plain = PartyService.handle
        patch.setattr(
            PartyService,
            "handle",
            lambda self, request: said.append((self.name, reply := plain(self, request))) or reply,
        )
        made = make_parties(root / "d", policies=policies, rows=rows)
        with open_session(made, root / "s", epsilon=3.0) as s:
            told = []
            for price in (0.25, 0.5, 0.5):
                try:
                    told.append(s.where("age > 50").count(epsilon=price, by="party").survivors)
                except TooFewSurvivors as error:
                    told.append(str(error))
            told.append(s.histogram("sex", epsilon=0.2).survivors)
    homes = party_folders(made[1], 3)
    return (told, [(name, shape(reply)) for name, reply in said], [log_of(home) for home in homes])


def neighbour_of(index):
    rows = rows_of(index)
    if index == 0:
        rows["age"][0], rows["sex"][0] = 100 - rows["age"][0], "Male"
        rows["sick"][0] = "yes"
    return rows


@pytest.mark.parametrize("allowed", [(0, 1, 2), pytest.param((0, 1), marks=pytest.mark.heavy)])
def test_a_record_changes_nothing_that_a_party_says_to_a_question_by_party(
    tmp_path, monkeypatch, allowed
):
    policies = {k: ("by-party = true" if k in allowed else "", "") for k in range(3)}
    found = []
    for name, rows in (("one", rows_of), ("other", neighbour_of)):
        (tmp_path / name).mkdir()
        found.append(by_party(tmp_path / name, monkeypatch, rows=rows, policies=policies))
    assert not pl.DataFrame(rows_of(0)).equals(pl.DataFrame(neighbour_of(0)))
    assert found[0] == found[1]
    told = found[0][0]
    assert [each == 3 for each in told] == (
        [True, True, False, True] if len(allowed) == 3 else [False, False, False, True]
    )
