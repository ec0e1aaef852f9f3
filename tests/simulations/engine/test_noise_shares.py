"""Noise in shares through whole runs: every engine's bits, dropouts, one list, the accounts."""

import json
from dataclasses import replace

import numpy as np
import pytest
from among_parties import among_parties
from plans import planned, with_primary
from safetensors.numpy import load_file
from scipy import stats

from parley.client.algorithms.gradient_perturbation import GradientPerturbation
from parley.client.contract.plan_decoding import decode_plan
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.threat_model import NOISE_POINTS, Adversary
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.mechanisms.noise_shares import Shares
from parley.privacy.sampling.random_stream import NoiseStream
from parley.secure_agg.encoding import RingTooSmall
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.planning.job_planner import build_algorithm, build_model, plan_release
from parley.simulations.engine.fast_engine import simulate

BASE = (
    "privacy.noise-point=share",
    "parties.count=4",
    "algorithm.rounds=2",
    "data.records=160",
    "run.seed=5",
    "run.noise-shares=full",
)

TEN = (
    "algorithm.rounds=1",
    "secure-aggregation.corrupt=2",
    "secure-aggregation.min-survivors=8",
)

PURE = ("privacy.noise=laplace-l1", "privacy.delta=0")
JOBS = {
    "a ring of 16 bits": ("secure-aggregation.ring-bits=16", "privacy.epsilon=4"),
    "laplace-l1, pure": ("algorithm.kind=output-perturbation", *PURE),
}
"""Beside those of `test_engines.py`."""


def theta_of(run):
    return load_file(run / "model.safetensors")["theta"]


@pytest.mark.parametrize("name", JOBS)
def test_full_shares_are_equal_to_the_bit_in_every_way_to_sum_them(name, tmp_path) -> None:
    job = load_job(overrides=[*BASE, *JOBS[name]])
    ideal = simulate(job, out=tmp_path / "ideal").folder
    masked = load_job(overrides=[*BASE, *JOBS[name], "secure-aggregation.backend=masked"])
    together = simulate(masked, out=tmp_path / "masked").folder
    assert np.array_equal(theta_of(ideal), theta_of(together))
    apart = among_parties(job, tmp_path)
    assert np.array_equal(theta_of(ideal), theta_of(apart))
    with Ledger.open(apart / "ledger.sqlite", read_only=True) as ledger:
        (first, *_) = ledger.list_entries()
    facts = first.entry.facts
    assert facts["noise_point"] == "share"
    assert facts["honest_shares"] + facts["colluders"] == facts["min_survivors"]
    assert facts["summed_shares"] == facts["min_survivors"]
    readers, charged, others = facts["accounts"]
    assert [each["adversary"] for each in facts["accounts"]] == list(Adversary)
    assert [each["charged"] for each in facts["accounts"]] == [False, True, False]
    assert readers["epsilon"] <= charged["epsilon"] <= (others["epsilon"] or 1e9)


def test_a_dealt_sum_has_the_law_of_the_survivors_shares_and_no_other() -> None:
    softmax = ("model.kind=softmax", "data.source=digits", "data.records=400", "run.seed=none")
    plan = made_of(10, *TEN, *softmax, features=64, classes=10)
    shares, sigma = plan.primary.shares, plan.primary.mechanism.sigma
    assert (shares.honest, shares.colluders, shares.parties) == (6, 2, 10)
    dealt = plan.encoding.decode(plan.add_central_noise(9, NoiseStream.from_seed(4)))
    square = float((dealt.astype(float) ** 2).sum() / (sigma**2 * 9 / 6))
    law = stats.chi2(plan.dimension)
    assert 1e-4 < law.cdf(square) < 1 - 1e-4
    assert law.cdf(square * 4 / 9) < 1e-9
    assert law.cdf(square * 9 / 4) > 1 - 1e-9


def test_a_thousand_patterns_of_dropouts_leave_every_survivors_share_in_the_sum() -> None:
    """Zero contributions through plan and ring: what is decoded is the r shares, r by pattern."""
    plan = made_of(10, *TEN, features=4, classes=2)
    sigma, rng = plan.primary.mechanism.sigma, np.random.default_rng(3)
    of_one = sigma**2 / plan.primary.shares.honest
    streams = [NoiseStream.from_seed(6, party) for party in range(10)]
    nothing, squares, fewer = np.zeros((10, plan.dimension)), 0.0, 0.0
    for _ in range(1000):
        sent = plan.encode(nothing, streams)
        there = rng.permutation(10)[: rng.integers(8, 11)]
        total = sent[there].sum(axis=0, dtype=sent.dtype)  # modulo 2^b
        fine = plan.encoding.decode(total).astype(float) * plan.primary.shares.ring_unit
        squares += float((fine**2).sum()) / (of_one * len(there))
        fewer += float((fine**2).sum()) / (of_one * (len(there) - 1))
    law = stats.chi2(1000 * plan.dimension)
    assert 1e-6 < law.cdf(squares) < 1 - 1e-6
    assert law.sf(fewer) < 1e-9  # one share missing would be seen


def test_dealing_is_after_the_first_round_and_repeats_with_its_seed(tmp_path) -> None:
    dealt = [*BASE, "run.noise-shares=deal"]
    one = simulate(load_job(overrides=dealt), out=tmp_path / "one")
    two = simulate(load_job(overrides=dealt), out=tmp_path / "two")
    full = simulate(load_job(overrides=BASE), out=tmp_path / "full")
    assert np.array_equal(one.theta, two.theta)
    assert not np.array_equal(one.theta, full.theta)
    first = [simulate(load_job(overrides=[*o, "algorithm.rounds=1"]), out=tmp_path / f"{i}").theta
             for i, o in enumerate((dealt, BASE))]  # fmt: skip
    assert np.array_equal(*first)


def test_a_round_that_is_repeated_sends_the_very_same_vectors(tmp_path, monkeypatch) -> None:
    from parley.client.party.party_session import PartySession

    sent = []
    kept = PartySession.answer

    def answer(self, plan, state, **how):
        given = kept(self, plan, state, **how)
        sent.append((plan.round_number, given.encoded.copy(), set(given.refused)))
        return given

    monkeypatch.setattr(PartySession, "answer", answer)
    lost = "drop:0.5@before-vector@1"
    masked = "secure-aggregation.backend=masked"
    job = load_job(overrides=[*BASE, "run.seed=none", f"run.faults={lost}", masked])
    simulate(job, out=tmp_path / "run")
    first = [vectors for number, vectors, _ in sent if number == 1]
    assert len(first) == 3  # every attempt fails: too few survive
    assert all(np.array_equal(vectors, first[0]) for vectors in first[1:])


@pytest.mark.parametrize(
    ("overrides", "error", "said"),
    [
        (("privacy.noise=discrete-gaussian", "privacy.calibration=zcdp"), JobError, "split into"),
        (("secure-aggregation.scale-bits=3",), JobError, "at least 4 ring units, got"),
        (
            ("secure-aggregation.ring-bits=16", "secure-aggregation.scale-bits=14"),
            RingTooSmall, "parties × largest",
        ),
    ],
)  # fmt: skip
def test_what_no_shares_can_give_is_refused_before_a_folder_is_made(
    overrides, error, said, tmp_path
) -> None:
    with pytest.raises(error, match=said):
        simulate(load_job(overrides=[*BASE, *overrides]), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_plan_travels_with_its_shares_and_refuses_what_contradicts_them() -> None:
    plan = made_of(4)
    assert decode_plan(json.loads(json.dumps(plan.to_json(), allow_nan=False))) == plan
    own = plan.primary
    assert (own.noise_point, own.against) == (NOISE_POINTS["share"], Adversary.COLLUDERS)
    for change, said in (
        ({"shares": None}, "shares if, and only if, the parties add"),
        ({"noise_point": NOISE_POINTS["server"]}, "to hold against readers"),
        ({"against": Adversary.OTHERS}, "to hold against server-and-colluders"),
        ({"shares": replace(own.shares, scale=own.shares.scale * 2 / 3)}, "at least"),
        ({"shares": replace(own.shares, honest=own.shares.honest - 1)}, "at least"),
        ({"shares": replace(own.shares, fine_bits=40)}, "4 ring units"),
    ):
        with pytest.raises(ValueError, match=said):
            with_primary(plan, **change)


def noise_left(plan, known):
    """What remains of a release's noise for whom `known` parties tell their shares: 4,000 draws."""
    rng = NoiseStream.from_seed(17)
    zeros = np.zeros((plan.parties, plan.dimension))
    left = []
    for _ in range(4000 // plan.dimension):
        sent = plan.encoding.decode(plan.encode(zeros, [rng] * plan.parties))
        survivors = sent[: plan.min_survivors]  # the server dropped all that it may
        left.append(survivors.sum(axis=0) - survivors[:known].sum(axis=0))
    return np.concatenate(left).astype(float)


def told_apart(noise, shift, epsilon):
    """The largest P[z + Δ > x] − e^ε·P[z > x] over thresholds x, of one coordinate."""
    z = np.sort(noise)
    below = np.searchsorted(z, z, side="right") / z.size
    shifted = np.searchsorted(z, z + shift, side="right") / z.size
    return float(np.max((1 - below) - np.exp(epsilon) * (1 - shifted)))


def test_a_server_with_c_colluders_stays_within_the_charge_and_with_one_more_does_not() -> None:
    """t = 7 of 8 survive, c = 4: three shares are charged, and two are left after one more."""
    plan = made_of(8, "secure-aggregation.corrupt=4", "secure-aggregation.min-survivors=7",
                   "algorithm.rounds=1", "privacy.epsilon=2", "privacy.delta=0.05")  # fmt: skip
    own = plan.primary
    assert (own.shares.honest, own.shares.colluders) == (3, 4)
    epsilon = 2.0
    curve = Composition.from_events([own.event]).compute_lowest_epsilon(0.05)[1]
    assert curve == pytest.approx(epsilon, rel=1e-6)
    shift = own.mechanism.sensitivity
    error = 4 * np.sqrt(0.05 / 4000) * (1 + np.exp(epsilon) * 0.05)
    assert told_apart(noise_left(plan, known=4), shift, epsilon) <= 0.05 + error
    assert told_apart(noise_left(plan, known=5), shift, epsilon) > 0.05 + error
    # Nor is the charge loose: all but a third of it is there to be found.
    assert told_apart(noise_left(plan, known=4), shift, epsilon) > 0.03


def made_of(parties, *overrides, features=30, classes=0):
    job = load_job(overrides=[*BASE, f"parties.count={parties}", *overrides])
    federation = Federation(
        parties=parties, min_records=30, total_records=30 * parties, max_records=30
    )
    algorithm = build_algorithm(
        job, build_model(job, features=features, classes=classes), federation
    )
    return plan_release(job, algorithm=algorithm, federation=federation)


def test_a_dealers_noise_is_on_the_shares_own_grid_however_coarse_the_ring(tmp_path, monkeypatch):
    """Rounded to the ring first a sum moves by √d of its units, each 128 of the shares'."""
    job = load_job(overrides=[*BASE, *JOBS["a ring of 16 bits"], "run.noise-shares=deal"])
    plan, given, covered = planned(job)[2], [], []
    local = GradientPerturbation.local

    def kept(self, *asked):
        found = local(self, *asked)
        given.append(found.values.sum(axis=0))
        return found

    monkeypatch.setattr(GradientPerturbation, "local", kept)
    monkeypatch.setattr(Shares, "add_summed", lambda self, law, total, *_: covered.append(total))
    simulate(job, out=tmp_path / "run")
    assert plan.primary.shares.fine_bits == 7
    off = covered[-1] - given[-1] * plan.primary.compute_unit_scale(plan.encoding.scale)
    assert np.abs(off).max() <= plan.parties / 2
