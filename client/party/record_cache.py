"""`RecordCache`: a party's records for its rounds, read once, and again if a file has changed.

Rows of a database are read when a run inspects the data, and held until the run is over, because a
table may change between two rounds. A process may end, so `parley.client.party.round_contribution`
also compares the contents that a run was given, for every kind of source.

No ε rests on which records are returned. Their own digests (`LoadedDataset`) are compared with the
agreement, and these are charged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from parley.client.contract.agreement import Agreement
from parley.client.contract.refusals import Declined, Reason
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.dataset_loader import load_dataset
from parley.client.party.loaded_dataset import LoadedDataset
from parley.client.party.owner_policy import OwnerPolicy
from parley.client.party.run_validation import build_feature_map
from parley.privacy.ledger.block_composition import Blocks


@dataclass(eq=False, repr=False)
class RecordCache:
    """The last requested data set and those that runs hold, with the way each was read.

    `folder`, `secret` and open `sessions` are the party's.
    """

    policy: OwnerPolicy
    folder: Path
    secret: bytes
    sessions: Callable[[], Collection[str]]
    _loaded: dict[str, tuple[object, LoadedDataset]] = field(default_factory=dict, init=False)

    def load(
        self,
        name: str,
        label: str,
        intercept: bool,
        features: Mapping[str, Any],
        blocks: Blocks = (),
        session: str = "",
    ) -> LoadedDataset:
        """Return a data set by its name, label reading, intercept, public map and blocks.

        Args:
            session: the session that requests it; empty: one that is to come.

        Raises:
            Declined: data-unreadable, or another reason of `load_dataset`.
        """
        dataset, stamps = self.policy.get_dataset(name), self._read_file_stamps(name)
        map_request = {key: features[key] for key in ("name", "settings") if features}
        key = (name, label, intercept, json.dumps(map_request, allow_nan=False), blocks, stamps)
        holder = session if dataset.source else ""
        cached = self._loaded.get(holder)
        if cached and cached[0] == key and (holder or not dataset.source):
            return cached[1]
        inspected = self._loaded.get("") if holder else None
        open_now = set(self.sessions())
        # Free data that no run will request before reading more.
        self._loaded = {key: entry for key, entry in self._loaded.items() if key in open_now}
        if inspected and inspected[0] == key:
            data = inspected[1]
        else:
            fresh = self._read_dataset(dataset, label, intercept, features, blocks)
            if stamps != self._read_file_stamps(name):  # the file was digested, then read
                expected = "Expected files that do not change while they are read"
                raise Declined(Reason.DATA_UNREADABLE, f"{expected}. Start the run again.")
            # Runs with the same rows share them. The rows' blocks are not part of their contents,
            # so a data set with blocks is not shared.
            candidates = () if dataset.block_column else self._loaded.values()
            loaded = (entry for loaded_key, entry in candidates if loaded_key == key)
            data = next((entry for entry in loaded if entry.contents == fresh.contents), fresh)
        self._loaded |= {"": (key, data), holder: (key, data)}
        return data

    def _read_file_stamps(self, name: str) -> list[tuple[int, int]]:
        """Return modification times and sizes that change if a data set's files change."""
        dataset = self.policy.get_dataset(name)
        paths = (dataset.path, dataset.prepared, dataset.data_schema, dataset.app_data)
        files = [self.folder / path for path in paths]
        if dataset.app_data:  # it may be a folder
            files += sorted(files[-1].rglob("*"))
        return [(file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.is_file()]

    def _read_dataset(
        self,
        dataset: DatasetConfig,
        label: str,
        intercept: bool,
        features: Mapping[str, Any],
        blocks: Blocks,
    ) -> LoadedDataset:
        feature_map = build_feature_map(self.policy, dataset, features)
        try:
            return load_dataset(
                dataset,
                self.folder,
                label=label,
                intercept=intercept,
                features=feature_map,
                slowest_ms=self.policy.feature_ms_at_most,
                secret=self.secret,
                blocks=blocks,
            )
        except Declined:
            raise
        except Exception as error:
            # A bug, or an unusual file. Its kind and place could depend on a record, so neither is
            # reported.
            remedy = "`parley party DIR --check` shows what could not be read."
            raise Declined(Reason.DATA_UNREADABLE, remedy) from error

    def load_for_agreement(self, agreement: Agreement, held_out: bool) -> LoadedDataset:
        """Return the records that an agreement names: those of its data set, or its held-out ones.

        Held-out records are charged to the budget of the data set that holds them out, and are
        identified by it. The run is one on the records that this data set learns from.
        """
        reading = (agreement.label, agreement.intercept, agreement.features)
        blocks = agreement.plan.blocks
        data = self.load(agreement.dataset, *reading, blocks, agreement.session)
        if not held_out:
            return data
        dataset = self.policy.get_dataset(agreement.dataset)
        held_out_data = self._read_dataset(dataset.to_held_out(), *reading, blocks)
        return replace(held_out_data, contents=data.contents)
