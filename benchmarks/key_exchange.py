"""What ML-KEM-768 beside X25519 costs a run: set-up, rounds and bytes, the two taking turns.

    python benchmarks/key_exchange.py setup --cases 100,99 1000,96
    python benchmarks/key_exchange.py rounds --cases 100,99,100 100,99,100000
    python benchmarks/key_exchange.py bytes --cases 100,99 1000,96

A case is parties, neighbours (and dimension). Every party does all its own work, every message
goes through bytes. Seconds are process CPU time; the machine may be busy: each step is done under
the one key exchange, then under the other, and ratios are medians.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np

# The folder of this script would come first, and its own names hide the package's.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from parley.secure_agg.graph import NO_BEACON, commitment
from parley.secure_agg.ideal import (
    simulated_nonces,
    simulated_parameters,
    with_simulated_beacon,
)
from parley.secure_agg.interface import KeyExchange
from parley.secure_agg.masked import MaskedSum
from parley.secure_agg.pairwise_party import Party
from parley.secure_agg.pairwise_server import Server
from parley.secure_agg.parameters import Derived, Policy, RunParameters, derive
from parley.secure_agg.primitives import signing_public

MODES = (KeyExchange.X25519, KeyExchange.HYBRID)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GivenGraph(RunParameters):
    """A degree to compare at; parties derive theirs, and would accept no other."""

    given: int

    @cached_property
    def derived(self) -> Derived:
        """What is derived, but for the graph."""
        chosen = derive(
            self.parties,
            corrupt=self.corrupt,
            dropped=self.dropped,
            confirm_survivors=self.confirm_survivors,
        )
        return dataclasses.replace(chosen, degree=self.given, threshold=self.given // 2 + 1)


def given_run(parties: int, degree: int, exchange: KeyExchange) -> RunParameters:
    run = simulated_parameters(
        parties=parties, min_survivors=parties // 2 + 1, corrupt=0, key_exchange=exchange
    ).proposed
    fields = {f.name: getattr(run, f.name) for f in dataclasses.fields(run)}
    fields |= {"commitments": NO_BEACON, "given": degree}
    return with_simulated_beacon(GivenGraph(**fields))


class SetUp:
    """One run's set-up, step by step, with the CPU seconds of parties and server."""

    def __init__(self, run: RunParameters) -> None:
        self.run, self.spent = run, defaultdict(float)
        nonces = simulated_nonces(run)
        private = [os.urandom(32) for _ in range(run.parties)]
        identities = tuple(signing_public(key) for key in private)
        policy = Policy(
            identities=identities,
            min_survivors=run.min_survivors,
            corrupt=0,
            key_exchange=run.key_exchange,
        )
        self.parties = [
            Party(
                run=run.proposed, policy=policy, index=i, identity=private[i],
                entropy=os.urandom, nonce=nonces.get(i, b""),
            )
            for i in range(run.parties)
        ]  # fmt: skip
        given = {i: commitment(i, nonce) for i, nonce in nonces.items()}
        self.server = Server(run=run, identities=identities, commitments=given)

    def timed(self, whose: str, work: Callable[[], object]) -> object:
        """What `work` gives; its CPU time is `whose`."""
        start = time.process_time()
        done = work()
        self.spent[whose] += time.process_time() - start
        return done

    def advertise(self, i: int) -> None:
        """A party's signed keys."""
        message = self.timed("parties", self.parties[i].advertise)
        self.timed("server", lambda: self.server.on_advertise(message))

    def roster(self) -> None:
        """Everybody's roster."""
        self.rosters = self.timed("server", self.server.roster)
        self.nonces = self.server.adverts.nonces()

    def join(self, i: int) -> None:
        """A party takes its roster, and encapsulates."""
        roster = self.rosters.pop(i)
        message = self.timed("parties", lambda: self.parties[i].on_roster(roster, self.nonces))
        if message:
            self.timed("server", lambda: self.server.on_encapsulated(message))

    def pair(self, i: int) -> None:
        """A party takes its neighbours' ciphertexts."""
        message = self.timed("server", lambda: self.server.ciphertexts(i))
        if message:
            self.timed("parties", lambda: self.parties[i].on_ciphertexts(message))
            self.server.delivery.arrived(i)


def setup(cases: list[list[int]], repeats: int) -> None:
    for parties, degree in cases:
        ratios, rows = [], []
        for _ in range(repeats):
            runs = [SetUp(given_run(parties, degree, exchange)) for exchange in MODES]
            for step in (SetUp.advertise, None, SetUp.join, SetUp.pair):
                if step is None:
                    for each in runs:
                        each.roster()
                    continue
                for i in range(parties):
                    for each in runs:
                        step(each, i)
            spent = [sum(each.spent.values()) for each in runs]
            ratios.append(spent[1] / spent[0])
            rows.append([1e3 * each.spent["parties"] / parties for each in runs] + spent)
        old, new, old_all, new_all = (
            statistics.median(column) for column in zip(*rows, strict=True)
        )
        row = {
            "parties": parties, "neighbours": degree,
            "x25519_s": round(old_all, 3), "hybrid_s": round(new_all, 3),
            "ratio": round(statistics.median(ratios), 2),
            "x25519_ms_a_party": round(old, 2), "hybrid_ms_a_party": round(new, 2),
            "more_ms_a_party": round(new - old, 2),
        }  # fmt: skip
        print(json.dumps(row, allow_nan=False), flush=True)


def rounds(cases: list[list[int]], repeats: int) -> None:
    for parties, degree, dimension in cases:
        vectors = np.random.default_rng(0).integers(0, 2**32, (parties, dimension), dtype=np.uint32)
        sums = [MaskedSum(given_run(parties, degree, each), shared=False) for each in MODES]
        spent: list[list[float]] = [[], []]
        for number in range(1, repeats + 2):
            for which in ((0, 1), (1, 0))[number % 2]:
                start = time.process_time()
                sums[which].sum(vectors, round_number=number, dropped={})
                spent[which].append(time.process_time() - start)
        old, new = (statistics.median(each[1:]) for each in spent)
        paired = [b / a for a, b in zip(spent[0][1:], spent[1][1:], strict=True)]
        row = {
            "parties": parties, "neighbours": degree, "dimension": dimension,
            "x25519_s": round(old, 4), "hybrid_s": round(new, 4),
            "ratio_of_medians": round(new / old, 3),
            "median_of_ratios": round(statistics.median(paired), 3),
            "first_round_with_setup_s": [round(each[0], 3) for each in spent],
        }  # fmt: skip
        print(json.dumps(row, allow_nan=False), flush=True)


def message_bytes(cases: list[list[int]]) -> None:
    for parties, degree in cases:
        for exchange in MODES:
            masked = MaskedSum(given_run(parties, degree, exchange))
            vectors = np.zeros((parties, 100), dtype=np.uint32)
            masked.sum(vectors, round_number=1, dropped={})
            first, up = masked.last_wire, masked.setup.bytes_up
            masked.sum(vectors, round_number=2, dropped={})
            row = {
                "parties": parties, "neighbours": degree, "key_exchange": exchange.value,
                "setup_up": up // parties, "setup_down": masked.setup.bytes_down // parties,
                "first_round_up": first.bytes_up // parties,
                "first_round_down": first.bytes_down // parties,
                "later_round_up": masked.last_wire.bytes_up // parties,
                "later_round_down": masked.last_wire.bytes_down // parties,
            }  # fmt: skip
            print(json.dumps(row, allow_nan=False), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["setup", "rounds", "bytes"])
    parser.add_argument("--cases", nargs="*", default=["100,99"])
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    cases = [[int(n) for n in case.split(",")] for case in arguments.cases]
    if arguments.what == "bytes":
        message_bytes(cases)
    else:
        {"setup": setup, "rounds": rounds}[arguments.what](cases, arguments.repeats)


if __name__ == "__main__":
    main()
