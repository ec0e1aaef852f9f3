"""A party's records as rounds ask for them: read once, and again when a file has changed.

Rows of a database are read when a run asks what there is, and held for it until it is over: a
table may change between two rounds. (What a run was given is compared besides, whatever it was read
from, since a process may end: `parley.client.party.round_contribution`.)

No ε rests on which records are handed out: what they are, they say themselves (`Holding`); that is
held against the agreement, and is what is charged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from parley.client.contract.agreement import Agreement
from parley.client.contract.party_protocol import Declined, Reason
from parley.client.party.dataset_config import DataSet
from parley.client.party.dataset_loader import Holding, load_holding
from parley.client.party.owner_policy import Consent
from parley.client.party.run_validation import map_of
from parley.privacy.ledger.block_composition import Blocks


class KeptRecords:
    """The data set that was asked for last, and those that runs hold; how each was read."""

    def __init__(
        self,
        consent: Consent,
        folder: Path,
        *,
        secret: bytes,
        sessions: Callable[[], Collection[str]],
    ) -> None:
        """Nothing is read yet; `folder`, `secret` and open `sessions` are the party's."""
        self._consent, self._folder, self._secret = consent, folder, secret
        self._sessions = sessions
        self._loaded: dict[str, tuple[object, Holding]] = {}

    def of(
        self,
        name: str,
        label: str,
        intercept: bool,
        features: Mapping[str, Any],
        blocks: Blocks = (),
        session: str = "",
    ) -> Holding:
        """A data set by its name, how its label is read, intercept, public map, and blocks.

        Args:
            session: that asks; empty: one that is to come.
        """
        dataset, stamps = self._consent.dataset(name), self._stamps(name)
        named = {key: features[key] for key in ("name", "settings") if features}
        key = (name, label, intercept, json.dumps(named, allow_nan=False), blocks, stamps)
        whose = session if dataset.source else ""
        known = self._loaded.get(whose)
        if known and known[0] == key and (whose or not dataset.source):
            return known[1]
        asked = self._loaded.get("") if whose else None
        open_now = set(self._sessions())
        # What no run will ask for is let go of before more is read.
        self._loaded = {each: own for each, own in self._loaded.items() if each in open_now}
        if asked and asked[0] == key:
            found = asked[1]
        else:
            read = self._read(dataset, label, intercept, features, blocks)
            if stamps != self._stamps(name):  # the file was digested, then read
                raise Declined(
                    Reason.DATA_UNREADABLE, "Expected files that stay while they are read."
                )
            # Runs that were given the same rows hold them once. In which blocks they are is no part
            # of their contents.
            same = () if dataset.block_column else self._loaded.values()
            held = (own for its, own in same if its == key)
            found = next((own for own in held if own.contents == read.contents), read)
        self._loaded |= {"": (key, found), whose: (key, found)}
        return found

    def _stamps(self, name: str) -> list[tuple[int, int]]:
        """What tells that a data set's files are others than before."""
        dataset = self._consent.dataset(name)
        parts = (dataset.path, dataset.prepared, dataset.data_schema)
        files = [self._folder / part for part in parts]
        return [(f.stat().st_mtime_ns, f.stat().st_size) for f in files if f.is_file()]

    def _read(
        self,
        dataset: DataSet,
        label: str,
        intercept: bool,
        features: Mapping[str, Any],
        blocks: Blocks,
    ) -> Holding:
        made = map_of(self._consent, dataset, features)
        try:
            return load_holding(
                dataset,
                self._folder,
                label=label,
                intercept=intercept,
                features=made,
                slowest_ms=self._consent.feature_ms_at_most,
                secret=self._secret,
                blocks=blocks,
            )
        except Declined:
            raise
        except Exception as error:
            # A bug, or a file like no other. What it is, and where, could depend on a record.
            raise Declined(
                Reason.DATA_UNREADABLE, "`parley party DIR --check` says what could not be read."
            ) from error

    def of_agreement(self, agreed: Agreement, held_out: bool) -> Holding:
        """The records that an agreement names: those of its data set, or those that it holds out.

        Held-out records are charged to the budget of the data set that holds them out, and known
        by it; the run is one of the records that it learns from.
        """
        named, blocks = (agreed.label, agreed.intercept, agreed.features), agreed.plan.blocks
        holding = self.of(agreed.dataset, *named, blocks, agreed.session)
        if not held_out:
            return holding
        dataset = self._consent.dataset(agreed.dataset)
        own = self._read(dataset.of_held_out(), *named, blocks)
        return replace(own, contents=holding.contents)
