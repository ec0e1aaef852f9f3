"""An algorithm, a query and a page are each one new file, and a row of text that names it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import parley
from parley.cli import app
from parley.client.algorithms.registry import ALGORITHMS
from parley.client.queries.registry import QUERIES
from parley.presentation.json_renderer import to_json
from parley.presentation.page_registry import PAGES, write_page
from parley.server.jobs.job_file import load_job
from parley.terminal.document_output import print_document

_ALGORITHM = """
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parley.client.algorithms.base import Claim, Contribution
from parley.client.algorithms.own_algorithm import Statistic, build_class_spec
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sensitivity.bounded_sets import Set


@dataclass(frozen=True, kw_only=True)
class RecordCount(Statistic):
    kind: ClassVar[str] = "record-count"
    title: ClassVar[str] = "record count"
    assumption: ClassVar[str] = ""

    most: int = 1000

    @property
    def dimension(self):
        return 1

    def claim(self, facts):
        return Claim(
            dimension=1,
            features=self.features,
            bound=float(self.most),
            lies_in=Set.interval(1, 1),
            unit=Unit.RECORD,
            neighbouring=Neighbouring.ADD_OR_REMOVE_ONE,
        )

    def local(self, state, block, plan, randomness):
        counts = np.minimum(block.sizes, self.most).astype(np.float64)
        return Contribution(values=counts[:, None], failed=())


SPEC = build_class_spec(RecordCount, "record-count", summed=False)
"""

_QUERY = """
from dataclasses import dataclass
from typing import ClassVar

from parley.client.queries.base import CellGrid, CellSums, Query, Summand


@dataclass(frozen=True)
class Doubled(Query):
    kind: ClassVar[str] = "doubled"

    def list_cell_sums(self, schema, weight):
        def count(block):
            return 2 * weight * (block.columns["age"] >= 0)

        summand = Summand(low=0, high=2 * weight, compute=count)
        return (CellSums(cells=CellGrid(), summands=(summand,)),)

    def build_key_columns(self, schema):
        return {}
"""

_PAGE = """
from parley.presentation.document import Document, Table, build_section, build_text_section


def build_document(name):
    table = Table(caption="Parties", head=["party", "records"], rows=[["1", "<b>"]])
    return Document(
        headline=f"A page of {name}",
        sections=[build_text_section("size", "large"), build_section("Parties", table)],
    )
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("record_count", "doubled", "new_page"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_an_algorithm_is_one_file_and_one_row(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "record_count.py").write_text(_ALGORITHM)
    monkeypatch.setitem(ALGORITHMS.rows, "record-count", "record_count:SPEC")
    keys = [
        *("algorithm.kind=record-count", "algorithm.settings.most=200", "model.kind=none"),
        *("algorithm.rounds=1", "privacy.neighbouring=add-or-remove-one", "privacy.epsilon=20"),
        *("parties.min-records=50", f"run.out={folder}"),
    ]
    run = parley.run(job=load_job(overrides=keys))
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["algorithm"] == "record-count"
    # 569 records in five parties, a fifth of each held out.
    assert abs(5 * run.theta[0] - 455) < 20
    assert "record count" in (run.folder / "report.html").read_text().lower()


def test_a_query_is_one_file_and_one_row(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "doubled.py").write_text(_QUERY)
    monkeypatch.setitem(QUERIES.rows, "doubled", "doubled:Doubled")
    for party in (1, 2):
        ages = [30 + number % 40 for number in range(100)]
        pl.DataFrame({"age": ages, "sick": ["no", "yes"] * 50}).write_csv(
            folder / f"party-{party}.csv"
        )
    (folder / "schema.toml").write_text(
        '[columns]\nage = { kind = "numeric", range = [0, 100] }\n'
        'sick = { kind = "label", positive = "yes", negative = "no" }\n'
    )
    (folder / "queries.toml").write_text(
        '[session]\ndata = "party-*.csv"\nschema = "schema.toml"\nepsilon = 20.0\n'
        '[[query]]\nquery = "doubled"\nepsilon = 10.0\n'
    )
    done = CliRunner().invoke(app, ["query", str(folder / "queries.toml"), "--json"])
    assert done.exit_code == 0, done.output
    assert "doubled" in done.stdout


def test_a_page_is_one_file_and_one_row_and_every_renderer_shows_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "new_page.py").write_text(_PAGE)
    monkeypatch.setitem(PAGES.rows, "new", "new_page:build_document")  # type: ignore[index]
    page = write_page("new", folder / "page.html", "wards").read_text()
    assert "<h1>A page of wards</h1>" in page
    assert "<td>&lt;b&gt;</td>" in page
    document = PAGES["new"]("wards")
    print_document(document)
    words = "A page of wards size large Parties Parties party records 1 <b>"
    assert capsys.readouterr().out.split() == words.split()
    shown = to_json(document)
    assert shown["headline"] == "A page of wards"
    assert shown["sections"][0]["parts"] == [{"kind": "facts", "facts": [["", "large"]]}]
    assert shown["sections"][1]["parts"][0]["rows"] == [["1", "<b>"]]


def test_every_page_of_the_registry_has_its_builder() -> None:
    assert all(callable(PAGES[kind]) for kind in PAGES)
