"""No code outside a registry compares a value with the name or class of one of its rows.

A comparison with the name of a noise distribution, a noise point, an algorithm, a query or an
engine, or an `isinstance` check of its class, would have to be found and changed for the next one.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from parley.client.algorithms.algorithm_spec import NETWORKS
from parley.client.algorithms.registry import ALGORITHMS
from parley.client.data.schema import COLUMN_KINDS
from parley.client.models.loss_registry import LOSSES
from parley.client.queries.registry import QUERIES
from parley.deploy.process_engines import ENGINES
from parley.module_loading.plugin_table import PluginTable
from parley.privacy.accounting.accountants import ACCOUNTANTS
from parley.privacy.accounting.privacy_events import EVENTS
from parley.privacy.accounting.threat_model import NOISE_POINTS
from parley.privacy.calibration.noise_calibration import GAUSSIAN_CALIBRATIONS
from parley.privacy.mechanisms.noise_shares import SHARED_LAWS
from parley.privacy.mechanisms.registry import MECHANISMS
from parley.server.jobs.section_registry import ALGORITHM_SECTIONS, MODELS
from parley.server.planning.query_planner import NOISE_REPLACEMENTS
from parley.server.planning.session_terms import QUERY_LAWS

ROOT = Path(__file__).parent.parent

NAMES = {
    *MECHANISMS, *SHARED_LAWS, "dp-sgd", *ALGORITHMS, *LOSSES, *NETWORKS, *ENGINES, "fast",
    *(set(GAUSSIAN_CALIBRATIONS) - {"exact", "as-printed"}), *(set(COLUMN_KINDS) - {"label"}),
    *ACCOUNTANTS, *QUERIES, *QUERY_LAWS, *NOISE_REPLACEMENTS,
}  # fmt: skip
"""Keys of the tables, but for three that are words of other things."""

CLASSES = {
    *(law.__name__ for law in MECHANISMS.values()), "GaussianLaw", "LaplaceLaw", "PartySteps",
    "SampledGaussian", *(loss.__name__ for loss in LOSSES.values()), "LinearModel", "Network",
    *(section.__name__ for section in (*ALGORITHM_SECTIONS.values(), *MODELS.values())), "Linear",
    "SecondMoments", *(event.__name__ for event in EVENTS.values()),
    *(column.__name__ for column in COLUMN_KINDS.values()),
    *(query.__name__ for query in QUERIES.values()), "Laplace", "ObjectivePerturbation", "Reports",
}  # fmt: skip
"""What stands in the tables, and what it derives from."""

EXCEPTIONS = {
    "client/algorithms/query_release.py": "records that answer for themselves: one query can ask "
    "them",
    "client/algorithms/held_out_histogram.py": "a linear model scores rows alone or together",
    "client/data/": "columns are read where they are described: one room, its own union",
    "client/features/": "a map says which columns it takes",
    "client/party/loaded_dataset.py": "a linear model's loss knows labels, everything else takes "
    "classes",
    "client/queries/moments.py": "counts and sums are balanced by the norm of the noise",
    "parley/presentation/disclosure_tables.py": "a page counts a column by its kind",
    "parley/starter/starter_folder.py": "a first notebook asks for a mean of a numeric column; a "
    "first network has classes",
    "privacy/accounting/": "an accountant is proved for some events: its row says for which",
    "server/planning/non_additive_releases.py": "its law plans the one query that it is for",
    "server/jobs/job_file.py": "parties.count has the name of a query",
    "server/jobs/run_section.py": "the one line that says which engine is one process",
}
"""A file or folder → why its lines may."""


def names_a_point(node: ast.Compare | ast.Match) -> bool:
    """Whether a line compares a noise point, or its name, with a row of the table."""
    sides: list[ast.AST] = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
    if isinstance(node, ast.Match):
        sides = [node.subject, *(case.pattern for case in node.cases)]
    parts = [part for side in sides for part in ast.walk(side)]
    words = {part.id for part in parts if isinstance(part, ast.Name)}
    if "INSIDE" in words:
        return True
    texts = {part.value for part in parts if isinstance(part, ast.Constant)}
    words |= {part.attr for part in parts if isinstance(part, ast.Attribute)}
    named = {text for text in texts if isinstance(text, str)} & {*NOISE_POINTS}
    return bool(named) and any("point" in word.lower() for word in words)


def asked(tree: ast.AST) -> Iterator[int]:
    """Lines that branch on a name or a class of the tables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.Match) and names_a_point(node):
            yield node.lineno
        if isinstance(node, ast.Dict):  # another table of the same rows
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
            if keys >= {*NOISE_POINTS}:
                yield node.lineno
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            parts = [part for side in sides for part in ast.walk(side)]
            names = {part.value for part in parts if isinstance(part, ast.Constant)}
            classes = {side.id for side in sides if isinstance(side, ast.Name)}
        elif isinstance(node, ast.MatchValue | ast.MatchClass):
            names = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
            classes = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"isinstance", "issubclass"}
        ):
            parts = list(ast.walk(node.args[1]))
            names = set()
            classes = {part.id for part in parts if isinstance(part, ast.Name)}
            classes |= {part.attr for part in parts if isinstance(part, ast.Attribute)}
        else:
            continue
        if NAMES & {name for name in names if isinstance(name, str)} or CLASSES & classes:
            yield node.lineno


@pytest.fixture(scope="module")
def sources() -> list[tuple[str, ast.Module]]:
    """Every file of the six packages, by its path in the repository."""
    return [
        (str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8")))
        for room in ("parley", "simulations", "server", "client", "secure_agg", "privacy")
        for path in sorted((ROOT / room).rglob("*.py"))
    ]


def test_lines_that_ask_which_extension_they_have_are_in_the_tables_or_needed_exceptions(
    sources: list[tuple[str, ast.Module]],
) -> None:
    found = [f"{name}:{line}" for name, tree in sources for line in asked(tree)]
    assert [place for place in found if not place.startswith(tuple(EXCEPTIONS))] == []
    assert [name for name in EXCEPTIONS if not any(f.startswith(name) for f in found)] == []


@pytest.mark.parametrize(
    "line",
    [
        "if law == 'l2-laplace': pass",
        "if kind in {'fedavg', 'other'}: pass",
        "if isinstance(noise, (PartySteps, int)): pass",
        "if isinstance(noise, table.Gaussian): pass",
        "if type(loss) is SquaredLoss: pass",
        "match law:\n    case 'gaussian': pass",
        "match loss:\n    case SoftmaxLoss(): pass",
        "if job.privacy.noise_point == 'server': pass",
        "if str(own.noise_point) in ('share', 'party'): pass",
        "if point is NOISE_POINTS['share']: pass",
        "if point != INSIDE: pass",
        "match noise_point:\n    case 'party': pass",
        "scaled = {'server': 1, 'share': 2, 'party': 3}",
    ],
)
def test_a_line_that_asks_is_seen(line: str) -> None:
    assert list(asked(ast.parse(line)))


def test_no_function_is_longer_than_80_lines(sources: list[tuple[str, ast.Module]]) -> None:
    long = [
        f"{name}:{node.lineno} {node.name}"
        for name, tree in sources
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= 80
    ]
    assert not long


def test_public_class_names_are_unique(sources: list[tuple[str, ast.Module]]) -> None:
    """A reader who sees a name knows which class it is, whatever the package."""
    defined: dict[str, list[str]] = {}
    for file, tree in sources:
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined.setdefault(node.name, []).append(file)
    assert {name: files for name, files in defined.items() if len(files) > 1} == {}


def _find_tables(sources: list[tuple[str, ast.Module]]) -> Iterator[tuple[str, PluginTable[Any]]]:
    """Yield each registry by its module and name."""
    for file, tree in sources:
        for node in tree.body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Call)
                and "PluginTable" in ast.unparse(node.value.func)
            ):
                module = file.removesuffix(".py").replace("/", ".").removeprefix("parley.")
                name = ast.unparse(node.targets[0])
                yield name, getattr(import_module(f"parley.{module}"), name)


def test_every_row_of_every_registry_names_something_that_its_file_defines(
    sources: list[tuple[str, ast.Module]],
) -> None:
    tables = dict(_find_tables(sources))
    assert {"ALGORITHMS", "QUERIES", "MECHANISMS", "FEATURES", "MODELS", "FORMATS"} <= set(tables)
    trees = {
        "parley." + file.removesuffix(".py").replace("/", ".").removeprefix("parley."): tree
        for file, tree in sources
    }
    for name, table in tables.items():
        for row in table.rows.values():
            module, _, attribute = row.partition(":")
            defined = {
                getattr(node, "name", "") or ast.unparse(getattr(node, "targets", [node])[0])
                for node in trees[module].body
            }
            assert attribute in defined, (name, row)


def test_a_registry_imports_none_of_its_rows() -> None:
    """In a process of its own: asking for the names of all registries loads no plug-in."""
    code = (
        "import sys\n"
        "from parley.client.queries.registry import QUERIES\n"
        "from parley.client.features.registry import FEATURES\n"
        "from parley.client.models.loss_registry import LOSSES\n"
        "from parley.client.algorithms.registry import ALGORITHMS\n"
        "from parley.privacy.mechanisms.registry import MECHANISM_CLASSES\n"
        "from parley.server.jobs.section_registry import ALGORITHM_SECTIONS, MODELS\n"
        "tables = QUERIES, FEATURES, LOSSES, ALGORITHMS, MECHANISM_CLASSES, ALGORITHM_SECTIONS, "
        "MODELS\n"
        "rows = {row.partition(':')[0] for table in tables for row in table.rows.values()}\n"
        "print(*sorted(rows & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
