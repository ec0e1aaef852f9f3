"""The log of a ledger: an append-only chain of records, each hashed with the one before it.

    hash_i = SHA-256(canonical JSON of record i's content and hash_{i−1}),  hash_0 = 64 zeros

An edited, removed, inserted or moved record breaks the chain at its position. The head (the number
of records and the last hash) shows if the end was cut off. An attacker who can rewrite the whole
ledger can build another chain that is consistent. To detect that too, keep a `ChainHead` elsewhere
and pass it to `Ledger.verify`.

    >>> encode_canonical_json({"b": 0.5, "a": "ε"})
    '{"a":"\\\\u03b5","b":0.5}'
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.budget import BudgetKey

GENESIS = "0" * 64


class RecordKind(StrEnum):
    """The kind of step that a record describes."""

    REGISTER = "register"
    RESERVE = "reserve"
    COMMIT = "commit"
    VOID = "void"
    HOLD = "hold"
    RECOGNISE = "recognise"
    RAISE = "raise"
    DECIDE = "decide"


@dataclass(frozen=True, kw_only=True)
class ChainHead:
    """The end of a chain: the number of `records`, and the hash of the last."""

    records: int
    hash: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class LedgerRecord:
    """One row of the log.

    Attributes:
        run_id: `None` for a registration; so are the two below.
        reservation: the position of the reservation concerned (of this record, if it is one).
        body: canonical JSON of everything else.
    """

    position: int
    kind: str
    dataset: str
    unit: str
    run_id: str | None
    index: int | None
    reservation: int | None
    body: str
    hash: str

    def is_successor_of(self, head: ChainHead) -> bool:
        """Return whether this is the unchanged record after `head`."""
        content = {name: value for name, value in vars(self).items() if name != "hash"}
        try:
            sound = self.hash == _hash_record(content, head.hash)
        except (TypeError, ValueError):  # A database may hold any type in an edited row.
            return False
        return sound and self.position == head.records + 1

    @property
    def key(self) -> BudgetKey:
        """The budget that the record is about; ValueError if there is none."""
        return BudgetKey(self.dataset, Unit(self.unit))

    def parse_body(self) -> dict[str, Any]:
        """Return the parsed body."""
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


def build_record(
    head: ChainHead, kind: RecordKind, key: BudgetKey, body: Mapping[str, Any], **named: Any
) -> LedgerRecord:
    """Return the record after `head`; a new reservation gets its own position as id.

    Args:
        named: `run_id`, `index` and `reservation`, if the record has them.
    """
    position = head.records + 1
    content: dict[str, Any] = {
        "position": position,
        "kind": str(kind),
        "dataset": key.dataset,
        "unit": str(key.unit),
        "run_id": None,
        "index": None,
        "reservation": position if kind is RecordKind.RESERVE else None,
        "body": encode_canonical_json(body),
        **named,
    }
    return LedgerRecord(**content, hash=_hash_record(content, head.hash))


def _hash_record(content: Mapping[str, Any], previous: str) -> str:
    text = encode_canonical_json({**content, "previous": previous})
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def format_now() -> str:
    """Return the time in UTC, to the millisecond, in the format of records."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def encode_canonical_json(value: object) -> str:
    """Return the unique JSON text of a value: sorted keys, no spaces, ASCII, no NaN or infinity."""
    return _CANONICAL.encode(value)


def check_json(value: object, where: str) -> None:
    """Check that JSON preserves a value unchanged.

    Raises:
        ValueError: a number is not finite, a key is not text, or a type is none of JSON's.
    """
    if value is None or isinstance(value, (str, int)):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"Expected a finite number for {where}, got {value}.")
    elif isinstance(value, list):
        for position, item in enumerate(value):
            check_json(item, f"{where}[{position}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"Expected text as a key in {where}, got {key!r}.")
            check_json(item, f"{where}.{key}")
    else:
        raise ValueError(f"Expected a JSON value for {where}, got {type(value).__name__}.")
