"""How labels and sizes are spread over parties, from small tables whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from parley.presentation.label_distribution import _describe_finding
from parley.server.jobs.job_file import load_job
from parley.server.records.run_summary import LabelSkew
from parley.simulations.engine.fast_engine import simulate
from parley.simulations.metrics.heterogeneity_figures import QUANTILES, compute_label_distribution


def test_counts_shares_and_distance_of_a_small_table() -> None:
    told = compute_label_distribution(np.array([-1, -1, 1, 1, 1, 1, -1, 1]), np.array([0, 2, 4, 8]))
    assert told.labels == ("−1", "1")
    assert told.counts == ((2, 0), (0, 2), (1, 3))
    assert told.overall == (3 / 8, 5 / 8)
    # Total variation from (3/8, 5/8): of (1, 0), (0, 1), (1/4, 3/4).
    assert told.skew.largest == 5 / 8
    assert told.skew.mean == pytest.approx((5 / 8 + 3 / 8 + 1 / 8) / 3)
    assert told.commonest[0] == 0.75
    assert (told.sizes[0], told.sizes[-1]) == (2, 4)
    assert told.shares is None


def test_many_parties_are_told_by_quantiles() -> None:
    labels = np.tile([0, 1, 2, 2], 31)
    told = compute_label_distribution(labels, np.arange(0, len(labels) + 1, 4))
    assert told.counts is None
    assert told.shares == ((0.25,) * len(QUANTILES),) * 2 + ((0.5,) * len(QUANTILES),)
    assert told.skew == LabelSkew(mean=0.0, largest=0.0)


def test_labels_beyond_the_commonest_are_one() -> None:
    labels = np.concatenate([np.arange(40), np.arange(12), np.arange(12)])
    told = compute_label_distribution(labels, np.array([0, 32, 64]))
    assert told.labels == (*(str(k) for k in range(12)), "other")
    assert sum(map(sum, told.counts)) == 64
    assert told.overall[-1] == 28 / 64
    assert (told.commonest[0], told.commonest[-1]) == (1 / 32, 2 / 32)
    assert "ver all parties it is 4.7 %" in _describe_finding(told)


def test_numbers_are_told_by_fifths() -> None:
    labels = np.concatenate([np.linspace(-1, 0, 50), np.linspace(0.02, 1, 50)])
    told = compute_label_distribution(labels, np.array([0, 50, 100]), numeric=True)
    assert len(told.labels) == 5
    assert told.overall == pytest.approx([0.2] * 5)
    assert told.counts[0][4] == 0 == told.counts[1][0]
    constant = compute_label_distribution(np.ones(4), np.array([0, 2, 4]), numeric=True)
    assert constant.overall == (1.0,)


@pytest.mark.parametrize(
    ("overrides", "kind"),
    [
        ([], "iid"),
        (["data.partition=dirichlet", "data.dirichlet-alpha=0.1"], "dirichlet"),
        (["data.partition=sizes", "data.sizes=[50,100,150]", "parties.count=3"], "sizes"),
    ],
)
@pytest.mark.usefixtures("no_baseline")
def test_a_run_tells_its_partition(tmp_path, overrides, kind) -> None:
    more = ["algorithm.rounds=1", "run.seed=1", "secure-aggregation.masked-check=false"]
    summary = simulate(load_job(overrides=[*more, *overrides]), out=tmp_path / "r").summary
    told = summary.partition
    assert told.kind == kind
    assert tuple(map(sum, told.counts)) == summary.records_by_party
    assert "partition" in summary.simulation_only
    from parley.presentation.run_page import write_report

    page = write_report(tmp_path / "r").read_text(encoding="utf-8")
    at = page.index("<h3>Labels by party")
    assert '<span class="sim">simulation only</span>' in page[at : at + 120]
    assert "<script" not in page
