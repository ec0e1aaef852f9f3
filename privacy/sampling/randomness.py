"""Where a run's randomness comes from: an argument, never a default and never a module's.

One `Randomness` goes to everything that draws: the server's noise, a party's batches, its noise and
its shares of noise. Each draw has its own stream, named by use, round and party. A real
release takes every stream's key from the operating system. A seeded simulation derives it from the
seed and those names, so that it repeats, and a run that was killed draws what it would have drawn:

>>> Randomness.from_seed(7).server(1).words(1).tolist()
[9491628809440065311]
>>> block, alone = Randomness.from_seed(7), Randomness.from_seed(7, party=3)
>>> int(block.share(1, 3).words(1)[0]) == int(alone.share(1).words(1)[0])
True
>>> Randomness.from_entropy().server(1).seeded
False
"""

from __future__ import annotations

from dataclasses import dataclass

from parley.privacy.sampling.stream import NoiseStream


@dataclass(frozen=True, kw_only=True)
class Randomness:
    """The source of every draw of a server, of a block of parties, or of one party.

    Prefer `from_entropy` and `from_seed`: which one is a decision, not a default.

    Attributes:
        seed: of a simulation; None for the operating system's entropy.
        party: index among all parties of the one that draws for itself; None for the server and for
            a block of all parties.
    """

    seed: int | None
    party: int | None

    @classmethod
    def from_entropy(cls) -> Randomness:
        """Every stream under its own key from the operating system: for real releases."""
        return cls(seed=None, party=None)

    @classmethod
    def from_seed(cls, seed: int, *, party: int | None = None) -> Randomness:
        """Every stream derived from a seed: for simulations, it protects nobody."""
        return cls(seed=seed, party=party)

    @property
    def seeded(self) -> bool:
        """Whether whoever knows the seed can draw the same."""
        return self.seed is not None

    def check(self, *, seeded: bool) -> None:
        """Refuses a seed for a real release: one whose plan does not say that it is seeded."""
        if self.seeded and not seeded:
            raise ValueError(
                "Expected randomness from entropy for a plan that is not seeded, got a seed: the "
                "noise of a real release could be drawn again."
            )

    def server(self, round_number: int, step: int = 1) -> NoiseStream:
        """The server's noise on sum `step` of a release; release 0 is ahead of the rounds."""
        if not round_number:
            return self._stream("components-noise")
        return self._stream("server-noise", round_number, *_later(step))

    def batch(self, round_number: int, step: int, row: int = 0) -> NoiseStream:
        """Which records one party puts into the batch of one step: its own coins.

        Keyed by the party alone, its place among all (`row`, of no effect for a party that draws
        for itself): a simulated block and the parties by themselves draw the same.
        """
        return self._stream("batch", round_number, step, self._party(row))

    def attendance(self, round_number: int, step: int) -> NoiseStream:
        """Which parties are in one sum of a release: seeded, one stream for all of them."""
        return self._stream("attendance", round_number, step)

    def draws(self, round_number: int, step: int, row: int = 0) -> NoiseStream:
        """What the losses of one party's records draw in one step; keyed as `batch` is."""
        return self._stream("draws", round_number, step, self._party(row))

    def batches(self, round_number: int, row: int = 0) -> NoiseStream:
        """Which records one party trains on in a round; keyed as `batch` is."""
        return self._stream("dp-sgd", "batches", round_number, "party", self._party(row))

    def party_noise(self, round_number: int, row: int = 0) -> NoiseStream:
        """The noise inside one party's training; keyed as `batch` is."""
        return self._stream("dp-sgd", "noise", round_number, "party", self._party(row))

    def objective(self, round_number: int, row: int = 0) -> NoiseStream:
        """The noise inside one party's objective; keyed as `batch` is."""
        return self._stream("objective", round_number, self._party(row))

    def share(self, round_number: int, row: int = 0, step: int = 1) -> NoiseStream:
        """One party's share of the noise on sum `step` of a release; keyed as `batch` is.

        A repeated round gets the same share.
        """
        return self._stream("share", round_number, self._party(row), *_later(step))

    def dealt(self, round_number: int, step: int = 1) -> NoiseStream:
        """The sum of the shares of a sum as one draw: in a simulation that deals them."""
        return self._stream("share", round_number, "dealt", *_later(step))

    def _party(self, row: int) -> int:
        return row if self.party is None else self.party

    def _stream(self, *names: str | int) -> NoiseStream:
        if self.seed is None:
            return NoiseStream.from_entropy()
        return NoiseStream.from_seed(self.seed, *names)


def _later(step: int) -> tuple[int, ...]:
    """The first sum of a release has the names of a release that has one."""
    return (step,) if step > 1 else ()
