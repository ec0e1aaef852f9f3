"""Scattering coefficients of images as features, normalised in groups per record.

S(x) applies fixed Morlet wavelets, moduli and a low-pass filter. Its channels are split into
groups, and each group of a record is normalised separately to mean 0 and variance 1 (Wu & He 2018;
Tramèr & Boneh 2021, §3: 27 groups). No parameter is learned, and no record affects another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.column_types import ArrayColumn
from parley.client.data.schema import Schema
from parley.client.features.base import BoundFeatureMap, FeatureMap
from parley.client.features.feature_error import FeatureError
from parley.safe_io.error_translation import translate_errors

Real = NDArray[np.float32]

BATCH = 16
"""Images at a time: always the same number, so that an image's bits do not depend on the others."""

_PI = 3.1415
"""Value of π in the filters' normalisation, as in the reference implementation."""


def _import_fft() -> Any:
    import scipy.fft  # noqa: PLC0415 - start-up: `plan` computes no feature (scipy.fft takes 24 ms)

    return scipy.fft


@dataclass(frozen=True, kw_only=True)
class ScatteringTransform:
    """The transform for images of one shape, in pixels, at least 2^J each."""

    height: int
    width: int
    scales: int = 2
    angles: int = 8

    def __post_init__(self) -> None:
        if not 1 <= self.scales <= 6 or not 1 <= self.angles <= 32:
            expected = "Expected scales of 1 to 6 and angles of 1 to 32"
            raise ValueError(f"{expected}, got {self.scales} and {self.angles}.")
        if min(self.height, self.width) <= 2**self.scales:
            raise ValueError(
                f"Expected images of more than {2**self.scales} pixels a side with scales = "
                f"{self.scales}, got {self.height} × {self.width}."
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, and the low-pass's rows and columns."""
        few, pairs = self.scales * self.angles, self.scales * (self.scales - 1) // 2
        step = 2**self.scales
        return 1 + few + pairs * self.angles**2, self.height // step, self.width // step

    def __call__(self, images: NDArray[Any]) -> Real:
        """Return `[n, channels, h, w]` float32 for images `[n, height, width]`."""
        if images.ndim != 3 or images.shape[1:] != (self.height, self.width):
            expected = f"Expected images of shape [n, {self.height}, {self.width}]"
            raise ValueError(f"{expected}, got {images.shape}.")
        out = np.empty((len(images), *self.shape), np.float32)
        for begin in range(0, len(images), BATCH):
            piece = np.zeros((BATCH, self.height, self.width), np.float32)
            count = len(images[begin : begin + BATCH])
            piece[:count] = images[begin : begin + count]
            at = 0
            for part in self._compute_channels(piece):
                out[begin : begin + count, at : at + part.shape[1]] = part[:count]
                at += part.shape[1]
        return out

    def _compute_channels(self, images: Real) -> Iterator[Real]:
        """Yield `[16, channels, h, w]` of each order in turn."""
        margins = [((size - own) // 2, (size - own + 1) // 2) for size, own in self._sizes]
        padded = np.pad(images, ((0, 0), *margins), mode="reflect")
        yield self._apply_low_pass(padded[:, None], 0)
        spectrum, second = _import_fft().fft2(padded)[:, None], []
        first = [self._compute_moduli(spectrum, j, 0) for j in range(self.scales)]
        for j, moduli in enumerate(first):
            yield self._apply_low_pass(moduli, j)
            if j + 1 < self.scales:
                spectra = _import_fft().fft2(moduli)[:, :, None]
                later = range(j + 1, self.scales)
                fine = [self._apply_low_pass(self._compute_moduli(spectra, k, j), k) for k in later]
                second.append(np.concatenate(fine, axis=2))  # all (j', θ') of each (j, θ)
        for part in second:
            yield part.reshape(BATCH, -1, *part.shape[3:])

    def _compute_moduli(self, spectra: NDArray[np.complex64], j: int, level: int) -> Real:
        """Return |· ⋆ ψ_{j,θ}| for all θ, from each 2^level-th pixel to each 2^j-th."""
        filters, step = self._wavelets[j, level], 2 ** (j - level)
        rows, columns = filters.shape[1] // step, filters.shape[2] // step
        folded: Any = 0  # keeping every second pixel folds the spectrum
        for top, left in np.ndindex(step, step):
            part = np.s_[..., top * rows : (top + 1) * rows, left * columns : (left + 1) * columns]
            folded = folded + spectra[part] * filters[part]
        return np.asarray(np.abs(_import_fft().ifft2(folded, overwrite_x=True)))

    def _apply_low_pass(self, signals: Real, level: int) -> Real:
        """Return · ⋆ φ at each 2^J-th pixel, without the margin."""
        rows, columns = (own[level] for own in self._averages)
        return np.asarray(np.matmul(np.matmul(rows, signals), columns.T))

    @property
    def _sizes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Padded and own sizes, of rows and of columns."""
        step = 2**self.scales
        rows, columns = (((own + step) // step + 1) * step for own in (self.height, self.width))
        return (rows, self.height), (columns, self.width)

    @cached_property
    def _wavelets(self) -> dict[tuple[int, int], Real]:
        """`[L, rows, columns]` Fourier transforms of ψ_{j,θ}, for signals at each level ≤ j.

        They are divided by 4^(j − level), as folding to level j requires.
        """
        sizes = [size for size, _ in self._sizes]
        found = {}
        for j in range(self.scales):
            filters = np.stack([self._build_morlet(j, theta) for theta in range(self.angles)])
            for level in range(j + 1 if j else 1):
                kept = [_list_low_frequencies(size, level) for size in sizes]
                cropped = filters[:, kept[0]][:, :, kept[1]]
                found[j, level] = np.ascontiguousarray(cropped / np.float32(4 ** (j - level)))
        return found

    def _build_morlet(self, j: int, theta: int) -> Real:
        """Return the Fourier transform of a Gabor wave, with mean zero by a subtracted Gaussian."""
        sigma, frequency, slant = 0.8 * 2**j, 0.75 * math.pi / 2**j, 4 / self.angles
        angle = (int(self.angles - self.angles / 2 - 1) - theta) * math.pi / self.angles
        cosine, sine = math.cos(angle), math.sin(angle)
        whole = [np.arange(-2 * size, 3 * size) for size, _ in self._sizes]
        x, y = whole[0][:, None], whole[1][None, :]
        along, across = cosine * x + sine * y, cosine * y - sine * x
        envelope = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
        wave = self._sum_periods(envelope * np.exp(1j * frequency * along))
        gauss = self._sum_periods(envelope.astype(complex))
        wavelet = (wave - wave.sum() / gauss.sum() * gauss) * slant / (2 * _PI * sigma**2)
        return np.asarray(np.real(_import_fft().fft2(wavelet)), np.float32)

    def _sum_periods(self, signal: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Add up five periods in each direction."""
        (rows, _), (columns, _) = self._sizes
        return np.asarray(signal.reshape(5, rows, 5, columns).sum(axis=(0, 2)))

    @cached_property
    def _averages(self) -> tuple[tuple[Real, ...], tuple[Real, ...]]:
        """`[h, size/2^level]` by level: φ is a product of two Gaussians, so x ⋆ φ is A x Bᵀ."""
        sigma, step = 0.8 * 2 ** (self.scales - 1), 2**self.scales
        both = []
        for size, own in self._sizes:
            whole = np.exp(-(np.arange(-2 * size, 3 * size) ** 2) / (2 * sigma**2))
            gauss = whole.reshape(5, size).sum(axis=0) / math.sqrt(2 * _PI * sigma**2)
            spectrum = np.real(_import_fft().fft(gauss))
            levels = []
            for level in range(self.scales):
                kernel = np.real(_import_fft().ifft(spectrum[_list_low_frequencies(size, level)]))
                centres = (np.arange(own // step) + 1) * (step >> level)
                apart = centres[:, None] - np.arange(len(kernel))[None, :]
                levels.append(kernel[apart % len(kernel)].astype(np.float32))
            both.append(tuple(levels))
        return both[0], both[1]


def _list_low_frequencies(size: int, level: int) -> NDArray[np.int64]:
    """Return the frequencies of a signal at each 2^level-th pixel, in the order of an FFT."""
    kept = size >> level
    own = np.arange(kept)
    return np.asarray(np.where(own < (kept + 1) // 2, own, own + size - kept))


_VARIANCE = 1e-5
"""Constant added to a group's variance, as in torch.nn.GroupNorm."""


@dataclass(frozen=True, kw_only=True)
class ScatteringFeatures(FeatureMap):
    """Features of a record's image: J scales, L angles, normalised in groups (0: not at all)."""

    name: ClassVar[str] = "scattering"

    scales: int = 2
    angles: int = 8
    groups: int = 27

    def bind(self, schema: Schema) -> BoundFeatureMap:
        """Return the map for records with a single feature, an array `[height, width]`."""
        columns = list(schema.features.values())
        column = columns[0]
        if len(columns) != 1 or not isinstance(column, ArrayColumn) or len(column.shape) != 2:
            raise FeatureError(
                "Expected one column of kind array and shape [height, width] (an image) with "
                f"features 'scattering', got {', '.join(schema.features)}."
            )
        height, width = column.shape
        with translate_errors(ValueError, FeatureError):
            own = {"scales": self.scales, "angles": self.angles}
            scattering = ScatteringTransform(height=height, width=width, **own)
        channels, rows, columns_kept = scattering.shape
        if self.groups < 0 or (self.groups and channels % self.groups):
            expected = f"Expected groups that divide {channels} channels, or 0 for none"
            raise FeatureError(f"{expected}, got {self.groups}.")

        def piece(cells: NDArray[np.float64]) -> NDArray[np.float32]:
            found = scattering(cells.reshape(len(cells), height, width))
            return self._normalise_groups(found).reshape(len(cells), -1)

        return BoundFeatureMap(width=channels * rows * columns_kept, map_piece=piece)

    def _normalise_groups(self, coefficients: NDArray[np.float32]) -> NDArray[np.float32]:
        if not self.groups:
            return coefficients
        by_group = coefficients.reshape(len(coefficients), self.groups, -1)
        by_group = by_group - by_group.mean(axis=-1, keepdims=True)
        variance = np.square(by_group).mean(axis=-1, keepdims=True)
        return np.asarray(by_group / np.sqrt(variance + np.float32(_VARIANCE)))
