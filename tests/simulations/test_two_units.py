"""Records and parties protected at once: two budgets, two bounds, one transaction."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import plans
import pytest
from quick_runs import StopAfter
from safetensors import safe_open
from scipy import stats

from parley.client.party.party_session import PartySession
from parley.client.party.refusal_rules import RefusalRules
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import BudgetExceeded
from parley.privacy.sampling.random_stream import NoiseStream, Randomness
from parley.server.jobs.job_file import load_job, render_job
from parley.server.jobs.section_base import JobError
from parley.simulations.engine.fast_engine import simulate

BASE = [
    "algorithm.kind=fedavg",
    "model.kind=mlp",
    "model.hidden=[8]",
    "algorithm.rounds=2",
    "parties.count=3",
    "dp-sgd.sampling-rate=0.25",
    "dp-sgd.learning-rate=0.5",
    "dp-sgd.momentum=0.9",
    "dp-sgd.clip-norm=1",
    "dp-sgd.party-clip-norm=1",
    "privacy.unit=both",
    "privacy.epsilon=2",
    "privacy.party-epsilon=5",
    "privacy.party-delta=1e-4",
    "run.seed=1",
]


pytestmark = pytest.mark.usefixtures("no_baseline")


def run(folder: Path, *overrides: str, **more):
    return simulate(load_job(overrides=[*BASE, *overrides]), out=folder, **more)


def planned(*overrides: str):
    return plans.planned(load_job(overrides=[*BASE, *overrides]))


def test_each_unit_spends_its_own_budget_and_says_so_everywhere(tmp_path) -> None:
    result = run(tmp_path / "r")
    summary = result.summary
    assert (summary.primary.unit, summary.primary.neighbouring) == ("record", "replace-one")
    assert 1.99 <= summary.primary.epsilon <= 2.0
    party = summary.guarantees[1]
    assert (party.unit, party.neighbouring) == ("party", "replace-one")
    assert 4.99 <= party.epsilon <= 5.0
    assert party.delta == 1e-4
    # 2S/m on the average of three, and the grid's share.
    assert party.noise.sensitivity == pytest.approx(2 / 3, rel=1e-3)
    with Ledger.open(tmp_path / "r" / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.verify() == []
        records, parties = ledger.list_accounts()
        assert (records.budget.name, records.budget.unit) == ("breast-cancer", "record")
        assert (parties.budget.name, parties.budget.unit) == ("breast-cancer", "party")
        assert (parties.budget.epsilon, parties.budget.delta) == (5.0, 1e-4)
        assert records.spent.compute_lowest_epsilon(1e-5)[1] == summary.primary.epsilon
        assert parties.spent.compute_lowest_epsilon(1e-4)[1] == party.epsilon
        first, second = ledger.list_entries()[:2]
        assert first.entry.facts["bound"] == "inner: DP-SGD in the party"
        assert first.entry.facts["noise_point"] == "party"
        assert second.entry.facts["noise_point"] == "share"
        assert second.entry.facts["clip_norm"] == 1.0
        assert second.entry.facts["sensitivity"] == 2.0
        assert second.outcome == first.outcome
    with safe_open(tmp_path / "r" / "model.safetensors", framework="np") as file:
        metadata = file.metadata()
    assert metadata["parley.party-unit"] == "party"
    assert metadata["parley.party-neighbouring"] == "replace-one"


@pytest.mark.parametrize("relation", ["replace-one", "add-or-remove-one"])
def test_records_are_charged_by_the_lower_of_the_two_bounds(tmp_path, relation) -> None:
    more = [f"privacy.neighbouring={relation}", "parties.min-records=151"]
    cheap = [*more, "privacy.party-epsilon=1", "privacy.party-delta=1e-5"]
    _, _, plan = planned(*cheap)
    assert plan.get_charging_guarantee(Unit.RECORD) is plan.get_guarantee(Unit.PARTY)
    assert plan.compute_event(Unit.RECORD) == plan.compute_event(Unit.PARTY)
    # Not both the lower bound and a wider release: the entry says which bound, whose noise.
    facts = plan.to_ledger_facts(Unit.RECORD)
    assert facts["bound"].startswith("outer")
    assert (facts["unit"], facts["neighbouring"]) == ("record", relation)
    assert (facts["noise_point"], facts["noise_law"]) == ("share", "gaussian")
    summary = run(tmp_path / "r", *cheap).summary
    bounds = summary.record_bounds
    assert bounds.charged == "outer"
    assert bounds.outer.epsilon == summary.primary.epsilon == summary.guarantees[1].epsilon
    assert bounds.inner.epsilon == pytest.approx(2.0, rel=1e-2)
    # The parties' own accounts stay those of their steps: they hold against the server too.
    assert summary.dp_sgd.largest["pld"] == bounds.inner.epsilon
    _, _, wide = planned(*more)
    assert wide.get_charging_guarantee(Unit.RECORD) is wide.primary


def test_the_outer_bound_is_one_gaussian_of_all_rounds() -> None:
    _, algorithm, plan = planned("algorithm.rounds=9", "dp-sgd.party-clip-norm=0.5")
    noise = plan.get_guarantee(Unit.PARTY).mechanism
    scale = 2.0**plan.encoding.scale_bits
    assert plan.get_guarantee(Unit.PARTY).sensitivity == 1.0
    assert noise.sensitivity == scale * 1.0 + math.sqrt(plan.dimension)
    from parley.privacy.accounting.gaussian_curve import compute_gaussian_epsilon

    mu = 3 * noise.sensitivity / noise.sigma
    assert compute_gaussian_epsilon(mu, 1e-4) == pytest.approx(5.0, rel=1e-4)
    assert algorithm.update_bound == 0.5


def test_no_update_is_longer_than_the_clip_and_none_is_left_unclipped() -> None:
    experiment, algorithm, plan = planned("dp-sgd.party-clip-norm=0.01")
    values = algorithm.local(
        algorithm.init(), experiment.block, plan, Randomness.from_seed(1)
    ).values
    norms = np.linalg.norm(values, axis=1)
    assert norms == pytest.approx([0.01] * 3, rel=1e-6)
    assert (norms <= 0.01).all()


def test_both_noises_have_their_scale_and_no_other() -> None:
    # Full batches: what differs between two seeds is noise alone, of the parties and the server.
    more = ["dp-sgd.sampling-rate=1", "dp-sgd.local-steps=1", "dp-sgd.learning-rate=0.01"]
    more += ["dp-sgd.momentum=0", "dp-sgd.noise-multiplier=5", "algorithm.rounds=1"]
    more += ["parties.count=40", "dp-sgd.party-clip-norm=0.1", "privacy.party-epsilon=40"]
    more += ["privacy.noise-point=server"]
    sums, kept = [], []
    for seed in range(8):
        experiment, algorithm, plan = planned(*more)
        drawn = Randomness.from_seed(seed)
        values = algorithm.local(algorithm.init(), experiment.block, plan, drawn).values
        assert (np.linalg.norm(values, axis=1) < 0.099).all()  # the clip to S does nothing here
        drawn = plan.draw(NoiseStream.from_seed(seed, "test")) / 2.0**plan.encoding.scale_bits
        kept.append(values)
        sums.append(values.sum(axis=0) + drawn)
    sizes = experiment.block.sizes
    inner = math.sqrt(sum((0.01 * 5 * 1.0 / n) ** 2 for n in sizes))
    outer = plan.get_guarantee(Unit.PARTY).mechanism.sigma / 2.0**plan.encoding.scale_bits
    assert 0.5 < inner / outer < 2  # either one missing would be seen
    difference = (np.array(sums[1::2]) - np.array(sums[::2])).ravel() / math.sqrt(2)

    def p_value(sample, scale: float) -> float:
        """That the sample is N(0, scale²): of its form, and of its second moment."""
        law, moment = stats.chi2(sample.size), ((sample / scale) ** 2).sum()
        of_form = float(stats.kstest(sample / scale, stats.norm.cdf).pvalue)
        return min(of_form, 2 * min(law.cdf(moment), law.sf(moment)))

    right = math.hypot(inner, outer)
    assert p_value(difference, right) > 1e-3
    for wrong in (2 / 3 * right, 1.5 * right, inner, outer):
        assert p_value(difference, wrong) < 1e-8, wrong / right
    # In the party alone: σC on the sum of its own batch, not on the average.
    alone = (kept[1] - kept[0]) * sizes[:, None] / (0.01 * math.sqrt(2))
    assert p_value(alone.ravel(), 5.0) > 1e-3
    for wrong in (5 * 2 / 3, 5 * 1.5, 5 / sizes[0], 5.0 * sizes[0]):
        assert p_value(alone.ravel(), wrong) < 1e-8
    # The server's alone: that of 2S, the sensitivity of the sum when a party is replaced.
    server = plan.draw(NoiseStream.from_seed(9, "test")) / 2.0**plan.encoding.scale_bits
    assert p_value(server, outer) > 1e-3
    assert p_value(server, outer / 2) < 1e-8  # calibrated to S
    assert p_value(server, outer / plan.parties) < 1e-8  # to the average


def spent(folder: Path) -> list[Composition]:
    with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.verify() == []
        return [totals.spent for totals in ledger.list_accounts()]


@pytest.mark.parametrize("epsilon", [5, 1])
def test_a_run_that_was_killed_pays_for_nothing_twice_in_either_budget(tmp_path, epsilon) -> None:
    more = ["algorithm.rounds=3", f"privacy.party-epsilon={epsilon}"]
    whole = run(tmp_path / "whole", *more)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", *more, observer=StopAfter(1))
    # Killed with round 2 reserved: in both budgets.
    assert [total.releases for total in spent(tmp_path / "cut")] == [2, 2]
    resumed = simulate(None, resume=tmp_path / "cut")
    assert np.array_equal(whole.theta, resumed.theta)
    for key in ("guarantees", "record_bounds"):
        assert getattr(resumed.summary, key) == getattr(whole.summary, key)
    assert spent(tmp_path / "cut") == spent(tmp_path / "whole")


@pytest.mark.parametrize("write", range(1, 15))
def test_a_kill_at_any_write_leaves_both_budgets_charged_or_neither(
    tmp_path, monkeypatch, write
) -> None:
    from parley.privacy.ledger.table_access import LedgerWriter

    class Killed(BaseException):
        pass

    written, original = [0], LedgerWriter.append

    def append(self, *arguments, **more):
        written[0] += 1
        record = original(self, *arguments, **more)
        if written[0] == write:
            raise Killed
        return record

    folder = tmp_path / "r"
    monkeypatch.setattr(LedgerWriter, "append", append)
    small = ["model.hidden=[2]", "dp-sgd.local-steps=1", "algorithm.rounds=3"]
    small += ["dp-sgd.noise-multiplier=6", "secure-aggregation.masked-check=false"]
    # 2 registrations, 3 × 2 reservations, 3 × 2 commits.
    with pytest.raises(Killed):
        run(folder, *small)
    monkeypatch.setattr(LedgerWriter, "append", original)
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        assert ledger.verify() == []
        counts = [totals.spent.releases for totals in ledger.list_accounts()]
    assert counts in ([], [0, 0], [1, 1], [2, 2], [3, 3])
    if not (folder / "run-id").exists():
        return
    resumed = simulate(None, resume=folder)
    assert resumed.summary.rounds_done == 3
    assert [total.releases for total in spent(folder)] == [3, 3]


def test_a_release_that_one_of_the_budgets_cannot_bear_is_charged_to_neither(tmp_path) -> None:
    shared = [f"privacy.ledger={tmp_path / 'shared.sqlite'}", "algorithm.rounds=4"]
    shared += ["privacy.dataset-epsilon=9", "privacy.dataset-party-epsilon=6"]
    assert run(tmp_path / "a", *shared).summary.status == "complete"
    with pytest.raises(BudgetExceeded, match=r"\(unit party, .* 1 of the 4 would fit"):
        run(tmp_path / "b", *shared, "run.seed=2")
    assert not (tmp_path / "b").exists()
    with Ledger.open(tmp_path / "shared.sqlite", read_only=True) as ledger:
        assert [totals.spent.releases for totals in ledger.list_accounts()] == [4, 4]
        assert [totals.held_counts for totals in ledger.list_accounts()] == [{}, {}]
        assert ledger.verify() == []


def test_a_party_accepts_two_budgets_only_where_its_owner_set_both() -> None:
    experiment, algorithm, plan = planned("dp-sgd.noise-multiplier=6")

    def refused(*units) -> dict[int, str]:
        session = PartySession(
            block=experiment.block,
            algorithm=algorithm,
            rules=RefusalRules(units=frozenset(units)),
            randomness=Randomness.from_entropy(),
        )
        return session.find_refusals(plan)

    assert set(refused(Unit.RECORD).values()) == {"a budget for the whole party is not accepted"}
    assert not refused(Unit.RECORD, Unit.PARTY)
    assert plan.units == (Unit.RECORD, Unit.PARTY)
    assert plan.get_guarantee(Unit.PARTY).neighbouring is Neighbouring.REPLACE_ONE


CONTRADICTIONS = """
privacy.party-epsilon=0 | party-epsilon
privacy.party-epsilon=-1 | party-epsilon
privacy.party-delta=0 | party-delta
privacy.party-delta=1 | party-delta
privacy.unit=record | privacy.unit = 'both'
privacy.unit=party | privacy.unit = 'both'
parties.weights=size | weights = 'uniform'
parties.count=1 | at least 2 parties
model.kind=pca-mlp model.pca=private | model.pca = 'public'
privacy.neighbouring=add-or-remove-one | parties.min-records, a public number
dp-sgd.party-clip-norm=0 | party-clip-norm
algorithm.kind=gradient-perturbation model.kind=logistic model.hidden=[1000] | fedavg
"""


@pytest.mark.parametrize("line", CONTRADICTIONS.split("\n")[1:-1])
def test_keys_that_contradict_two_units_are_refused(line) -> None:
    overrides, message = line.split(" | ")
    with pytest.raises(JobError, match=message):
        load_job(overrides=[*BASE, *overrides.split()])


def test_an_inner_noise_that_costs_more_is_allowed_where_the_outer_bound_is_charged() -> None:
    weak = ["dp-sgd.noise-multiplier=0.5", "privacy.party-epsilon=1.5"]
    _, _, plan = planned(*weak, "privacy.party-delta=1e-5")
    assert plan.get_charging_guarantee(Unit.RECORD) is plan.get_guarantee(Unit.PARTY)


def test_a_job_dearer_than_the_partys_budget_over_all_runs_is_refused(tmp_path) -> None:
    with pytest.raises(JobError, match=r"unit party.*dataset-party-epsilon"):
        run(tmp_path / "r", "privacy.dataset-party-epsilon=4")
    assert not (tmp_path / "r").exists()


def test_the_printed_job_has_both_budgets_and_reads_back() -> None:
    import tomllib

    job = load_job(overrides=BASE)
    text = render_job(job)
    assert "party-epsilon = 5.0" in text
    assert load_job(values=tomllib.loads(text)) == job
    assert [(x.epsilon, x.delta) for x in job.budgets] == [(2.0, 1e-5), (5.0, 1e-4)]
    same = load_job(overrides=[*BASE, "privacy.party-epsilon=auto", "privacy.party-delta=auto"])
    assert [(x.epsilon, x.delta) for x in same.budgets] == [(2.0, 1e-5)] * 2
