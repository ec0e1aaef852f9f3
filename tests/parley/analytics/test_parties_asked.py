"""A session with parties' own services: each derives what a query costs, and pays or declines."""

from dataclasses import replace

import polars as pl
import pytest
from query_parties import SCHEMA, charged, make_parties, open_session, rows_of

from parley.client.contract.guarantee import Guarantee
from parley.client.queries.base import QueryError
from parley.client.queries.count_queries import Count
from parley.client.queries.filters.parser import parse_where
from parley.client.queries.query_batch import Counting
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import BudgetExceeded
from parley.secure_agg.interface import TooFewSurvivors
from parley.server.jobs.section_base import JobError
from parley.server.rounds.connected_parties import QueryParties
from parley.simulations.engine.party_folders import party_folders


@pytest.fixture
def made(tmp_path):
    return lambda **facts: make_parties(tmp_path / "d", **facts)


def test_real_parties_answer_and_pay_from_their_own_ledgers(made, tmp_path):
    parties = made()
    with open_session(parties, tmp_path / "s") as s:
        assert s.records == 603
        answer = s.where("age > 50").count(epsilon=0.25)
        ages = pl.concat([pl.read_csv(h / "records.csv") for h in party_folders(parties[1], 3)])
        assert answer.value == pytest.approx((ages["age"] > 50).sum(), abs=120)
        assert (answer.survivors, answer.records) == (3, 603)
        assert "the server and those who collude" in str(answer)
        with s.batch(epsilon=0.5) as b:
            b.histogram("sex")
            b.mean("age")
        # Gaussian noise next to pure releases costs far more, and says so.
        with pytest.raises(BudgetExceeded, match=r"ε = 0\.75 is spent, 0\.25 left"):
            s.where("age > 50").count(epsilon=0.125, law="gaussian")
        s.where("age > 50").count(epsilon=0.125, law="laplace")
        assert s.remaining == pytest.approx(0.125, abs=1e-6)
    assert charged(parties, Unit.RECORD) == pytest.approx([0.875] * 3, abs=1e-6)


@pytest.mark.parametrize("first", ["age > 100", "age > 50"])
def test_two_counts_of_zero_around_a_dropout_are_answered_like_any_others(made, tmp_path, first):
    """A refusal would tell that both are zero, which nothing was charged for."""
    parties = made(parties=5)
    with open_session(parties, tmp_path / "s") as s:
        s.where(first).count(epsilon=0.25)
        parties[0].offline.add(4)
        assert s.where("age < 0").count(epsilon=0.25).survivors == 4


def test_a_party_without_budget_declines_and_nothing_is_opened(made, tmp_path):
    parties = made(epsilon=0.3)
    with open_session(parties, tmp_path / "s") as s:
        s.where("age > 50").count(epsilon=0.25)
        with pytest.raises(TooFewSurvivors):
            s.where("age > 50").count(epsilon=0.25)
        assert s.remaining == 0.75
    assert charged(parties, Unit.RECORD) == [0.25] * 3


def test_after_a_release_that_failed_the_same_query_is_paid_once_and_another_anew(
    made, tmp_path, monkeypatch
):
    parties = made()
    with open_session(parties, tmp_path / "s") as s:
        ask = QueryParties.aggregate

        def lost(self, *given, **named):
            ask(self, *given, **named)
            raise TooFewSurvivors("the answers did not arrive")

        with monkeypatch.context() as patch:
            patch.setattr(QueryParties, "aggregate", lost)
            with pytest.raises(TooFewSurvivors):  # three attempts of one release
                s.where("age > 50").count(epsilon=0.25)
        assert charged(parties, Unit.RECORD) == [0.25] * 3
        assert s.where("age < 50").count(epsilon=0.25).survivors == 3
        assert charged(parties, Unit.RECORD) == [0.5] * 3
        assert s.where("age > 50").count(epsilon=0.25).survivors == 3
    assert charged(parties, Unit.RECORD) == [0.75] * 3


@pytest.mark.parametrize(("count", "fewest"), [(3, 3), (4, 4), (5, 4)])
def test_a_session_says_at_once_who_is_missing_or_can_do_without(
    made, tmp_path, monkeypatch, count, fewest
):
    from parley.analytics import backends as asked

    monkeypatch.setattr(asked, "_ARRIVAL_TIMEOUT_S", 1.0)
    parties = made(parties=count)
    parties[0].offline = {count - 1}
    if fewest < count:
        with open_session(parties, tmp_path / "s") as s:
            assert s.where("age > 50").count(epsilon=0.25).survivors == count - 1
        return
    said = f"at least {fewest} of {count} parties .* got {count - 1}: offline: party-{count - 1}"
    with pytest.raises(JobError, match=said):
        open_session(parties, tmp_path / "s")
    assert charged(parties, Unit.RECORD, count) == [None] * count


@pytest.mark.parametrize(
    "more",
    [
        "most-cells = 4",
        'query-columns = ["sex"]',
        'queries = ["count", "mean"]',
        'algorithms = ["gradient-perturbation"]',
    ],
)
def test_a_query_that_the_policy_does_not_have_is_declined_unpaid(made, tmp_path, more):
    parties = made(policy=more)
    with open_session(parties, tmp_path / "s") as s:
        with pytest.raises(TooFewSurvivors):
            s.histogram("age", bins=10, epsilon=0.25)
        assert s.remaining == 1.0
    assert charged(parties, Unit.RECORD) == [None] * 3


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"seed": 1}, "Expected no seed with real parties"),
        ({"faults": "drop:0.5"}, "Expected no faults with real parties"),
        ({"dataset": ""}, "Expected dataset"),
    ],
)
def test_what_is_a_simulations_is_refused_with_real_parties(made, tmp_path, settings, said):
    with pytest.raises(QueryError, match=said):
        open_session(made(), tmp_path / "s", **settings)


def test_a_copy_of_another_schema_is_refused(made, tmp_path):
    other = SCHEMA.replace("[0, 100]", "[0, 120]")
    with pytest.raises(QueryError, match="Give the session a copy"):
        open_session(made(schema=other), tmp_path / "s")


def weaker(plan, change):
    guarantee = plan.primary
    mechanism = replace(guarantee.mechanism, **change(guarantee.mechanism))
    shares = replace(guarantee.shares, scale=mechanism.scale)
    one = replace(guarantee, mechanism=mechanism, sensitivity=mechanism.sensitivity, shares=shares)
    assert isinstance(one, Guarantee)
    return replace(plan, guarantees=(one,))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: {"sensitivity": m.sensitivity / 2, "sensitivity_l1": m.sensitivity_l1 / 2},
        lambda m: {"sensitivity_l1": m.sensitivity_l1 * 0.8},
    ],
)
def test_a_plan_that_claims_less_than_the_query_moves_is_declined_by_every_party(
    made, tmp_path, monkeypatch, change
):
    parties = made()
    with open_session(parties, tmp_path / "s") as s:
        ask = QueryParties.aggregate

        def lying(self, plan, *given, **named):
            return ask(self, weaker(plan, change), *given, **named)

        monkeypatch.setattr(QueryParties, "aggregate", lying)
        with pytest.raises(TooFewSurvivors):
            s.histogram("age", bins=10, epsilon=0.25)
    assert charged(parties, Unit.RECORD) == [None] * 3


def test_a_party_that_answers_another_query_moves_the_sum_by_its_own_records_at_most(
    made, tmp_path, monkeypatch
):
    """Nobody sees what it adds; it pays as all do, and no other party's records tell more."""
    vectors, others = Counting.compute_party_vectors, [rows_of(1), rows_of(2)]

    def all_of_its_own(self, batch, block, places):
        if block.records == 200:
            batch = replace(batch, queries=(Count(where=parse_where("age >= 0")),))
        yield from vectors(self, batch, block, places)

    monkeypatch.setattr(Counting, "compute_party_vectors", all_of_its_own)
    parties = made(epsilon=1e4)
    with open_session(parties, tmp_path / "s", epsilon=1e4) as s:
        answer = s.where("age > 50").count(epsilon=5e3)
    honest = sum(int((rows["age"] > 50).sum()) for rows in others)
    assert answer.value == pytest.approx(honest + 200, abs=0.5)
    assert charged(parties, Unit.RECORD) == [5e3] * 3


def test_a_party_that_was_asked_another_query_than_the_others_takes_no_part(
    made, tmp_path, monkeypatch
):
    """What each joined for keys its masks: it refuses the round of the others, unpaid."""
    from parley.server.rounds import remote_cohort

    parties = made(parties=4)
    with open_session(parties, tmp_path / "s") as s:
        frame_of = remote_cohort.PartyCohort._build_frame
        told = []

        def other(self, kind, blobs=(), **head):
            if kind == "join":
                told.append(kind)
                if len(told) % 4 == 1:
                    first = {**head["task"]["batch"][0], "where": LATER}
                    head["task"] = {**head["task"], "batch": [first]}
            return frame_of(self, kind, blobs, **head)

        monkeypatch.setattr(remote_cohort.PartyCohort, "_build_frame", other)
        with pytest.raises(TooFewSurvivors):
            s.group_by("sex").count(epsilon=0.25)
        assert s.remaining == 1.0
    assert charged(parties, Unit.RECORD, 4)[0] == 0.0


LATER = parse_where("age > 3").to_json()


def test_real_parties_cluster_step_by_step_and_no_server_chooses(made, tmp_path):
    parties = made()
    with open_session(parties, tmp_path / "s") as s:
        steps = s.lloyd(["age"], centres=[[20.0], [80.0]], rounds=2, epsilon=0.88)
        low, high = sorted(steps[-1].table["age"])
        # A centre is 16 scales of the noise from the middle: it gets there once in 10^6 runs.
        assert low < 50 < high
        found = s.find_quantile("age", 0.5, counts=2, epsilon=0.02)
        assert 2 <= len(found.answers) <= 2 + 16  # by chance the noise says that it is skewed
        assert found.interval[0] <= found.value <= found.interval[1]
        assert s.remaining == pytest.approx(0.1)
        with pytest.raises(QueryError, match="would see the exact scores"):
            s.median("age", step=1.0, epsilon=0.05, law="exponential")
        assert s.remaining == pytest.approx(0.1)
        assert "kmeans-step age" in s.report().read_text(encoding="utf-8")
    assert charged(parties, Unit.RECORD) == pytest.approx([0.9] * 3, rel=1e-3)


def test_a_cell_that_cannot_be_read_is_its_partys_own_error_and_no_word_of_it_leaves(
    made, tmp_path
):
    transport, folder = made(parties=6)
    bad = party_folders(folder, 6)[5]
    rows = pl.read_csv(bad / "records.csv").with_columns(pl.col("age").cast(pl.String))
    rows[7, "age"] = "s3cret-17"
    rows.write_csv(bad / "records.csv")
    with open_session((transport, folder), tmp_path / "s") as s:
        answer = s.where("age > 50").count(epsilon=0.25)
        assert (answer.survivors, answer.parties, answer.records) == (5, 6, 1010)
        s.report()
    told = [each for each in (tmp_path / "s").rglob("*") if each.is_file()]
    assert not any(b"s3cret" in each.read_bytes() for each in told)
    assert "data-unreadable" in (tmp_path / "s" / "parties.json").read_text()
    assert charged((transport, folder), Unit.RECORD, 5) == [0.25] * 5


@pytest.mark.parametrize(
    ("settings", "first", "certificate"),
    [
        ({"law": "gaussian"}, 1.0, "gaussian"),
        ({"law": "gaussian"}, 0.5, "gaussian"),
        ({"law": "gaussian", "certificate": "zcdp"}, 1.0, "zcdp"),
        ({"law": "auto"}, 0.5, "zcdp"),
        ({"law": "laplace"}, 0.5, "zcdp"),
    ],
)
def test_a_party_opens_its_account_by_the_law_of_the_session_and_admits_all_of_its_budget(
    made, tmp_path, settings, first, certificate
):
    parties = made()
    with open_session(parties, tmp_path / "s", **settings) as s:
        s.where("age > 50").count(epsilon=first)
        for _ in range(3):
            if (left := s.remaining) > 1e-6:
                s.where("age > 50").count(epsilon=left)
    for home in party_folders(parties[1], 3):
        with Ledger.open(home / "ledger.sqlite", read_only=True) as ledger:
            (account,) = ledger.list_accounts()
            assert account.budget.certificate == certificate
            assert ledger.verify() == []
