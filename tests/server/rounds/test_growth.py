"""What a server and its parties keep in memory of each round of a long run."""

import functools
import gc
import sys
import weakref

from in_process import InProcessTransport
from scenes import Scene

from parley.client.party.party_service import PartyService

FIRST, LAST = 20, 70
MAX_KEPT = 15
"""Objects per round that a server and three parties may keep.

A line of `rounds.jsonl` has 20, an entry in each of the three parties' ledgers 45 in total.
"""


class OpenServices(InProcessTransport):
    """Parties that stay open between requests, as real ones do."""

    def __init__(self, folders):
        super().__init__(folders)
        self._services = [PartyService.open(folder) for folder in folders]

    def exchange(self, requests, **_):
        for index, request in requests.items():
            yield index, self._services[index].handle(request)


def clear_caches():
    """Empty Parley's caches of calls. They are bounded, but not full after a few rounds."""
    for name, module in list(sys.modules.items()):
        if name.startswith("parley."):
            for found in vars(module).values():
                if isinstance(found, functools._lru_cache_wrapper):
                    found.cache_clear()


class ObjectCounter:
    """Observer that counts the objects in memory after some rounds."""

    def __init__(self):
        self.counts = {}

    def started(self, *_):
        """Nothing to count yet."""

    def round_done(self, line):
        if line.round in (FIRST, LAST):
            clear_caches()
            gc.collect()
            # `sqlite3` drops its references to dead cursors only after every 200 cursors.
            dead = [ref for ref in gc.get_objects() if type(ref) is weakref.ref and ref() is None]
            self.counts[line.round] = sys.getallocatedblocks() - len(dead)


def test_a_round_leaves_nothing_in_memory_of_server_and_parties(tmp_path):
    overrides = ("parties.count=3", f"algorithm.rounds={LAST}")
    scene, counter = Scene(tmp_path, overrides), ObjectCounter()
    assert scene.run(transport=OpenServices(scene.homes), observer=counter).rounds_done == LAST
    kept = (counter.counts[LAST] - counter.counts[FIRST]) / (LAST - FIRST)
    assert kept < MAX_KEPT
