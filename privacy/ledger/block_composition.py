"""The spending of an account per block: parallel composition.

A public column divides the records into blocks, and a release names the blocks that it reads. It
depends on no other records. So a record of block b has spent

    spent(b) = all releases on all records + those that read b,

and the account has spent the largest of these. docs/privacy.md, section 15, has the proof and the
units and relations it covers. A release that names no block reads all records, including those of
future blocks.

    >>> from parley.privacy.accounting.privacy_events import Pure
    >>> day = Pure(epsilon=0.1)
    >>> spent = SpentByBlock().add(day, ("2023",), count=4).add(day, ())
    >>> {block: each.releases for block, each in spent.get_compositions(("2023", "2024")).items()}
    {'2023': 5, '2024': 1}
    >>> spent.find_largest(lambda each: each.compute_lowest_epsilon(0.0)[1]).releases
    5
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import PrivacyEvent

Blocks: TypeAlias = tuple[str, ...]
"""Sorted, distinct names of blocks; empty: all records."""

MAX_BLOCKS: Final = 64
"""Maximum number of blocks that one job names; a message may list this many texts."""

OTHER_BLOCKS: Final = ""
"""Stands for every block that no release named."""

_MAX_NAME_LENGTH = 100


def parse_blocks(names: Iterable[str]) -> Blocks:
    """Return the blocks with these names.

    Raises:
        ValueError: there are too many, one occurs twice, or one is no valid name.
    """
    blocks = tuple(sorted(names))
    if len(blocks) > MAX_BLOCKS:
        raise ValueError(
            f"Expected at most {MAX_BLOCKS} named blocks, got {len(blocks)}. A job that names no "
            "blocks reads and charges all."
        )
    for at, name in enumerate(blocks):
        if not 1 <= len(name) <= _MAX_NAME_LENGTH or not name.isprintable():
            raise ValueError(
                f"Expected block names of 1 to {_MAX_NAME_LENGTH} characters, got "
                f"{name[:_MAX_NAME_LENGTH]!r}."
            )
        if name in blocks[:at]:
            raise ValueError(f"Expected each block once, got {name!r} twice.")
    return blocks


def compute_block_number(name: str) -> int:
    """Return the number that identifies a block in rows: 8 bytes of its name's digest, never 0."""
    return int.from_bytes(sha256(name.encode()).digest()[:8], "little") or 1


@dataclass(frozen=True, kw_only=True)
class SpentByBlock:
    """Releases, by the records that they read.

    Attributes:
        everywhere: the releases on all records.
        blocks: for each block that a release named: those releases plus the block's own.
    """

    everywhere: Composition = field(default_factory=Composition)
    blocks: Mapping[str, Composition] = field(default_factory=lambda: MappingProxyType({}))

    def get_compositions(self, blocks: Blocks) -> dict[str, Composition]:
        """Return what the records of these blocks have spent.

        Without blocks, return it for all of them, including `OTHER_BLOCKS`.
        """
        names = blocks or (*self.blocks, OTHER_BLOCKS)
        return {name: self.blocks.get(name, self.everywhere) for name in names}

    def find_largest(
        self, epsilon_of: Callable[[Composition], float], blocks: Blocks = ()
    ) -> Composition:
        """Return the composition of the block that spent most, by the account's ε."""
        return max(
            dict.fromkeys(self.get_compositions(blocks).values()),
            key=lambda each: (epsilon_of(each), each.releases),
        )

    def add(self, event: PrivacyEvent, blocks: Blocks, count: int = 1) -> SpentByBlock:
        """Return the state after more releases on these blocks."""
        before = self.get_compositions(blocks)
        return self._replace_blocks({name: each.add(event, count) for name, each in before.items()})

    def remove(self, event: PrivacyEvent, blocks: Blocks) -> SpentByBlock:
        """Return the state after one of these releases was voided."""
        before = self.get_compositions(blocks)
        return self._replace_blocks({name: each.remove(event) for name, each in before.items()})

    def _replace_blocks(self, changed: dict[str, Composition]) -> SpentByBlock:
        everywhere = changed.pop(OTHER_BLOCKS, self.everywhere)
        # A block that has spent the same as all others needs no entry.
        own = sorted({**self.blocks, **changed}.items())
        kept = {name: each for name, each in own if each != everywhere}
        return replace(self, everywhere=everywhere, blocks=MappingProxyType(kept))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, which `from_json` reads back unchanged."""
        blocks = {name: each.to_json() for name, each in self.blocks.items()}
        return {"everywhere": self.everywhere.to_json(), "blocks": blocks}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Parse the result of `to_json`; raise ValueError, KeyError or TypeError otherwise."""
        blocks = {name: Composition.from_json(each) for name, each in value["blocks"].items()}
        everywhere = Composition.from_json(value["everywhere"])
        return cls(everywhere=everywhere, blocks=MappingProxyType(blocks))
