"""Noise streams, the only source of the noise's randomness: words of a ChaCha20 keystream.

`NoiseStream.from_entropy()` takes its key from the operating system. `NoiseStream.from_seed`
derives it from a seed and labels with HKDF-SHA-256 (RFC 5869), for simulations that must repeat. A
stream belongs to one process and is used once from its start: the counter only moves forward, a
fork or a copy is refused, and it ends where ChaCha20's 32-bit block counter ends (RFC 8439).

>>> NoiseStream.from_seed(7, "round", 1).draw_words(2).tolist()
[16799198282139578104, 732259356926484375]
>>> NoiseStream.from_seed(7, "round", 1)
NoiseStream(seeded=True, words_drawn=0)

The module also defines `Randomness`, the source of a run's randomness. It is an argument, never a
default and never a module's state.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

WORDS_PER_STREAM: Final = 2**32 * 64 // 8
"""Maximum number of 64-bit words per stream: 2³² blocks of 64 bytes (RFC 8439, section 2.3)."""

_DOMAIN: Final = b"parley/privacy/noise-stream/chacha20/v1"
_TEXT: Final = json.JSONEncoder(allow_nan=False)  # built once: `dumps` builds one per call
_ZEROS: Final = bytes(1 << 18)


class NoiseStream:
    """Uniform 64-bit words from a ChaCha20 keystream under a 256-bit key.

    `seeded` is True if everyone who knows the seed can compute the words again. Such noise protects
    no one and belongs in simulations and tests. Use one stream from one thread.
    """

    __slots__ = ("_cipher", "_drawn", "_process", "_seeded")

    def __init__(self, key: bytes, *, seeded: bool) -> None:
        """Start the keystream of `key`: 32 bytes that are used for no other purpose.

        Prefer `from_entropy` and `from_seed`. The key is passed to the cipher and not kept.
        """
        if len(key) != 32:
            raise ValueError(f"Expected a key of 32 bytes, got {len(key)}.")
        # A constant nonce is safe because every key starts exactly one stream.
        self._cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        self._seeded = seeded
        self._drawn = 0
        self._process = os.getpid()

    @classmethod
    def from_entropy(cls) -> NoiseStream:
        """Return a stream keyed by 32 bytes of the operating system's entropy."""
        return cls(os.urandom(32), seeded=False)

    @classmethod
    def from_seed(cls, seed: int, *labels: str | int) -> NoiseStream:
        """Return the stream of (seed, labels): always the same words for the same arguments.

        Different argument lists give independent streams: the key is HKDF-SHA-256 of their JSON
        text, which distinguishes 1 from "1" and ("a", "b") from ("ab",). Raises TypeError for a
        seed that is not an integer or a label that is neither a string nor an integer.
        """
        for name, value, kinds in (
            ("seed", seed, (int,)),
            *(("label", label, (int, str)) for label in labels),
        ):
            if isinstance(value, bool) or not isinstance(value, kinds):
                expected = " or ".join(kind.__name__ for kind in kinds)
                raise TypeError(f"Expected {name} of type {expected}, got {type(value).__name__}.")
        material = _TEXT.encode([seed, *labels]).encode("ascii")
        key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=_DOMAIN).derive(material)
        return cls(key, seeded=True)

    @property
    def seeded(self) -> bool:
        """Whether everyone who knows the seed can compute the words again."""
        return self._seeded

    def draw_words(self, count: int) -> npt.NDArray[np.uint64]:
        """Return the next `count` words of the keystream, uint64 [count]; none is returned twice.

        The split into calls does not matter: words(2) then words(3) are words(5). Raises ValueError
        for a negative count, RuntimeError in a forked process and past the end.
        """
        if count < 0:
            raise ValueError(f"Expected count ≥ 0, got {count}.")
        if os.getpid() != self._process:
            raise RuntimeError(
                f"Expected the process that made this stream ({self._process}), got its fork "
                f"{os.getpid()}: both would draw the same noise. Make a new stream there."
            )
        if self._drawn + count > WORDS_PER_STREAM:
            raise RuntimeError(
                f"Expected at most {WORDS_PER_STREAM} words from one stream, "
                f"got a request for word {self._drawn + count}. Make a new stream."
            )
        # Counted before they are drawn, so that an interrupted call cannot return them again.
        self._drawn += count
        words = np.empty(count, dtype="<u8")
        octets = words.view(np.uint8)
        for start in range(0, octets.size, len(_ZEROS)):
            part = octets[start : start + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: part.size], part.data)
        return words.astype(np.uint64, copy=False)

    def __repr__(self) -> str:
        return f"NoiseStream(seeded={self._seeded}, words_drawn={self._drawn})"

    def __reduce__(self) -> NoReturn:
        """Refuse pickle and copy: a second instance would repeat the keystream."""
        raise TypeError("Expected one instance of a NoiseStream, got a request to copy or pickle.")


@dataclass(frozen=True, kw_only=True)
class Randomness:
    """Source of all draws of a server, of a block of parties, or of one party.

    Prefer `from_entropy` and `from_seed`: the choice must be explicit, there is no default.

    Attributes:
        seed: seed of a simulation; None for the operating system's entropy.
        party: index of a single party among all; None for the server and for a block of all
            parties.
    """

    seed: int | None
    party: int | None

    @classmethod
    def from_entropy(cls) -> Randomness:
        """Return a source that keys every stream by the operating system: for real releases."""
        return cls(seed=None, party=None)

    @classmethod
    def from_seed(cls, seed: int, *, party: int | None = None) -> Randomness:
        """Return a source that derives every stream from a seed. It is for simulations.

        Such noise protects no one.
        """
        return cls(seed=seed, party=party)

    @property
    def seeded(self) -> bool:
        """Whether everyone who knows the seed can repeat the draws."""
        return self.seed is not None

    def check(self, *, seeded: bool) -> None:
        """Raise ValueError if a seed is used for a release whose plan is not marked as seeded."""
        if self.seeded and not seeded:
            raise ValueError(
                "Expected randomness from entropy for a plan that is not seeded, got a seed: the "
                "noise of a real release could be computed again."
            )

    def open_server_noise(self, round_number: int, step: int = 1) -> NoiseStream:
        """Open the stream of the server's noise on sum `step` of a release.

        Release 0 comes before the rounds.
        """
        if not round_number:
            return self._open_stream("components-noise")
        return self._open_stream("server-noise", round_number, *_list_step_label(step))

    def open_step_batch(self, round_number: int, step: int, row: int = 0) -> NoiseStream:
        """Open the stream that chooses one party's records for the batch of one step.

        These are the party's own coins. The stream is keyed by the party's index among all parties:
        `row`, which has no effect for a party that draws for itself. A simulated block and separate
        parties therefore draw the same.
        """
        return self._open_stream("batch", round_number, step, self._get_party(row))

    def open_party_sampling(self, round_number: int, step: int) -> NoiseStream:
        """Open the stream that chooses the parties in one sum of a release.

        With a seed it is one stream for all parties.
        """
        return self._open_stream("attendance", round_number, step)

    def open_loss_draws(self, round_number: int, step: int, row: int = 0) -> NoiseStream:
        """Open the stream for the losses of one party's records in one step.

        It is keyed as in `open_step_batch`.
        """
        return self._open_stream("draws", round_number, step, self._get_party(row))

    def open_training_batches(self, round_number: int, row: int = 0) -> NoiseStream:
        """Open the stream that chooses a party's training records in a round.

        It is keyed as in `open_step_batch`.
        """
        return self._open_stream("dp-sgd", "batches", round_number, "party", self._get_party(row))

    def open_training_noise(self, round_number: int, row: int = 0) -> NoiseStream:
        """Open the stream of the noise inside one party's training.

        It is keyed as in `open_step_batch`.
        """
        return self._open_stream("dp-sgd", "noise", round_number, "party", self._get_party(row))

    def open_objective_noise(self, round_number: int, row: int = 0) -> NoiseStream:
        """Open the stream of the noise inside one party's objective.

        It is keyed as in `open_step_batch`.
        """
        return self._open_stream("objective", round_number, self._get_party(row))

    def open_noise_share(self, round_number: int, row: int = 0, step: int = 1) -> NoiseStream:
        """Open the stream of a party's noise share on sum `step` of a release.

        It is keyed as in `open_step_batch`. A repeated round gets the same share.
        """
        return self._open_stream(
            "share", round_number, self._get_party(row), *_list_step_label(step)
        )

    def open_summed_shares(self, round_number: int, step: int = 1) -> NoiseStream:
        """Open the stream for all shares of a sum as one draw, in a simulation that deals them."""
        return self._open_stream("share", round_number, "dealt", *_list_step_label(step))

    def _get_party(self, row: int) -> int:
        return row if self.party is None else self.party

    def _open_stream(self, *names: str | int) -> NoiseStream:
        if self.seed is None:
            return NoiseStream.from_entropy()
        return NoiseStream.from_seed(self.seed, *names)


def _list_step_label(step: int) -> tuple[int, ...]:
    """Return the label of a step; empty for the first, as for a release with a single sum."""
    return (step,) if step > 1 else ()
