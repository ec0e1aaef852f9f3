"""Sum of random features of all records, by class, to which synthetic records are fitted.

    S_k = Σ_{i: y_i = k} φ(x_i),   n_k = |{i: y_i = k}|,   φ(x) = (cos Wx, sin Wx)/√F

with F rows of W from N(0, I/ℓ²) and a public seed (Rahimi & Recht 2007; Harder, Adamczewski & Park
2021, "DP-MERF", arXiv:2002.11603). It is one release. A record adds φ of the unit ball, and a count
of 1, to its class.

A record's features are integers, from arithmetic on that record only. No sum therefore depends on
how a block is cut, and ‖φ‖ ≤ 1 holds exactly:

- X = trunc(2¹⁶x), |x| ≤ 1; Ŵ = round(2¹⁴W/2π), |Ŵ| ≤ 2²⁰;
- phase = ⌊ŴX/2¹⁶⌋ mod 2¹⁴: a sum of p integers below 2³⁶, exact in double precision;
- c[k] = trunc(2¹⁶cos(2πk/2¹⁴)/√F), from one table; max(c² + s²)·F ≤ 2³² is checked on the table.

A record is a row of codes (each column's indicator times √½), or one array.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.algorithm_spec import (
    AlgorithmSpec,
    PartyResources,
    check_keys,
    get_settings,
)
from parley.client.algorithms.base import Claim, PublicFacts
from parley.client.algorithms.noisy_sum_algorithms import NoModel, SumOfRecords
from parley.client.contract.model_state_encoding import Floats
from parley.client.contract.refusals import Declined, Reason, decline_errors
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.strict_decoding import DecodingError, decode_dataclass
from parley.client.data.record_discretization import MAX_VALUES, encode_classes
from parley.client.features.random_fourier import draw_public_normals
from parley.privacy.sensitivity.bounded_sets import Set

MAX_COORDINATES = 1 << 22
"""Maximum coordinates of a sum."""

_ONE = 1 << 16
_PHASES = 1 << 14
_MAX_WEIGHT = 1 << 20
_MAX_COLUMNS = 131_071
"""Maximum p, so that p·2³⁶ stays below 2⁵³."""
_MAX_WEIGHTS = 1 << 24
"""Maximum entries of W: the settings that a server sends can cost a party 128 MiB."""
_INDICATOR = math.isqrt(_ONE**2 // 2)
"""⌊2¹⁶√½⌋, a column's indicator."""
_ROWS, _WAVES = 500, 400


@dataclass(frozen=True, kw_only=True)
class RandomFeatures(SumOfRecords):
    """The sum of φ(x) ⊗ e_y over all records, and of e_y; one release.

    Attributes:
        features: p, columns of the rows.
        sizes: number of values of each column of a table, p together; (): a row is an array.
        length_scale: ℓ, from which W is sampled.
        seed: public seed of W.
        digest: SHA-256, in hex, of Ŵ and of the table of cosines. A party that derives another one
            declines.
    """

    kind: ClassVar[str] = "random-features"

    features: int
    sizes: tuple[int, ...]
    classes: int
    frequencies: int
    length_scale: float
    seed: int
    digest: str

    def __post_init__(self) -> None:
        super().__post_init__()
        wide, waves = self.features, self.frequencies
        if not 1 <= wide <= _MAX_COLUMNS or waves < 1 or wide * waves > _MAX_WEIGHTS:
            expected = f"1 to {_MAX_COLUMNS} columns and F ≥ 1, with at most {_MAX_WEIGHTS} weights"
            raise ValueError(f"Expected {expected}, got {wide} and {waves}.")
        if self.sizes and (min(self.sizes) < 1 or sum(self.sizes) != wide):
            raise ValueError(f"Expected sizes of {wide} values in total, got {self.sizes}.")
        if not 1 <= self.classes <= MAX_VALUES or self.dimension > MAX_COORDINATES:
            expected = f"Expected classes and at most {MAX_COORDINATES} coordinates"
            remedy = "Use fewer frequencies."
            raise ValueError(f"{expected}, got {self.classes} and {self.dimension}. {remedy}")
        if not 1e-6 <= self.length_scale <= 1e6 or not 0 <= self.seed < 2**63:
            expected = "Expected a length scale from 1e-6 to 1e6 and a seed ≥ 0"
            raise ValueError(f"{expected}, got {self.length_scale} and {self.seed}.")

    @property
    def dimension(self) -> int:
        """Coordinates of the sum, K(2F + 1)."""
        return self.classes * (2 * self.frequencies + 1)

    @property
    def columns(self) -> tuple[int, ...]:
        """`[columns]` number of values of each column of a table, the label's last; (): a row is an
        array.
        """
        return (*self.sizes, self.classes) if self.sizes else ()

    @property
    def model(self) -> NoModel:
        """Description of rows of any content, with any labels."""
        return NoModel(features=self.features, classes=self.classes)

    def sum_records(self, rows: NDArray[np.floating[Any]], labels: NDArray[Any]) -> Floats:
        """Return `[d]`: `[K, 2F]` row-major, then `[K]` counts; exact in any order."""
        waves, points = _get_weights(self), _build_phase_table(self.frequencies)
        label_codes = encode_classes(labels, self.classes)
        values = np.zeros(self.dimension)
        sums = values[: -self.classes].reshape(self.classes, 2, self.frequencies)  # a view
        # Sums of this many whole numbers stay below 2²⁴: float32 rounds none of them.
        chunk_rows = max(1, min(_ROWS, (1 << 24) // int(np.abs(points.real).max())))
        for begin in range(0, len(rows), chunk_rows):
            chunk_labels = label_codes[begin : begin + chunk_rows]
            integers = self._quantize_rows(rows[begin : begin + chunk_rows])
            for first in range(0, self.frequencies, _WAVES):
                last = first + _WAVES
                phase = (integers @ waves[:, first:last]).astype(np.int64)  # below 2⁵³: exact
                phase >>= _ONE.bit_length() - 1  # rounds down, as ⌊·⌋
                phase &= _PHASES - 1
                features = np.take(points, phase, mode="clip")
                for label in np.unique(chunk_labels):
                    total = features[chunk_labels == label].sum(axis=0)
                    sums[label, 0, first:last] += total.real
                    sums[label, 1, first:last] += total.imag
        values /= _ONE
        values[-self.classes :] = np.bincount(label_codes, minlength=self.classes)
        return values

    def _quantize_rows(self, rows: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return `[n, p]` X, whole numbers up to 2¹⁶, for any content of the rows."""
        if not self.sizes:
            cells = np.nan_to_num(rows.astype(np.float64) * math.sqrt(self.features))
            return np.trunc(np.clip(cells, -1, 1) * _ONE)
        quantized = np.zeros((len(rows), self.features))
        for begin, end in pairwise(np.cumsum([0, *self.sizes])):
            quantized[np.arange(len(rows)), begin + rows[:, begin:end].argmax(axis=1)] = _INDICATOR
        return quantized

    def compute_weights(self) -> NDArray[np.float64]:
        """Return `[p, F]` W as it was used in the sum, on its grid."""
        return _get_weights(self) * (2 * math.pi / _PHASES)

    def claim(self, facts: PublicFacts | None = None) -> Claim:
        """Claim φ and a count in one class, for any records."""
        features = Set.ball(2 * self.frequencies, squared=_ONE**2)
        record_set = Set.product(features, Set.interval(_ONE, _ONE))
        return self.build_claim(
            record_set.spread_over_cells(self.classes),
            grid_bits=_ONE.bit_length() - 1,
            classes=self.classes,
            features=self.features,
        )


@functools.lru_cache(maxsize=2)
def _draw_weights(features: int, frequencies: int, length_scale: float, seed: int) -> Any:
    draws = draw_public_normals(seed, features * frequencies).reshape(features, frequencies)
    waves = np.rint(draws * (_PHASES / (2 * math.pi) / length_scale))
    if not np.abs(waves).max() <= _MAX_WEIGHT:
        expected = "Expected a length scale with waves below 2^20"
        raise ValueError(f"{expected}, got {length_scale:g}. Use a larger algorithm.length-scale.")
    waves.flags.writeable = False
    return waves


def _get_weights(own: RandomFeatures) -> NDArray[np.float64]:
    """Return `[p, F]` Ŵ, whole numbers."""
    return np.asarray(_draw_weights(own.features, own.frequencies, own.length_scale, own.seed))


@functools.lru_cache(maxsize=4)
def _build_cosine_table(frequencies: int) -> NDArray[np.float32]:
    """Build `[2¹⁴]` c, whole numbers with which no record's features are longer than 1.

    >>> [_build_cosine_table(2)[k].item() for k in (0, 1304, 1303, 4096)]
    [46340.0, 40666.0, 40674.0, 0.0]
    """
    angles = np.arange(_PHASES) * (2 * math.pi / _PHASES)
    cosines = np.trunc(_ONE * np.cos(angles) / math.sqrt(frequencies))
    cosines[_PHASES // 4 :: _PHASES // 2] = 0
    sines = np.roll(cosines, _PHASES // 4)
    if frequencies * int((cosines**2 + sines**2).max()) > _ONE**2:
        raise ValueError(f"Expected features of norm at most 1, got longer ones: F {frequencies}.")
    return np.asarray(cosines, np.float32)


@functools.lru_cache(maxsize=4)
def _build_phase_table(frequencies: int) -> NDArray[np.complex64]:
    """Build `[2¹⁴]` c[k] + i·c[k − 2¹²]: cosine and sine of a phase, sin t = cos(t − π/2)."""
    cosines = _build_cosine_table(frequencies)
    return np.asarray(cosines + 1j * np.roll(cosines, _PHASES // 4), np.complex64)


def compute_waves_digest(features: int, frequencies: int, length_scale: float, seed: int) -> str:
    """Return SHA-256, in hex, of Ŵ and of the table of cosines."""
    waves = _draw_weights(features, frequencies, length_scale, seed).astype("<i4").tobytes()
    hasher = hashlib.sha256(b"parley/random-features/v1" + waves)
    hasher.update(_build_cosine_table(frequencies).astype("<i4").tobytes())
    return hasher.hexdigest()


def check_waves(algorithm: RandomFeatures, plan: ReleasePlan) -> None:
    """Check that the party's own W and cosines are those with which the server reads the sum.

    Raises Declined.
    """
    own = algorithm
    with decline_errors(Reason.ALGORITHM, ValueError):
        digest = compute_waves_digest(own.features, own.frequencies, own.length_scale, own.seed)
    if digest != own.digest:
        expected = f"Expected the waves of seed {own.seed} with digest {digest:.16}…"
        raise Declined(Reason.ALGORITHM, f"{expected}, got {own.digest:.16}….")


def to_task(algorithm: RandomFeatures) -> dict[str, Any]:
    """Return the values of its fields (see `registry`)."""
    return {"sizes": list(algorithm.sizes), "settings": get_settings(algorithm, "sizes")}


def from_task(task: Mapping[str, Any], party: PartyResources) -> RandomFeatures:
    """Build the algorithm from the result of `to_task`. Raises DecodingError."""
    parse_size(task)
    return decode_dataclass(RandomFeatures, task["settings"], sizes=tuple(task["sizes"]))


def parse_size(task: Mapping[str, Any]) -> tuple[str, int]:
    """Return the kind of model, and a lower bound on its size."""
    check_keys(task, "sizes", "settings")
    sizes = task["sizes"]
    if not isinstance(sizes, list) or len(sizes) > _MAX_COLUMNS:
        expected = f"Expected a list with the sizes of at most {_MAX_COLUMNS} columns"
        raise DecodingError(f"{expected}, got another value.")
    if not all(type(each) is int and 1 <= each <= MAX_VALUES for each in sizes):
        raise DecodingError(f"Expected sizes from 1 to {MAX_VALUES}, got others.")
    return "table", 1


SPEC = AlgorithmSpec(
    title="random features",
    to_task=to_task,
    from_task=from_task,
    parse_size=parse_size,
    check=check_waves,
    summed=True,
)
