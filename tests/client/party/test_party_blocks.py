"""A party whose records lie in blocks learns from those that were agreed on, and pays theirs."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from agreements import NETWORK

from parley.client.contract.message_frames import encode_frame
from parley.client.data.schema import load_schema
from parley.client.party.owner_policy import PolicyError, parse_policy
from parley.client.party.record_cache import RecordCache
from parley.deploy.party_check import check_items
from parley.owner.approval_requests import open_party
from parley.owner.owner_status import list_budgets
from parley.privacy.accounting.account_admission import AccountCertificate
from parley.privacy.accounting.privacy_events import PlannedSteps
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger import Ledger

SCHEMA = """
[columns]
a = { kind = "numeric", range = [-1, 1] }
b = { kind = "numeric", range = [-1, 1] }
c = { kind = "numeric", range = [-1, 1] }
d = { kind = "numeric", range = [-1, 1] }
year = { kind = "ignore" }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
DATA = {"prepared": "", "path": "rows.csv", "schema": "s.toml", "block-column": "year"}
BLOCKS = 'data.blocks=["2024"]'


def rows_of(party, records, year):
    rng = np.random.default_rng([party, year])
    cells = dict(zip("abcd", rng.uniform(-1, 1, size=(4, records)).round(6), strict=True))
    return pl.DataFrame({**cells, "year": [year] * records, "sick": ["yes", "no"] * (records // 2)})


class WithBlocks:
    """A world's schema is that of its parties' table."""

    schema = property(lambda self: load_schema(self.folders[0] / "s.toml").digest)


def built(wired, root, *overrides, reopen=True, **more):
    """Parties with the usual numbers of records in 2022 and 2024, and 30 of 2023."""
    data = {**DATA, "epsilon": 2.5, **more}
    overrides = (BLOCKS, "privacy.epsilon=2", "privacy.dataset-epsilon=3", *overrides)
    kind = type("World", (WithBlocks, wired.World), {})
    world = kind(root, overrides=overrides, reopen=reopen, **data)
    for party, (folder, size) in enumerate(zip(world.folders, wired.SIZES, strict=True)):
        (folder / "s.toml").write_text(SCHEMA)
        sizes = {2022: size, 2023: 30, 2024: size}
        years = [rows_of(party, records, year) for year, records in sizes.items()]
        pl.concat(years).sample(fraction=1, shuffle=True, seed=1).write_csv(folder / "rows.csv")
    return world


@pytest.fixture
def world(tmp_path, wired):
    return built(wired, tmp_path)


@pytest.fixture(scope="module")
def asked(tmp_path_factory, wired):
    """Parties that are only asked."""
    return built(wired, tmp_path_factory.mktemp("asked"), reopen=False)


def spent(world, party=0):
    path = world.folders[party] / "ledger.sqlite"
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.verify() == []
        (totals,) = ledger.list_accounts()
        return {
            block: each.releases
            for block, each in totals.charged.get_compositions(("2023", "2024", "")).items()
        }


def test_a_party_learns_from_the_agreed_blocks_and_pays_for_them_alone(world, wired, tmp_path):
    assert wired.ok(world.inspect(blocks=["2024"])).head["records"] == wired.SIZES[0]
    assert wired.ok(world.inspect()).head["records"] == 2 * wired.SIZES[0] + 30
    world.join()
    world.vectors(1)
    total = world.opened()
    assert spent(world) == {"2023": 0, "2024": 1, "": 0}
    # As parties would that have no other records.
    (tmp_path / "alone").mkdir()
    alone = built(wired, tmp_path / "alone")
    for folder in alone.folders:
        rows = pl.read_csv(folder / "rows.csv")
        rows.filter(pl.col("year") == 2024).write_csv(folder / "rows.csv")
    alone.join()
    alone.vectors(1)
    assert np.array_equal(total, alone.opened())


def test_old_blocks_are_used_up_and_new_ones_are_whole(world, wired, tmp_path):
    """One job of ε = 2 of 2.5 on 2024: another one there is declined, one on 2022 is not."""
    world.join()
    for number in (1, 2, 3):
        world.vectors(number, number)
        world.opened()
    plan = replace(world.plan, run_id="r-2")

    def joined(blocks, session):
        asked = replace(plan, blocks=blocks).to_json()
        return world.ask(0, "join", **world.join_head(session, run="r-2", plan=asked))

    for turn, blocks in enumerate((("2024",), ("2022", "2024"), ())):
        assert wired.reason(joined(blocks, f"{turn:032x}")) == "budget-exhausted"
    log = (world.folders[0] / "party.log").read_text()
    assert "no room in '2024'; room in '2022' and in every block that no job has named" in log
    wired.ok(joined(("2022",), "0b" * 16))
    with open_party(world.folders[0]) as party:
        (row,) = list_budgets(party)
    assert row["left ε"].startswith("'2024' 0.")
    assert row["left ε"].endswith(", every other block 2.5")


@pytest.mark.parametrize(
    ("blocks", "why"),
    [
        (["2030"], "too-few-records"),  # unknown here
        (["2023"], "too-few-records"),  # fewer than the plan says
        (["2024", "2024"], "protocol"),
        ([str(each) for each in range(10**5)], "protocol"),
        (["2024", ""], "protocol"),
        (["2024", 7], "protocol"),
        ("2024", "protocol"),
    ],
    ids=["unknown", "small", "twice", "many", "empty", "number", "text"],
)
def test_blocks_that_cannot_be_read_are_declined_unpaid(asked, wired, blocks, why):
    world = asked
    plan = {**world.plan.to_json(), "blocks": blocks}
    assert wired.reason(world.ask(0, "join", **world.join_head(plan=plan))) == why
    if why == "protocol":
        assert wired.reason(world.inspect(blocks=blocks)) == why
    assert not (world.folders[0] / "ledger.sqlite").exists() or spent(world)[""] == 0


def test_a_server_that_reads_other_blocks_than_were_agreed_gets_nothing(world, wired):
    world.join()
    request = world.round_requests(1, prepare=2)[0]
    for blocks in ((), ("2022",), ("2022", "2024")):
        plan = replace(world.plan, blocks=blocks).to_json()
        asked = replace(request, head={**request.head, "plan": plan})
        assert wired.reason(world.raw(0, encode_frame(asked))) == "plan-changed"
    assert spent(world) == {"2023": 0, "2024": 0, "": 0}


def test_a_server_that_tells_one_party_other_blocks_gets_noise(asked):
    """The masks are keyed by all that was agreed: with other blocks they do not cancel."""
    world = asked
    honest, told = world.agreement_of("2024"), world.agreement_of("2023")
    assert honest.compute_binding() != told.compute_binding()
    assert honest.compute_content_digest() != told.compute_content_digest()


def test_blocks_of_data_that_have_none_are_declined(tmp_path, wired):
    world = wired.World(tmp_path, overrides=(BLOCKS,))
    assert wired.reason(world.inspect(blocks=["2024"])) == "unknown-dataset"
    assert wired.reason(world.ask(0, "join", **world.join_head())) == "unknown-dataset"


def test_a_column_of_which_a_model_learns_divides_nothing(world, wired):
    for column in ("a", "ward"):
        world.consent({}, **{**DATA, "block-column": column})
        assert wired.reason(world.inspect()) == "data-unreadable"
    assert "a column of kind ignore" in (world.folders[0] / "party.log").read_text()


@pytest.mark.parametrize(
    "keys",
    [
        'unit = "party"',
        'neighbouring = "add-or-remove-one"',
        "party-epsilon = 1.0\nparty-delta = 1e-5",
        'unit = "person"\nid = "who"\nrecords-per-id = 2',
    ],
)
def test_a_unit_with_records_in_several_blocks_has_no_account_by_block(keys):
    text = '[data.w]\npath = "r.csv"\nschema = "s.toml"\nepsilon = 1\ndelta = 1e-5\n'
    with pytest.raises(PolicyError, match="block-column: a party or a person has"):
        parse_policy(f'{text}block-column = "year"\n{keys}\n', source="party.toml")
    other = text.replace("data.w", "data.v") + 'account = "w"\nblock-column = "year"\n'
    with pytest.raises(PolicyError, match="would be in two of its blocks"):
        parse_policy(f"{text}{other}", source="party.toml")


def test_the_owner_is_told_of_a_record_that_changed_its_block(world, wired):
    world.join()
    world.vectors(1)
    folder = world.folders[0]
    path = folder / "rows.csv"
    rows = pl.read_csv(path)
    first = (pl.col("year") == 2024) & (pl.int_range(pl.len()) == rows["year"].arg_max())
    rows.with_columns(year=pl.when(first).then(2023).otherwise("year")).write_csv(path)
    told = next(item for item in check_items(folder) if item.what == "accounts")
    assert (told.status, "1 in another block, with a fresh budget there" in told.said) == (2, True)
    rows.write_csv(path)  # put back
    assert not next(item for item in check_items(folder) if item.what == "accounts").status


def test_records_of_other_blocks_than_were_agreed_on_are_not_learned_from(world, monkeypatch):
    """Whatever hands records out: a holding says what was read, and that is charged."""
    world.join()
    of = RecordCache.load

    def mistaken(self, name, label, intercept, features, blocks=(), session=""):
        return of(self, name, label, intercept, features, ("2022",), session)

    monkeypatch.setattr(RecordCache, "load", mistaken)
    answers = world.vectors(1)
    assert {each.head["status"] for each in answers.values()} == {"refused"}
    assert set(spent(world).values()) == {0}


SAMPLED = (*NETWORK, "dp-sgd.sampling-rate=0.1", "algorithm.rounds=3", "privacy.epsilon=0.8")


@pytest.mark.parametrize("blocks", [True, False], ids=["blocks", "all records"])
def test_a_planned_job_is_charged_whole_in_the_blocks_it_reads_and_gives_nothing_back(
    wired, tmp_path, blocks
):
    """The server of the first run is gone after two of three rounds."""
    read = () if blocks else ("data.blocks=[]",)
    more = {"certificate": "auto", "reserved-delta": 1e-6}
    world = built(wired, tmp_path, *SAMPLED, *read, **more)
    accounts = []
    for number in (1, 2):
        if number == 1:
            world.join()
        world.vectors(number, number)
        world.opened()
        accounts.append(account_of(world))
    first, second = accounts
    assert first.budget.certificate is AccountCertificate.GAUSSIAN
    assert first.charged == second.charged
    charged = second.charged.get_compositions(("2022", "2024", ""))
    jobs = {block: [*each.counts.items()] for block, each in charged.items()}
    ((job, count),) = jobs["2024"]
    assert isinstance(job, PlannedSteps)
    assert (job.count, count, job.event) == (3, 1, world.plan.compute_event(Unit.RECORD))
    assert job.delta == pytest.approx(5e-7)
    assert jobs["2022"] == jobs[""] == ([] if blocks else jobs["2024"])
    # One round is left of the plan; it is not given back, and another run does not get it.
    ((held, left),) = second.held[world.run].planned
    assert (held, left) == (job.event, 1)
    assert not second.has_held("r-2", job.event, world.plan.blocks)
    with Ledger.open(world.folders[0] / "ledger.sqlite") as ledger:
        ledger.end_hold(world.run)
        ledger.hold("r-2", {second.key: ((job.event, 3),)}, world.plan.blocks)
        after = ledger.list_accounts()[0].charged.get_compositions(("2024",))["2024"]
        jobs = sorted(
            (each.delta for each, n in after.counts.items() for _ in range(n)), reverse=True
        )
        assert jobs == pytest.approx([5e-7, 1e-6 / 6])
        assert ledger.verify() == []


def account_of(world, party=0):
    with Ledger.open(world.folders[party] / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.verify() == []
        (account,) = ledger.list_accounts()
        return account
