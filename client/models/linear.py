"""Linear models over a block of parties: gradients, losses and metrics in a few batched passes.

A party's gradient is the mean over its records of the data loss's gradient; the regulariser
(λ/2)‖θ‖₂² is public and added by the server. The norms of `parley.client.models.losses` presume
‖x‖₂ ≤ 1 and a regularised intercept: `prepare_rows` sees to both.

    >>> import numpy as np
    >>> from parley.client.data.block import PartyBlock
    >>> from parley.client.models.losses import Logistic
    >>> from parley.client.models.rows import prepare_rows
    >>> model = LinearModel(loss=Logistic(), features=2)
    >>> x = prepare_rows(np.array([[3.0, 4.0], [0.6, 0.0]]), intercept=False)
    >>> x.tolist()
    [[0.6, 0.8], [0.6, 0.0]]
    >>> block = PartyBlock(features=x, labels=np.array([1.0, -1.0]), offsets=np.array([0, 1, 2]))
    >>> model.gradients(np.zeros(2), block).tolist()
    [[-0.3, -0.4], [0.3, 0.0]]
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.block import PartyBlock
from parley.client.data.chunks import CHUNK_BYTES, chunk_ranges, for_each_chunk
from parley.client.models.bounded import drop_broken_rows
from parley.client.models.loss import Array, Loss
from parley.client.models.own_margins import TILE, own_margins

SUMMED = 1024
"""Records that `LinearModel.gradient_sums` adds up at a time."""


@dataclass(frozen=True, kw_only=True)
class LinearModel:
    """A loss over margins θ·x.

    Attributes:
        features: p, columns of a prepared row (the intercept's among them).
    """

    in_threads: ClassVar[bool] = True

    loss: Loss
    features: int

    def __post_init__(self) -> None:
        if self.features < 1:
            raise ValueError(f"Expected features >= 1, got {self.features}.")

    @property
    def classes(self) -> int:
        """K of the labels as they are stored; 0 for −1/+1 and targets."""
        return int(getattr(self.loss, "classes", 0))

    @property
    def dimension(self) -> int:
        """d = p, or K·p: softmax's θ is `[K, p]`, flattened."""
        return self.loss.outputs * self.features

    @property
    def lipschitz(self) -> float:
        """G of the data loss on the unit ball."""
        return self.loss.lipschitz

    @property
    def smoothness(self) -> float:
        """L_s of the data loss on the unit ball."""
        return self.loss.smoothness

    @property
    def metric_name(self) -> str:
        """What `metric` returns: "accuracy", or "r2" for ridge."""
        return self.loss.metric_name

    def project(self, theta: Array) -> Array:
        """The nearest θ, `[d]` or `[B, d]`, for which G holds: ridge's ball ‖θ‖₂ ≤ R."""
        radius = self.loss.theta_radius
        if np.isinf(radius):
            return theta
        norms = np.sqrt(np.vecdot(theta, theta))[..., None]
        projected: Array = theta * (radius / np.maximum(norms, radius))
        return projected

    def margins(self, theta: Array, rows: Array) -> Array:
        """θ·x for rows `[…, n, p]` under θ `[d]` or `[…, d]`: `[…, n]`, or `[…, n, K]`.

        `[n, p]` rows may each have their own θ, `[n, d]`, where there is one output. A row's
        bits depend on that row alone (one output), or on its party's rows (softmax).
        """
        if self.loss.outputs == 1:
            if theta.ndim == rows.ndim - 1 > 1:
                theta = theta[..., None, :]
            # Measured: one dot product a row streams fresh memory twice as fast as a batched
            # matrix-vector product; in float32 einsum is twice as fast again.
            if rows.dtype == np.float32:
                return np.asarray(np.einsum("...p,...p->...", rows, theta))
            return np.asarray(np.vecdot(rows, theta))
        classes = theta.reshape(*theta.shape[:-1], self.loss.outputs, self.features)
        return np.asarray(np.matmul(rows, classes.swapaxes(-1, -2)))

    def pull_back(self, slopes: Array, rows: Array, out: Array | None = None) -> Array:
        """Σ_i slope_i·x_i over rows `[…, n, p]`, slopes shaped as margins: `[…, d]`."""
        by_output = slopes[..., None, :] if self.loss.outputs == 1 else slopes.swapaxes(-1, -2)
        if out is not None:
            out = out.reshape(*out.shape[:-1], self.loss.outputs, self.features)
        total: Array = np.matmul(by_output, rows, out=out)
        return total.reshape(*total.shape[:-2], self.dimension)

    def gradients(self, theta: Array, block: PartyBlock, clip: float | None = None) -> Array:
        """Every party's mean gradient of the data loss, without the regulariser.

        The bits of a party's row depend on its own records only: not on the other parties of the
        block, nor on the number of cores. They are finite for every θ: a record whose gradient is
        not (θ·x = ∞ − ∞) adds zero, which is no longer than G and a function of that record alone,
        so that the sensitivity is what it was (`parley.client.dp_sgd.clipped`).

        Args:
            theta: `[d]`, or `[B, d]` for a model of each party's own.
            clip: C; each record's gradient is scaled down to L2 norm ≤ C before the mean.

        Returns:
            `[B, d]` float64.
        """
        return self._sweep(theta, block, clip, None)

    def gradients_and_loss(
        self, theta: Array, block: PartyBlock, clip: float | None = None
    ) -> tuple[Array, Array]:
        """`gradients` to the same bits, and each party's mean data loss `[B]`, in one pass."""
        losses = np.empty(block.parties)
        return self._sweep(theta, block, clip, losses), losses

    def gradient_sums(self, theta: Array, block: PartyBlock, clip: float | None = None) -> Array:
        """`[B, d]` every party's sum of its records' gradients: n times `gradients`.

        In float64 whatever the precision of the rows. A record's own gradient has the same bits
        wherever it stands and whoever stands beside it; sums are over `SUMMED` records at a time,
        then pairwise, so that n records are added up to within n·(SUMMED + 64)·2⁻⁵³·G
        (Higham 2002, §4.2).

        Args, Raises: as `gradients`.
        """
        return self._sums(theta, block, clip, None)

    def _sweep(
        self, theta: Array, block: PartyBlock, clip: float | None, losses: Array | None
    ) -> Array:
        if block.features.dtype == np.float32:  # records are rounded once, sums are not
            sums = self._sums(theta, block, clip, losses)
            if losses is not None:
                losses /= block.sizes
            return np.asarray(sums / block.sizes[:, None])
        self._check(theta, block.features, parties=block.parties)
        features, labels, offsets = block.features, block.labels, block.offsets
        sizes, alike = block.sizes, block.uniform_size
        ranges = chunk_ranges(offsets, self._chunk_rows(features), alike)
        gradients = np.empty((block.parties, self.dimension), features.dtype)
        theta = np.ascontiguousarray(theta)
        stacked = None if alike is None else features.reshape(-1, alike, self.features)

        def sweep(first: int, last: int) -> None:
            rows = slice(int(offsets[first]), int(offsets[last]))
            own = theta if theta.ndim == 1 else theta[first:last]
            if stacked is None:
                margins = self._party_margins(own, features[rows], sizes[first:last])
            else:
                margins = self.margins(own, stacked[first:last])
                margins = margins.reshape(-1, *margins.shape[2:])
            values, slopes = self._slopes(
                margins, labels[rows], features[rows], clip, losses is not None
            )
            if losses is not None:
                losses[first:last] = np.add.reduceat(values, offsets[first:last] - offsets[first])
            if stacked is not None:
                by_party = slopes.reshape(-1, stacked.shape[1], *slopes.shape[1:])
                self.pull_back(by_party, stacked[first:last], gradients[first:last])
                return
            ends = offsets[first : last + 1] - offsets[first]
            for party, (start, end) in zip(gradients[first:last], pairwise(ends), strict=True):
                self.pull_back(slopes[start:end], features[rows][start:end], party)

        with np.errstate(all="ignore"):  # a margin that overflows is a slope that is dropped
            for_each_chunk(sweep, ranges)
        gradients /= sizes[:, None].astype(gradients.dtype)
        if losses is not None:
            losses /= sizes
        return gradients

    def _slopes(
        self, margins: Array, labels: NDArray[Any], x: Array, clip: float | None, measured: bool
    ) -> tuple[Array, Array]:
        """Losses of records (if `measured`), and slopes for which slope·x is clipped to `clip`.

        A slope that is not finite becomes 0.
        """
        if clip is not None and not clip > 0:
            raise ValueError(f"Expected clip > 0, got {clip}.")
        own = _as(labels, margins)
        if measured:
            values, slopes = self.loss.value_and_slope(margins, own)
        else:
            values = slopes = self.loss.slope(margins, own)
        drop_broken_rows(slopes)
        if clip is not None:
            # The smallest normal number for each square that may have underflowed.
            lost = x.shape[1] * np.finfo(x.dtype).tiny
            norms = self.loss.slope_norm(slopes) * np.sqrt(np.vecdot(x, x) + lost)
            factor = clip / np.maximum(norms, clip)
            slopes *= factor if slopes.ndim == 1 else factor[:, None]
        return values, slopes

    def _sums(
        self, theta: Array, block: PartyBlock, clip: float | None, losses: Array | None
    ) -> Array:
        self._check(theta, block.features, parties=block.parties)
        theta = np.ascontiguousarray(theta, np.float64)
        pieces = [
            (party, begin, min(begin + SUMMED, int(block.offsets[party + 1])))
            for party in range(block.parties)
            for begin in range(int(block.offsets[party]), int(block.offsets[party + 1]), SUMMED)
        ]

        def add_up(first: int, last: int) -> list[tuple[Array, float]]:
            return [
                self._sum(
                    theta if theta.ndim == 1 else theta[party],
                    block.features[begin:end],
                    block.labels[begin:end],
                    clip,
                    measured=losses is not None,
                )
                for party, begin, end in pieces[first:last]
            ]

        done = for_each_chunk(add_up, [(at, at + 1) for at in range(len(pieces))])
        by_party: list[list[Array]] = [[] for _ in range(block.parties)]
        if losses is not None:
            losses[:] = 0
        for (party, *_), ((total, loss),) in zip(pieces, done, strict=True):
            by_party[party].append(total)
            if losses is not None:
                losses[party] += loss
        return np.stack([_pairwise(parts) for parts in by_party])

    def _sum(
        self,
        theta: Array,
        rows: Array,
        labels: NDArray[Any],
        clip: float | None,
        *,
        measured: bool,
    ) -> tuple[Array, float]:
        """`[d]` the sum of the records' gradients, and of their losses."""
        total, loss = np.zeros(self.dimension), 0.0
        classes = np.asarray(theta.reshape(self.loss.outputs, self.features), np.float64)
        for begin in range(0, len(rows), TILE):
            x = rows[begin : begin + TILE].astype(np.float64)
            with np.errstate(all="ignore"):  # a margin that overflows is a slope that is dropped
                margins = own_margins(x, classes)
                if self.loss.outputs == 1:
                    margins = margins[:, 0]
                values, slopes = self._slopes(
                    margins, labels[begin : begin + TILE], x, clip, measured
                )
                if measured:
                    loss += float(values.sum())
            total += self.pull_back(slopes, x)
        return total, loss

    def _party_margins(self, theta: Array, x: Array, sizes: NDArray[np.int64]) -> Array:
        """Margins of consecutive parties' rows `[rows, p]`, θ shared `[d]` or one each."""
        if self.loss.outputs == 1:
            return self.margins(theta if theta.ndim == 1 else np.repeat(theta, sizes, axis=0), x)
        each = np.broadcast_to(theta, (len(sizes), self.dimension))
        ends = np.cumsum(sizes)
        parts = zip(each, ends - sizes, ends, strict=True)
        return np.concatenate([self.margins(own, x[start:end]) for own, start, end in parts])

    def _chunk_rows(self, features: Array) -> int:
        return max(CHUNK_BYTES // (features.itemsize * self.features), 1)

    def _check(self, theta: Array, features: Array, *, parties: int | None = None) -> None:
        if features.ndim != 2 or features.shape[1] != self.features:
            raise ValueError(f"Expected rows of {self.features} features, got {features.shape}.")
        if theta.shape not in ((self.dimension,), (parties, self.dimension)):
            raise ValueError(f"Expected theta of {self.dimension} entries, got {theta.shape}.")

    def evaluate(
        self, theta: Array, features: Array, labels: NDArray[Any], lambda_: float
    ) -> tuple[float, float]:
        """Regularised mean loss and metric over records, in one pass.

        Returns:
            (mean loss + (λ/2)‖θ‖₂², accuracy; R² for ridge).
        """
        self._check(theta, features)
        local = np.ascontiguousarray(theta, features.dtype)

        def measure(first: int, last: int) -> tuple[float, float]:
            margins = self.margins(local, features[first:last])
            own = _as(labels[first:last], margins)
            values = self.loss.value_and_slope(margins, own)[0]
            return float(values.sum(dtype=np.float64)), self.loss.score(margins, own)

        count = len(features)
        rows = self._chunk_rows(features)
        ranges = [(begin, min(begin + rows, count)) for begin in range(0, count, rows)]
        parts = np.sum(for_each_chunk(measure, ranges), axis=0)
        loss = parts[0] / count + lambda_ / 2 * float(np.vdot(theta, theta))
        if self.loss.metric_name == "accuracy":
            return float(loss), float(parts[1] / count)
        spread = float(np.square(labels - labels.mean(dtype=np.float64)).sum(dtype=np.float64))
        return float(loss), float(1 - parts[1] / spread) if spread else float("nan")

    def check_labels(self, labels: NDArray[Any]) -> None:
        """Raise ValueError unless every label is one that the loss is defined for."""
        self.loss.check_labels(labels)

    def metric(self, theta: Array, features: Array, labels: NDArray[Any]) -> float:
        """Accuracy; for ridge R² (NaN where all labels are equal)."""
        return self.evaluate(theta, features, labels, 0.0)[1]

    @property
    def class_weights(self) -> tuple[float, ...]:
        """Of the labels in their order; (): all 1."""
        return tuple(getattr(self.loss, "weights", ()))

    def chances(self, margins: Array) -> Array | None:
        """Probabilities of the labels; None: margins only rank."""
        return self.loss.chances(margins)

    def predict(self, theta: Array, features: Array) -> NDArray[Any]:
        """Predicted labels `[N]` of prepared rows: −1/+1, classes, or real values (ridge)."""
        self._check(theta, features)
        return self.loss.predict(
            self.margins(np.ascontiguousarray(theta, features.dtype), features)
        )


def _pairwise(parts: list[Array]) -> Array:
    """The sum of `[d]` arrays, by halves."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return np.asarray(_pairwise(parts[:half]) + _pairwise(parts[half:]))


def _as(labels: NDArray[Any], margins: Array) -> NDArray[Any]:
    # Class numbers stay integers; signs and targets take the margins' precision.
    return labels if labels.ndim < margins.ndim else labels.astype(margins.dtype, copy=False)
