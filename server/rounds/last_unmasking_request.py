"""Remember over whose contributions the server last asked to unmask a release's sum.

Parties unmask a release in one sum only, because two sums over different parties would reveal the
contributions of a few (`parley.client.party.unmasking_log`). If the server is killed before it
commits the release, it has to ask for the sum of the same parties again, even if others have come
back since.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from parley.client.contract.release_plan import ReleasePlan
from parley.safe_io.file_reading import read_text
from parley.safe_io.file_writing import write_file
from parley.safe_io.json_writing import format_json


@dataclass(frozen=True)
class RequestedSum:
    """A file of the run folder, with the last requested sum."""

    path: Path

    def save(self, plan: ReleasePlan, parties: Collection[int]) -> None:
        """Save the parties whose sum is about to be unmasked."""
        kept = {"round": plan.round_number, "step": plan.step, "parties": sorted(parties)}
        write_file(self.path, format_json(kept) + "\n", durable=True)

    def load(self, plan: ReleasePlan) -> frozenset[int]:
        """Return the parties of the release's requested sum; empty if there is none."""
        try:
            kept = json.loads(read_text(self.path))
        except (FileNotFoundError, ValueError):
            return frozenset()
        if not isinstance(kept, dict):
            return frozenset()
        if (kept.get("round"), kept.get("step")) != (plan.round_number, plan.step):
            return frozenset()
        return frozenset(kept.get("parties", ()))
