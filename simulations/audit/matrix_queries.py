"""The rows of the matrix that are queries: every kind, law, noise point, relation and unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from parley.client.data.schema import Schema
from parley.client.queries.balance import Balance
from parley.client.queries.base import Query
from parley.client.queries.choose import Choose
from parley.client.queries.choose_best import ChooseBest
from parley.client.queries.count import Count
from parley.client.queries.counting import Counting
from parley.client.queries.histogram import Histogram
from parley.client.queries.kmeans_grid import KMeansGrid
from parley.client.queries.kmeans_step import KMeansStep
from parley.client.queries.marginals import Marginals
from parley.client.queries.mean import Mean
from parley.client.queries.quantiles import Quantiles
from parley.client.queries.total import Total
from parley.client.queries.variance import Variance
from parley.client.where import col
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.accounting.noise_points import NOISE_POINTS
from parley.simulations.audit.asked import asked
from parley.simulations.audit.audited import Audited
from parley.simulations.audit.measure import views

SCHEMA = Schema.from_toml("""
[columns]
age = { kind = "numeric", range = [0, 10] }
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
    (Total(column="stay"),),
    (Total(column="stay", by=("sex",)),),
    (Mean(column="age"),),
    (Mean(column="stay", where=col.sex == "Male"),),
    (Mean(column="age", by=("ward",)),),
    (Variance(column="stay", by=("sex",)),),
    (Quantiles(column="age", step=0.05),),
    (Marginals(of=("sex", "ward", "sick")),),
    (Choose(column="ward", by=("sex",)),),
    (ChooseBest(of=("ridge", "forest")),),
    (KMeansGrid(of=("age", "stay"), clusters=2, grid=4),),
    (Balance(column="age", border=4.5, share=0.25),),
    (KMeansStep(of=("age", "stay"), centres=(-0.5, -0.5, 0.5, 0.5)),),
    (Count(by=("sex",)), Mean(column="age"), Histogram(column="ward")),
)
"""Queries of every kind that noise is added to, by themselves and together."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One batch of queries, as a session is asked for it.

    Attributes:
        queries, law, point, relation, counting: of the session.
        records: of each party of a world.
    """

    queries: tuple[Query, ...]
    law: str
    point: str
    relation: Neighbouring
    counting: Counting = field(default_factory=Counting)
    records: int = 2

    def __str__(self) -> str:
        """A name for reports and tests."""
        kinds = "+".join(query.kind for query in self.queries)
        unit = str(self.counting.unit)
        return "-".join((kinds, self.law, self.point, str(self.relation), unit))

    def claims(self, *, seed: int | None) -> Iterator[Audited]:
        """What is claimed of it, at ε = 1."""
        return views(
            asked(
                self.queries,
                SCHEMA,
                epsilon=1.0,
                law=self.law,
                noise_point=NOISE_POINTS[self.point],
                neighbouring=self.relation,
                counting=self.counting,
                records=self.records,
                seed=seed,
            )
        )


_SERVER, _SHARE = "server", "share"
_REPLACE, _ADD = Neighbouring
_PERSON = Counting(unit=Unit.PERSON, most=3)
_PARTY = Counting(unit=Unit.PARTY, most=2, clip="l1")  # the law's own norm takes its place

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
