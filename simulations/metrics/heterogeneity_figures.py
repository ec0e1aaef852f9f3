"""Compute how labels and sizes are distributed over the parties: the heterogeneity of a federation.

Only a simulation knows it: every number is computed from all parties' records, without noise. Up to
30 parties are shown each; for more, quantiles over the parties are shown.

    >>> found = compute_label_distribution(np.array([0, 0, 0, 1, 1, 1]), np.array([0, 3, 6]))
    >>> found.labels, found.counts, found.skew
    (('0', '1'), ((3, 0), (0, 3)), LabelSkew(mean=0.5, largest=0.5))
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parley.server.jobs.job import Job
from parley.server.records.run_summary import OTHER_LABELS, LabelSkew, PartitionSummary

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_MAX_PARTIES = 30
_MAX_LABELS = 12
_BINS = 5


def describe_partition(
    job: Job,
    labels: NDArray[np.generic],
    offsets: NDArray[np.int64],
    *,
    label_names: Sequence[str] = (),
    party_names: Sequence[str] = (),
) -> PartitionSummary:
    """Return `partition` of `summary.json`: the label distribution, and the job's rule for the
    split.
    """
    data = job.data
    kind = "files" if data.has_several_files else data.partition
    found = compute_label_distribution(
        labels, offsets, numeric=job.model.metric == "r2", names=label_names
    )
    return found.with_fields(
        parties=tuple(party_names) if found.counts and party_names else None,
        kind=kind,
        alpha=data.dirichlet_alpha if kind == "dirichlet" else None,
        column=data.partition_column if kind == "column" else None,
    )


def compute_label_distribution(
    labels: NDArray[np.generic],
    offsets: NDArray[np.int64],
    *,
    numeric: bool = False,
    names: Sequence[str] = (),
) -> PartitionSummary:
    """Compute the parties' distribution of labels.

    Args:
        offsets: `[B+1]` start of each party's records.
        numeric: labels are numbers, shown by fifths of all of them.
        names: of labels −1 and +1, or of the classes; empty: they are shown unchanged.

    Returns:
        The distribution, without the rule that made it: every party's counts for few parties,
            quantiles for many.
    """
    shown, at = _group_numbers(labels) if numeric else _group_labels(labels, names)
    sizes = np.diff(offsets)
    parties, kinds = len(sizes), len(shown)
    owner = np.repeat(np.arange(parties), sizes)
    counts = np.bincount(owner * kinds + at, minlength=parties * kinds).reshape(parties, kinds)
    overall = counts.sum(axis=0) / counts.sum()
    shares = counts / np.maximum(sizes, 1)[:, None]
    distance = np.abs(shares - overall).sum(axis=1) / 2
    few = parties <= _MAX_PARTIES
    named = shares[:, :-1] if shown[-1] == OTHER_LABELS else shares
    return PartitionSummary(
        labels=shown,
        numeric=numeric,
        overall=overall.tolist(),
        skew=LabelSkew(mean=float(distance.mean()), largest=float(distance.max())),
        quantiles=QUANTILES,
        commonest=np.quantile(named.max(axis=1), QUANTILES).tolist(),
        sizes=np.quantile(sizes, QUANTILES).tolist(),
        counts=counts.tolist() if few else None,
        shares=None if few else np.quantile(shares, QUANTILES, axis=0).T.tolist(),
    )


def _group_labels(
    labels: NDArray[np.generic], label_names: Sequence[str]
) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names and positions of labels; all beyond the most common are one."""
    values, at, counts = np.unique(labels, return_inverse=True, return_counts=True)
    names = [
        label_names[max(int(value), 0)] if label_names else f"{value:g}".replace("-", "−")
        for value in values.astype(np.float64)
    ]
    if len(values) <= _MAX_LABELS + 1:
        return names, at.astype(np.int64)
    kept = np.sort(np.argsort(-counts, kind="stable")[:_MAX_LABELS])
    place = np.full(len(values), _MAX_LABELS)
    place[kept] = np.arange(_MAX_LABELS)
    return [*(names[i] for i in kept), OTHER_LABELS], place[at]


def _group_numbers(labels: NDArray[np.generic]) -> tuple[list[str], NDArray[np.int64]]:
    """Return fifths of numbers, each named by its upper end."""
    values = labels.astype(np.float64)
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:]))
    names = [f"≤ {edge:.3g}".replace("-", "−") for edge in edges]
    return names, np.searchsorted(edges, values).clip(max=len(edges) - 1)
