"""Compare whole secure-aggregation rounds: Parley and Flower 1.41's own SecAgg+ workflow.

    python benchmarks/secure_agg.py rounds --cases 100,100000,20,0 100,100000,99,10
    python benchmarks/secure_agg.py masks
    python benchmarks/secure_agg.py bytes
    python benchmarks/secure_agg.py memory

A case is parties, dimension, neighbours, parties dropped before their vector. All parties and the
server run in one process on one core, and the two systems take turns; seconds are process CPU time.
Parley runs in robust mode with the active-server checks. Every party does all its own work
(`shared=False`), in steady state (after the run's key agreement). Encoding from floats is included,
as Flower's quantisation is. Flower's messages stay objects in memory; Parley's are encoded and
decoded as bytes.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import math
import os
import sys
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters
from flwr.common.secure_aggregation.secaggplus_constants import (
    RECORD_KEY_CONFIGS,
    Key,
    Stage,
)
from flwr.common.serde import message_to_proto
from flwr.compat.common import recorddict_compat as compat
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.server.workflow.secure_aggregation.secaggplus_workflow import SecAggPlusWorkflow
from flwr.supercore.task_identity import TaskIdentity

# Otherwise this script's folder would come first, and its name would hide the package.
sys.path[0] = str(Path(__file__).resolve().parent.parent)
sys.path.append(str(Path(__file__).resolve().parent))

from parley.secure_agg.grid_selection import choose_grid
from parley.secure_agg.ideal_sum import build_simulated_parameters, with_simulated_beacon
from parley.secure_agg.in_process_protocol import MaskedSum
from parley.secure_agg.interface import DropStage
from parley.secure_agg.mask_expansion import PIECE_BYTES, add_masks, allocate_aligned
from parley.secure_agg.mask_graph import NO_BEACON
from parley.secure_agg.party_masking import MaskJob
from parley.secure_agg.predicted_outcome import HEADER_BYTES
from parley.secure_agg.primitives import _build_counter_stream, _build_gcm_stream
from parley.secure_agg.protocol_parameters import (
    DerivedParameters,
    RunParameters,
    derive_parameters,
)

KINDS = (
    "", "advertise", "roster", "shares", "plan", "vector", "survivors", "confirm",
    "confirmations", "reveal", "nonces", "encapsulated", "ciphertexts",
)  # fmt: skip


class Proxy:
    """A party's node id."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id


class Everyone:
    """The minimal strategy and client manager that the workflow requires."""

    def __init__(self, node_ids: Iterable[int], dimension: int) -> None:
        self.proxies = [Proxy(i) for i in node_ids]
        self.results: list = []
        self.empty = ndarrays_to_parameters([np.zeros(1, dtype=np.float32)])

    def configure_fit(self, current_round: int, parameters, manager) -> list:
        """Select every party."""
        return [(proxy, FitIns(self.empty, {})) for proxy in self.proxies]

    def aggregate_fit(self, current_round: int, results, failures) -> tuple:
        """Store the results."""
        self.results = results
        return None, {}

    def num_available(self) -> int:
        """Return the number of parties."""
        return len(self.proxies)


class InProcessGrid:
    """Passes every message to Flower's own client mod, with that party's context."""

    def __init__(self, vectors: np.ndarray, dropped: set[int], count_bytes: bool = False) -> None:
        self.vectors, self.dropped = vectors, dropped
        self.contexts = {i: Context(1, i, {}, RecordDict(), {}) for i in range(1, len(vectors) + 1)}
        self.bytes = defaultdict(int) if count_bytes else None

    def send_and_receive(self, messages: Iterable[Message], timeout: float | None = None) -> list:
        """Return the replies of all parties."""
        return [self._answer(message) for message in messages]

    def _answer(self, message: Message) -> Message:
        node_id = message.metadata.dst_node_id
        configs = message.content.config_records[RECORD_KEY_CONFIGS]
        stage = configs[Key.STAGE]
        if stage == Stage.COLLECT_MASKED_VECTORS and node_id in self.dropped:
            return Message(Error(1, "dropped"), reply_to=message)
        if self.bytes is not None:
            self.bytes[stage, "down"] += message_to_proto(message).ByteSize()

        def train(msg: Message, context: Context) -> Message:
            result = FitRes(
                Status(Code.OK, ""), ndarrays_to_parameters([self.vectors[node_id - 1]]), 1, {}
            )
            return Message(compat.fitres_to_recorddict(result, False), reply_to=msg)

        # All parties share one set-up message object, and the mod removes entries from it.
        message.content = RecordDict(dict(message.content))
        message.content.config_records[RECORD_KEY_CONFIGS] = ConfigRecord(dict(configs))
        answer = secaggplus_mod(message, self.contexts[node_id], train)
        if self.bytes is not None:
            self.bytes[stage, "up"] += message_to_proto(answer).ByteSize()
        return answer


def flower_round(vectors: np.ndarray, degree: int, threshold: int, grid: InProcessGrid) -> None:
    parties, dimension = vectors.shape
    everyone = Everyone(range(1, parties + 1), dimension)
    state = RecordDict()
    state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
    state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(
        everyone.empty, keep_input=True
    )
    context = LegacyContext(
        Context(1, 0, {}, state, {}), strategy=everyone, client_manager=everyone
    )
    workflow = SecAggPlusWorkflow(
        num_shares=degree + 1,  # Flower counts the party itself among its neighbours
        reconstruction_threshold=threshold,
        max_weight=1.0,
        clipping_range=1.0,
        quantization_range=1 << (31 - math.ceil(math.log2(parties))),
    )
    workflow(grid, context)
    if not everyone.results:
        raise RuntimeError("Flower's workflow did not complete.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GivenGraph(RunParameters):
    """Parameters with a given degree, for a comparison. Real parties derive theirs and accept no
    other.
    """

    given: int

    @cached_property
    def derived(self) -> DerivedParameters:
        """The derived parameters, except for the graph."""
        chosen = derive_parameters(self.parties, corrupt=self.corrupt, dropped=self.dropped)
        return dataclasses.replace(chosen, degree=self.given, threshold=self.given // 2 + 1)


def run_with_degree(parties: int, degree: int) -> RunParameters:
    """Return the parameters of a run on a graph of a given degree."""
    least = parties // 2 + 1
    run = build_simulated_parameters(parties=parties, min_survivors=least, corrupt=0).without_beacon
    fields = {f.name: getattr(run, f.name) for f in dataclasses.fields(run)}
    fields |= {"commitments": NO_BEACON, "given": degree}
    return with_simulated_beacon(GivenGraph(**fields))


def our_sum(parties: int, degree: int, **options: object) -> MaskedSum:
    return MaskedSum(run_with_degree(parties, degree), **options)


def cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def rounds(cases: list[tuple[int, int, int, int]], repeats: int, with_flower: bool) -> list[dict]:
    rows = []
    for parties, dimension, degree, lost in cases:
        rng = np.random.default_rng(0)
        vectors = rng.uniform(-1, 1, (parties, dimension)).astype(np.float32)
        grid = choose_grid(
            bound=1.0,
            parties=parties,
            dimension=dimension,
            noise_tail=lambda s: 0.0,
            sensitivity=None,
        )
        chosen = {int(i): DropStage.BEFORE_VECTOR for i in rng.permutation(parties)[:lost]}
        sums = {shared: our_sum(parties, degree, shared=shared) for shared in (False, True)}
        threshold = sums[False].parameters.threshold
        numbers = dict.fromkeys(sums, 0)

        def ours(shared: bool, grid=grid, sums=sums, numbers=numbers, x=vectors, lost=chosen):
            numbers[shared] += 1
            encoded = grid.encode(x)
            sums[shared].sum(encoded, round_number=numbers[shared], dropped=lost)

        setup = cpu(lambda: ours(False))
        ours(True)
        flower, separate, together = [], [], []
        for _ in range(repeats):
            if with_flower:
                wire = InProcessGrid(vectors, {i + 1 for i in chosen})
                flower.append(cpu(partial(flower_round, vectors, degree, threshold, wire)))
            for _ in range(3):
                separate.append(cpu(lambda: ours(False)))
                together.append(cpu(lambda: ours(True)))
        row = {
            "parties": parties,
            "dimension": dimension,
            "neighbours": degree,
            "dropped": lost,
            "threshold": threshold,
            "ours_s": round(float(np.median(separate)), 3),
            "ours_shared_s": round(float(np.median(together)), 3),
            "first_round_s": round(setup, 3),
        }
        if flower:
            row["flower_s"] = round(min(flower), 2)
            row["ratio"] = round(min(flower) / float(np.median(separate)), 1)
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def masks() -> None:
    """Time mask addition, in ns per parameter and neighbour, against only the keystream.

    The keystream is the library's best AES-256-CTR, by GCM over zeros or by counter mode. It fills
    one buffer that stays in the cache, in pieces as long as a mask's. It is timed once with keys
    that are set up (only the cipher), and once with as many new keys as a mask has, each set up in
    the same way.
    """
    zeros, target = memoryview(bytes(PIECE_BYTES)), allocate_aligned(PIECE_BYTES + 16).data
    for dimension, degree in ((10**6, 20), (10**5, 20), (10**4, 20), (10**6, 99)):
        vector = MaskJob(bytes(HEADER_BYTES), np.zeros(dimension, dtype=np.uint32)).words
        keys = [os.urandom(32) for _ in range(degree)]
        left, sizes = vector.nbytes, []
        while left:
            sizes.append(min(left, PIECE_BYTES))
            left -= sizes[-1]

        def stream(made: list, sizes: list[int] = sizes) -> None:
            for number, size in enumerate(sizes):
                nonce = number.to_bytes(12, "big")
                for expand in made:
                    expand(nonce, zeros[:size], target[: size + 16])

        repeats = max(1, 10**7 // (dimension * degree))
        calls = (_build_gcm_stream, _build_counter_stream)
        work: dict[str, list[Callable[[], object]]] = {
            "masked": [partial(add_masks, vector, keys[::2], keys[1::2])],
            "cipher": [partial(stream, [call(key) for key in keys]) for call in calls],
            "keyed": [lambda c=c, s=stream, k=keys: s([c(key) for key in k]) for c in calls],
        }
        best = dict.fromkeys(work, math.inf)
        for _ in range(25):  # in turn, so that other load affects all of them
            for name, ways in work.items():
                for way in ways:
                    spent = cpu(lambda w=way, r=repeats: [w() for _ in range(r)])
                    best[name] = min(best[name], spent * 1e9 / (repeats * dimension * degree))
        masked, cipher, keyed = best.values()
        print(
            f"d={dimension} k={degree}: {masked:.3f} ns per parameter and neighbour; keystream "
            f"{4 / cipher:.1f} GB/s = {cipher:.3f} ns, {100 * cipher / masked:.0f}% of it; with "
            f"its keys set up {keyed:.3f} ns, {100 * keyed / masked:.0f}% of it"
        )


def message_bytes(parties: int = 100, dimension: int = 100_000, degree: int = 20) -> None:
    """Print the bytes per party and stage, for Parley and Flower, without a dropout."""
    vectors = np.zeros((parties, dimension), dtype=np.float32)
    masked = our_sum(parties, degree)
    masked.sum(vectors.astype(np.uint32), round_number=1, dropped={})
    wire = masked.last_traffic
    print(
        "ours, set-up:", {KINDS[k]: n // parties for k, n in masked.setup_traffic.by_kind.items()}
    )
    print("ours, a round:", {KINDS[k]: n // parties for k, n in wire.by_kind.items()})
    grid = InProcessGrid(vectors, set(), count_bytes=True)
    flower_round(vectors, degree, masked.parameters.threshold, grid)
    stages = {f"{stage} {way}": n // parties for (stage, way), n in grid.bytes.items()}
    print("Flower, a round:", stages)


def memory(dimension: int = 10**7) -> None:
    """Print the peak of traced memory in one round of three parties and the server, in vectors."""
    vectors = np.zeros((3, dimension), dtype=np.uint32)
    masked = our_sum(3, 2, shared_bytes=0)
    masked.sum(vectors[:, :1].copy(), round_number=1, dropped={})
    tracemalloc.start()
    masked.sum(vectors, round_number=2, dropped={})
    peak = tracemalloc.get_traced_memory()[1]
    print(f"d={dimension}: {peak / vectors[0].nbytes:.2f} vectors besides the three inputs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["rounds", "masks", "bytes", "memory"])
    parser.add_argument("--cases", nargs="*", default=["100,100000,20,0"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--without-flower", action="store_true")
    arguments = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.task_id = TaskIdentity.run_id = 1
    TaskIdentity.node_id = 0
    if arguments.what == "rounds":
        cases = [tuple(int(n) for n in case.split(",")) for case in arguments.cases]
        rounds(cases, arguments.repeats, not arguments.without_flower)
    else:
        {"masks": masks, "bytes": message_bytes, "memory": memory}[arguments.what]()


if __name__ == "__main__":
    main()
