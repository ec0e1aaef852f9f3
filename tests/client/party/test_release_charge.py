"""What a party charges itself: in every unit that its owner set a total for."""

from dataclasses import replace

import numpy as np
import pytest
from agreements import NETWORK

from parley.client.contract.refusals import Declined
from parley.client.party import budget_checks, release_charge
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger import Ledger

BOTH = (*NETWORK, "privacy.unit=both", "privacy.party-epsilon=3", "privacy.record-bound=inner")
BOTH += ("privacy.party-delta=1e-5",)


def _totals(world, party):
    path = world.folders[party] / "ledger.sqlite"
    if not path.exists():
        return ()
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.verify() == []
        return ledger.list_accounts()


@pytest.mark.parametrize(
    "limits",
    [{"epsilon-per-job": 2.0}, {"party-epsilon-per-job": 2.0}, {"party-epsilon": 2.0}],
    ids=["record", "party", "party's total"],
)
def test_a_job_that_spends_too_much_of_one_unit_is_declined_before_its_first_round(
    tmp_path, wired, limits
):
    """The job asks for ε = 3 of records and of parties: either limit of 2 refuses it."""
    data = {"party-epsilon": 50.0, "party-delta": 1e-5, **limits}
    world = wired.World(tmp_path, overrides=BOTH, **data)
    assert wired.reason(world.ask(0, "join", **world.join_head())) == "budget-exhausted"
    assert _totals(world, 0) == ()


@pytest.mark.parametrize(("party", "said"), [(3, "waiting-for-approval"), (0.5, "ok")])
def test_what_a_job_spends_of_any_unit_needs_a_yes(tmp_path, wired, party, said):
    """ε = .5 of records and 3 of parties, where 2 need none; or .5 of both."""
    each = ("privacy.epsilon=0.5", f"privacy.party-epsilon={party}")
    data = {"party-epsilon": 50.0, "party-delta": 1e-5, "approval-above": 2.0}
    world = wired.World(tmp_path, overrides=(*BOTH, *each), **data)
    answer = world.ask(0, "join", **world.join_head())
    assert answer.head.get("reason", "ok") == said


def test_every_unit_of_a_job_is_composed_with_what_the_job_spent_of_it(tmp_path, wired):
    data = {"party-epsilon": 50.0, "party-delta": 1e-5, "party-epsilon-per-job": 3.0}
    world = wired.World(tmp_path, overrides=BOTH, **data)
    dataset, plan = world.services[0]._policy.get_dataset("ward"), world.plan
    budget_checks.check_job(dataset, plan, releases=3, spent={})
    spent = {unit: Composition().add(plan.compute_event(unit), 1) for unit in plan.units}
    budget_checks.check_job(dataset, plan, releases=2, spent=spent)
    spent[Unit.PARTY] = spent[Unit.PARTY].add(plan.compute_event(Unit.PARTY), 1)
    with pytest.raises(Declined, match=r"at most ε = 3 of one job \(unit party\), got 3\.\d"):
        budget_checks.check_job(dataset, plan, releases=2, spent=spent)


def test_a_party_makes_no_releases_without_end_however_little_each_costs(tmp_path, wired):
    world = wired.World(tmp_path, **{"most-releases": 5})
    world.join()
    for number in (1, 2, 3):
        world.vectors(number, number)
        world.opened()
    other = {"run": "r-2", "plan": world.plan.with_run_id("r-2").to_json()}
    for rounds, said in ((3, "budget-exhausted"), (2, "ok")):
        answer = world.ask(0, "propose", **world.join_head(**other, rounds=rounds))
        assert answer.head.get("reason", "ok") == said


def test_a_table_that_changed_is_charged_to_the_account_of_its_name(tmp_path, wired):
    """Whatever became of its rows: a party's answers tell nothing of which they are."""
    world = wired.World(tmp_path)
    world.join()
    world.vectors(1)
    service = world.services[0]
    dataset = service._policy.get_dataset("ward")
    holding = service._records.load("ward", "logistic", False, {})
    grown = replace(
        holding,
        fingerprint="sha256:another",
        contents="rows:others",
        row_digests=np.vstack([holding.row_digests[3:], np.ones((1, 3), np.uint64)]),
    )
    with Ledger.open(world.folders[0] / "ledger.sqlite") as ledger:
        release_charge.register_dataset(
            ledger, dataset, account="ward", data=grown, plan=world.plan
        )
        other = replace(grown, fingerprint="sha256:other", contents="")
        release_charge.register_dataset(
            ledger, dataset, account="other", data=other, plan=world.plan
        )
        assert ledger.count_shared_rows(holding.row_digests) == {
            "other": len(holding.row_digests) - 3,  # which is its owner's to know
            "ward": len(holding.row_digests),
        }
        assert ledger.get_account("ward", Unit.RECORD).spent.releases == 1
        assert ledger.verify() == []


def test_both_budgets_of_a_round_are_the_datas_own_by_unit(tmp_path, wired):
    world = wired.World(tmp_path, overrides=BOTH, **{"party-epsilon": 50.0, "party-delta": 1e-5})
    world.join()
    world.vectors(1)
    for party in range(world.count):
        totals = _totals(world, party)
        assert [total.budget.key for total in totals] == [("ward", "record"), ("ward", "party")]
        assert [total.spent.releases for total in totals] == [1, 1]


@pytest.mark.parametrize("short", ["party_epsilon", "epsilon"])
def test_a_planned_job_that_one_budget_refuses_is_charged_to_none(tmp_path, wired, short):
    sampled = (*BOTH, "dp-sgd.sampling-rate=0.1")
    world = wired.World(tmp_path, overrides=sampled, **{"party-epsilon": 50.0, "party-delta": 1e-5})
    service, plan = world.services[0], world.plan
    dataset = service._policy.get_dataset("ward").model_copy(
        update={short: 0.1, "certificate": "auto"}
    )
    holding = service._records.load("ward", "network", False, {})
    with Ledger.open(tmp_path / "other.sqlite") as ledger:
        release_charge.register_dataset(ledger, dataset, account="ward", data=holding, plan=plan)
        accounts = ledger.list_accounts()
        assert any(each.must_plan(plan.compute_event(each.budget.unit)) for each in accounts)
        with pytest.raises(Declined) as refused:
            release_charge.reserve_charge(
                ledger, plan, account="ward", party="p", release=bytes(32), rounds=3
            )
        assert refused.value.reason == "budget-exhausted"
        assert ledger.list_accounts() == accounts
        assert ledger.verify() == []
