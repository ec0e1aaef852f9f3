"""What the parties of a run agree on before any key, and what a party insists on for itself."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from secure_agg.encoding import ring_dtype
from secure_agg.graph import LARGEST_DEGREE, choose_degree, neighbour_table, security_failure
from secure_agg.interface import Mode, RemoteProtocolError
from secure_agg.primitives import digest

__all__ = ["Policy", "RunParameters"]

_LAYOUT = struct.Struct(">B16s32sIHHIIBBB")
_VERSION = 1
_MODES = {Mode.ROBUST: 0, Mode.OPTIMISTIC: 1}
_SECURITY_BITS = 40


@dataclass(frozen=True, kw_only=True)
class RunParameters:
    """Parameters of one run; every party signs them together with its key.

    Attributes:
        run_id: 16 bytes, new for every run.
        beacon: 32 bytes of public randomness for the graph, fixed before the keys.
        parties: m.
        degree: k, neighbours of a party.
        threshold: t, shares that rebuild a secret, and confirmations a party asks for.
        minimum_survivors: least number of vectors in a sum that is unmasked.
        corrupt: c, parties assumed to collude with the server.
        ring_bits: b.
        mode: robust or optimistic.
        active: survivors' lists are confirmed among the parties (a third stage).

    Raises:
        ValueError: out of range, or (robust) below the security bound of `graph`, with numbers.
    """

    run_id: bytes = field(repr=False)
    beacon: bytes = field(repr=False)
    parties: int
    degree: int
    threshold: int
    minimum_survivors: int
    corrupt: int
    ring_bits: int = 32
    mode: Mode = Mode.ROBUST
    active: bool = True

    def __post_init__(self) -> None:
        ring_dtype(self.ring_bits)
        if len(self.run_id) != 16 or len(self.beacon) != 32:
            raise ValueError(
                "Expected a run_id of 16 bytes and a beacon of 32, "
                f"got {len(self.run_id)} and {len(self.beacon)}."
            )
        m, k, t, c = self.parties, self.degree, self.threshold, self.corrupt
        if not 1 <= m <= 2**20:
            raise ValueError(f"Expected parties from 1 to 2^20, got {m}.")
        if not 0 <= k <= min(m - 1, LARGEST_DEGREE) or m * k % 2 or (k == 0 and m > 1):
            raise ValueError(
                f"Expected a degree from 1 to {min(m - 1, LARGEST_DEGREE)} with m·k even, got {k}."
            )
        if not min(1, k) <= t <= k:
            raise ValueError(f"Expected a threshold from 1 to the degree {k}, got {t}.")
        if not 0 <= c < m:
            raise ValueError(f"Expected corrupt from 0 to m - 1 = {m - 1}, got {c}.")
        if not 1 <= self.minimum_survivors <= m:
            raise ValueError(
                f"Expected minimum_survivors from 1 to m = {m}, got {self.minimum_survivors}."
            )
        if self.mode is Mode.OPTIMISTIC or m == 1:
            return
        failure = security_failure(m, k, t, c, self.active)
        if failure > 2.0**-_SECURITY_BITS:
            raise ValueError(
                f"Expected a threshold whose failure bound is <= 2^-{_SECURITY_BITS}, got "
                f"{failure:.3g} (threshold {t}, degree {k}, parties {m}, corrupt {c}, "
                f"active {self.active})."
            )
        if self.active and 2 * self.minimum_survivors <= m + c:
            raise ValueError(
                f"Expected minimum_survivors > (m + corrupt)/2 = {(m + c) / 2:g}, got "
                f"{self.minimum_survivors}: two disjoint lists could both be accepted."
            )

    @classmethod
    def choose(
        cls,
        *,
        parties: int,
        minimum_survivors: int,
        run_id: bytes,
        beacon: bytes,
        ring_bits: int = 32,
        mode: Mode = Mode.ROBUST,
        active: bool = True,
        corrupt: int | None = None,
        dropped: int | None = None,
        degree: int | None = None,
        threshold: int | None = None,
    ) -> RunParameters:
        """Fill in what is not given from the bounds of `graph`.

        Args:
            parties: m.
            minimum_survivors: asked for; raised to the least number that an active server cannot
                turn into two disjoint lists, ⌊(m + c)/2⌋ + 1.
            run_id: 16 bytes.
            beacon: 32 bytes.
            ring_bits: b.
            mode: robust or optimistic.
            active: with the survivors' confirmation.
            corrupt: c; None: 10% of the parties (0 below ten).
            dropped: that the degree must bear; None: 10% of the parties.
            degree: k; None: chosen. When given, the threshold is the least secure one.
            threshold: t; None: chosen.

        Raises:
            ValueError: no such parameters, or outside their ranges.
        """
        colluding = parties // 10 if corrupt is None else corrupt
        silent = parties // 10 if dropped is None else dropped
        if parties == 1:
            k, t = 0, 0
        elif degree is None:
            k, t = choose_degree(parties, corrupt=colluding, dropped=silent, active=active)
        else:
            k, t = degree, degree
            if 0 < degree < parties:  # anything else is refused with its numbers below
                t = next(
                    t
                    for t in range(degree // 2 + 1, degree + 1)
                    if t == degree
                    or security_failure(parties, degree, t, colluding, active)
                    <= 2.0**-_SECURITY_BITS
                )
        least = minimum_survivors
        if mode is Mode.ROBUST and active and parties > 1:
            least = max(least, (parties + colluding) // 2 + 1)
        return cls(
            run_id=run_id,
            beacon=beacon,
            parties=parties,
            degree=k,
            threshold=t if threshold is None else threshold,
            minimum_survivors=least,
            corrupt=colluding,
            ring_bits=ring_bits,
            mode=mode,
            active=active,
        )

    @property
    def neighbours(self) -> NDArray[np.int64]:
        """`[m, k]` neighbours of every party, ascending."""
        return neighbour_table(self.parties, self.degree, self.beacon)

    @property
    def stages(self) -> int:
        """Sequential exchanges of one round after set-up: 1, 2 or 3."""
        if self.mode is Mode.OPTIMISTIC:
            return 1
        return 3 if self.active else 2

    def to_bytes(self) -> bytes:
        """The canonical encoding; `fingerprint` is over it."""
        return _LAYOUT.pack(
            _VERSION, self.run_id, self.beacon, self.parties, self.degree, self.threshold,
            self.minimum_survivors, self.corrupt, self.ring_bits, _MODES[self.mode], self.active,
        )  # fmt: skip

    @classmethod
    def from_bytes(cls, data: bytes) -> RunParameters:
        """The inverse of `to_bytes`.

        Raises:
            RemoteProtocolError: not such an encoding.
        """
        if len(data) != _LAYOUT.size:
            raise RemoteProtocolError(f"Expected {_LAYOUT.size} bytes, got {len(data)}.")
        version, run_id, beacon, m, k, t, least, c, bits, mode, active = _LAYOUT.unpack(data)
        if version != _VERSION or mode > 1 or active > 1:
            raise RemoteProtocolError(
                f"Expected version 1, mode 0 or 1, active 0 or 1, got {version}, {mode}, {active}."
            )
        try:
            return cls(
                run_id=run_id, beacon=beacon, parties=m, degree=k, threshold=t,
                minimum_survivors=least, corrupt=c, ring_bits=bits, active=bool(active),
                mode=Mode.OPTIMISTIC if mode else Mode.ROBUST,
            )  # fmt: skip
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from error

    @cached_property
    def fingerprint(self) -> bytes:
        """32 bytes that a party signs, and that every secret of the run is bound to."""
        return digest(b"parley/parameters", self.to_bytes())


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a party asks of any run, whatever the server says.

    Attributes:
        identities: Ed25519 public keys of all parties of the roster, by index, known from outside
            the protocol; never learned from the server.
        minimum_survivors: least number of vectors in a sum that it helps to unmask.
        minimum_degree: least number of neighbours.
        minimum_threshold: least threshold.
        corrupt: colluding parties it wants to be safe against.
        active: insists on the survivors' confirmation (which optimistic rounds do not have).
        beacon: the public randomness it knows; None: takes the run's.
    """

    identities: tuple[bytes, ...]
    minimum_survivors: int
    minimum_degree: int = 1
    minimum_threshold: int = 1
    corrupt: int = 0
    active: bool = True
    beacon: bytes | None = None

    def __post_init__(self) -> None:
        if len(set(self.identities)) != len(self.identities):
            raise ValueError(
                f"Expected {len(self.identities)} different identities, "
                f"got {len(set(self.identities))}."
            )
        if any(len(identity) != 32 for identity in self.identities):
            raise ValueError("Expected identities of 32 bytes.")

    def check(self, run: RunParameters) -> None:
        """Accept a run's parameters or refuse them.

        Raises:
            RemoteProtocolError: a parameter weaker than this policy, with both numbers.
        """
        if run.parties != len(self.identities):
            raise RemoteProtocolError(
                f"Expected {len(self.identities)} parties, got {run.parties}."
            )
        for name, least, got in (
            ("minimum_survivors", self.minimum_survivors, run.minimum_survivors),
            ("degree", self.minimum_degree, run.degree),
            ("threshold", self.minimum_threshold, run.threshold),
            ("corrupt", self.corrupt, run.corrupt),
        ):
            if got < least:
                raise RemoteProtocolError(f"Expected {name} >= {least}, got {got}.")
        if self.active and not (run.active and run.mode is Mode.ROBUST):
            raise RemoteProtocolError(
                "Expected robust mode with confirmed survivors, got "
                f"{run.mode.value} mode with active {run.active}."
            )
        if self.beacon is not None and self.beacon != run.beacon:
            raise RemoteProtocolError("Expected the beacon of the party's policy, got another one.")
