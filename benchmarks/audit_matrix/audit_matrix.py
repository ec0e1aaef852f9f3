"""Audit the matrix of all noise distributions, algorithms, queries, units, relations and gradients.

    OMP_NUM_THREADS=1 python benchmarks/audit_matrix/audit_matrix.py [--short] [KEY=VALUE...]

Prints each claim and its bounds, from as many worlds as are cheap (`--short`: from few, in a minute
or two). KEY=VALUE overrides a key of every job. The exit status is 4 if a claim is refuted. A row
of `ALGORITHMS`, `QUERIES` or `MECHANISMS` without a case here fails a test.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from parley.audit.audit_result_text import format_report
from parley.client.data.schema import Schema
from parley.client.queries.base import Query
from parley.client.queries.correlations import CorrelationsQuery
from parley.client.queries.count_queries import Count, Histogram, MarginalsQuery
from parley.client.queries.filters.expressions import col
from parley.client.queries.kmeans import KMeansGrid, KMeansStep
from parley.client.queries.mode_query import Mode
from parley.client.queries.moments import Mean, Variance
from parley.client.queries.quantiles import Quantiles
from parley.client.queries.query_batch import Counting
from parley.client.queries.regression.regression_query import RegressionQuery
from parley.client.queries.selection_queries import ChooseBest
from parley.client.queries.sum_queries import Balance, ColumnSum
from parley.client.queries.survival import Survival
from parley.privacy.accounting.threat_model import NOISE_POINTS, Neighbouring, Unit
from parley.server.jobs.job_file import load_job
from parley.simulations.audit.audit_results import AuditReport, combine_verdicts
from parley.simulations.audit.audit_target import AuditTarget, build_query_target
from parley.simulations.audit.guarantee_audit import (
    Effort,
    audit_guarantee,
    choose_trials,
    list_job_targets,
    list_views,
)

_GRADIENT = ("algorithm.rounds=4", "algorithm.clip-norm=0.4", "privacy.noise-point=server")
_OUTPUT = (
    "algorithm.kind=output-perturbation",
    "model.kind=huber-svm",
    "model.lambda=1",
    "privacy.noise-point=server",
)
_DP_SGD = (
    "algorithm.kind=fedavg",
    "model.kind=mlp",
    "parties.min-records=100",
    "privacy.epsilon=4",
    "algorithm.rounds=3",
    "dp-sgd.local-steps=1",
)
_STEPS = (*_DP_SGD, "algorithm.kind=distributed-dp-sgd", "algorithm.rounds=2")
_SHARES = ("privacy.noise-point=share", "parties.count=5")
_FULL = "dp-sgd.sampling-rate=1"
_ADD = "privacy.neighbouring=add-or-remove-one"
_DISCRETE = ("privacy.noise=discrete-gaussian", "privacy.calibration=cks20")
_TABLES = ("algorithm.kind=marginals", "model.kind=table", "parties.min-records=100")
_FEATURES = (
    *("algorithm.kind=random-features", "algorithm.frequencies=8"),
    *("model.kind=table", "parties.min-records=100"),
)
_COUNTED = (
    "algorithm.rounds=1",
    "parties.min-records=100",
    "evaluation.kind=federated",
    "evaluation.epsilon=1",
)

CASES: tuple[tuple[str, ...], ...] = (
    # Gradient perturbation: each noise distribution, loss and weighting.
    (*_GRADIENT, "privacy.noise=gaussian"),
    (*_GRADIENT, *_DISCRETE),
    (*_GRADIENT, "privacy.noise=l2-laplace"),
    (*_GRADIENT, "privacy.noise=laplace-l1"),
    (*_GRADIENT, "privacy.noise=laplace-as-printed"),
    ("algorithm.rounds=4", "privacy.epsilon=4", "privacy.noise-point=server"),
    (
        "algorithm.rounds=2",
        "model.kind=softmax",
        "data.source=digits",
        "privacy.noise-point=server",
    ),
    (
        "algorithm.rounds=2",
        "model.kind=huber-svm",
        "parties.weights=size",
        "privacy.noise-point=server",
    ),
    (*_GRADIENT, "privacy.calibration=as-printed"),
    # Noise in shares: the sum that a server with colluders sees, and the sum that readers see.
    (*_GRADIENT, *_SHARES, "privacy.noise=gaussian"),
    (*_SHARES, "algorithm.rounds=1", "privacy.noise=laplace-l1"),
    (*_SHARES, "algorithm.rounds=1", "privacy.noise=l2-laplace"),
    # Output perturbation: each noise distribution.
    (*_OUTPUT, "privacy.noise=l2-laplace"),
    (*_OUTPUT, "privacy.noise=laplace-l1"),
    (*_OUTPUT, "privacy.noise=laplace-as-printed"),
    (*_OUTPUT, "privacy.noise=gaussian"),
    (*_OUTPUT, *_DISCRETE),
    # DP-SGD: relations, sampling, units, and each method of per-record gradients.
    (*_DP_SGD, _FULL),
    (*_DP_SGD, _FULL, _ADD),
    (*_DP_SGD, "dp-sgd.sampling-rate=0.25"),
    (*_DP_SGD, "dp-sgd.sampling-rate=0.25", _ADD),
    (*_DP_SGD, _FULL, "dp-sgd.clipped-fraction-share=0.05"),
    (*_DP_SGD, _FULL, "dp-sgd.precision=float32"),
    (*_DP_SGD, _FULL, "dp-sgd.per-example-method=vmap", "model.hidden=[]"),
    (*_DP_SGD, _FULL, "model.hidden=[]"),
    (*_DP_SGD, "privacy.unit=party", "privacy.noise-point=server"),
    (*_DP_SGD, "privacy.unit=party", *_SHARES),
    (*_DP_SGD, "privacy.unit=both", "dp-sgd.sampling-rate=0.5", "privacy.noise-point=server"),
    # Each party takes part in a round by its own coin.
    (*_DP_SGD, "privacy.unit=party", "parties.per-round=0.5", "privacy.noise-point=server"),
    (*_DP_SGD, "privacy.unit=party", "parties.per-round=0.5", _ADD, "privacy.noise-point=server"),
    # A release before the rounds, and rounds that use it.
    (*_DP_SGD, _FULL, "model.kind=pca-mlp", "privacy.noise-point=server"),
    (*_DP_SGD, _FULL, "model.kind=pca-mlp", _ADD, *_SHARES),
    # Distributed DP-SGD: one secure sum per step.
    (*_STEPS, _FULL, "privacy.noise-point=server"),
    (*_STEPS, _FULL, *_SHARES),
    (*_STEPS, "dp-sgd.sampling-rate=0.25", _ADD, "privacy.noise-point=server"),
    (*_STEPS, "dp-sgd.sampling-rate=0.25", "privacy.unit=both", "privacy.noise-point=server"),
    (*_STEPS, _FULL, "privacy.unit=party", "privacy.noise-point=server"),
    # Full noise in every party.
    (*_GRADIENT[:2], "privacy.noise-point=party"),
    (*_OUTPUT[:3], "privacy.noise-point=party"),
    ("algorithm.kind=objective-perturbation", "model.lambda=1", "privacy.noise-point=party"),
    # As in their papers; the claim is what is charged, not what is printed.
    ("algorithm.kind=pathak", *_OUTPUT[1:], "parties.count=2"),
    ("algorithm.kind=rajkumar-agarwal", *_GRADIENT, "privacy.epsilon=0.5"),
    # Pair tables, for synthetic rows.
    (*_TABLES, "privacy.noise-point=server"),
    (*_TABLES, *_DISCRETE, "privacy.noise-point=server"),
    (*_TABLES, _ADD, *_SHARES),
    (*_FEATURES, "privacy.noise-point=server"),
    (*_FEATURES, _ADD, *_SHARES),
    # After the rounds: held-out records, by label and score.
    (*_COUNTED, "privacy.noise-point=server"),
    (*_COUNTED, _ADD, "evaluation.edges=[0.2]", *_SHARES),
)

_SEEN: tuple[tuple[str, ...], ...] = (
    # A record is charged for the rounds in which its party's coin selects it. The coin is public.
    (*_DP_SGD, _FULL, "parties.per-round=0.5"),
    (*_DP_SGD, "dp-sgd.sampling-rate=0.25", "parties.per-round=0.5", _ADD),
)

SCHEMA = Schema.from_toml("""
[columns]
age = { kind = "numeric", range = [0, 10], outside = "refuse" }
stay = { kind = "numeric", range = [-1, 1] }
sex = { kind = "categorical", categories = ["Female", "Male"], missing = "Male" }
ward = { kind = "categorical", categories = ["a", "b", "c"], missing = "a" }
ridge = { kind = "numeric", range = [0, 1] }
forest = { kind = "numeric", range = [0, 1] }
sick = { kind = "label", positive = "yes", negative = "no" }
""")

BATCHES: tuple[tuple[Query, ...], ...] = (
    (Count(by=("ward",)),),
    (Count(where=col.age > 4),),
    (Histogram(column="age", bins=4),),
    (ColumnSum(column="stay"),),
    (ColumnSum(column="stay", by=("sex",)),),
    (Mean(column="age"),),
    (Mean(column="stay", where=col.sex == "Male"),),
    (Mean(column="age", by=("ward",)),),
    (Variance(column="stay", by=("sex",)),),
    (Quantiles(column="age", step=0.05),),
    (MarginalsQuery(of=("sex", "ward", "sick")),),
    (Mode(column="ward", by=("sex",)),),
    (ChooseBest(of=("ridge", "forest")),),
    (KMeansGrid(of=("age", "stay"), clusters=2, grid=4),),
    (Balance(column="age", border=4.5, share=0.25),),
    (Survival(column="age", event="sick", occurred="yes", bins=4, by=("sex",)),),
    (RegressionQuery(column="sick", of=("age", "ward"), family="logistic", occurred="yes"),),
    (CorrelationsQuery(of=("age", "stay", "ward")),),
    (KMeansStep(of=("age", "stay"), centres=(-0.5, -0.5, 0.5, 0.5)),),
    (Count(by=("sex",)), Mean(column="age"), Histogram(column="ward")),
)
"""Queries of every kind with additive noise, separately and together."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One batch of queries, as a session receives it, with `records` per party of a world."""

    queries: tuple[Query, ...]
    law: str
    point: str
    relation: Neighbouring
    counting: Counting = field(default_factory=Counting)
    records: int = 2

    def claims(self) -> Iterator[AuditTarget]:
        """Yield the claims of the batch, at ε = 1."""
        return list_views(
            build_query_target(
                self.queries,
                SCHEMA,
                epsilon=1.0,
                law=self.law,
                noise_point=NOISE_POINTS[self.point],
                neighbouring=self.relation,
                counting=self.counting,
                records=self.records,
            )
        )


_SERVER, _SHARE = "server", "share"
_REPLACE, _ADD = Neighbouring
_PERSON = Counting(unit=Unit.PERSON, most=3)
_PARTY = Counting(unit=Unit.PARTY, most=2, clip="l1")  # replaced by the distribution's own norm

_OF_RECORDS = (
    *product(("laplace", "gaussian"), (_SERVER,), Neighbouring),
    ("gaussian", _SHARE, _REPLACE),
    ("laplace", _SHARE, _ADD),
)
_OF_PERSONS = (
    *product(("laplace", "gaussian"), (_SERVER,), ((_REPLACE, 3), (_ADD, 4))),
    ("laplace", _SHARE, (_REPLACE, 3)),
    ("gaussian", _SHARE, (_ADD, 4)),
)
_OF_PARTIES = (
    *product(("laplace", "gaussian"), (_SERVER,), Neighbouring),
    *product(("laplace", "gaussian"), (_SHARE,), (_REPLACE,)),
)
_FEW = tuple(BATCHES[place] for place in (0, 1, 6, 15))

ASKED: tuple[Asked, ...] = (
    *(
        Asked(queries=batch, law=law, point=point, relation=relation)
        for batch, (law, point, relation) in product(BATCHES, _OF_RECORDS)
    ),
    *(
        Asked(
            queries=batch,
            law=law,
            point=point,
            relation=relation,
            counting=_PERSON,
            records=records,
        )
        for batch, (law, point, (relation, records)) in product(_FEW, _OF_PERSONS)
    ),
    *(
        Asked(queries=batch, law=law, point=point, relation=relation, counting=_PARTY, records=6)
        for batch, (law, point, relation) in product(BATCHES, _OF_PARTIES)
    ),
)

Row = tuple[str, ...] | Asked
ROWS: tuple[Row, ...] = (*CASES, *ASKED, *_SEEN)
"""All rows; new ones are appended, because results refer to row numbers."""


def matrix(*, overrides: Sequence[str] = ()) -> Iterator[AuditTarget]:
    """Yield every claim of every row; `overrides` apply to every job."""
    for row in ROWS:
        yield from claims_of(row, overrides=overrides)


def claims_of(row: Row, *, overrides: Sequence[str] = ()) -> Iterator[AuditTarget]:
    """Yield every claim of one row."""
    if isinstance(row, Asked):
        return row.claims()
    return list_job_targets(load_job(None, overrides=[*row, *overrides]), seed=None)


def reports(overrides: Sequence[str], *, short: bool) -> Iterator[AuditReport]:
    """Yield the audit of every claim, and of the mechanisms without additive noise."""
    from audited_choices import CHOICES, audit_choice

    for claim in matrix(overrides=overrides):
        yield audit_guarantee(claim, Effort(trials=choose_trials(claim, short=short)))
    for law in CHOICES:
        yield audit_choice(law, Effort(trials=1_000 if short else 50_000))


def main() -> None:
    verdicts = []
    overrides = [word for word in sys.argv[1:] if "=" in word]
    for report in reports(overrides, short="--short" in sys.argv):
        print(*format_report(report), sep="\n", flush=True)
        verdicts.append(report.verdict)
    print(verdict := combine_verdicts(verdicts))
    sys.exit(4 if verdict == "refuted" else 0)


if __name__ == "__main__":
    main()
