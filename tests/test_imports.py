"""What a process imports: each kind of process only the code that its job, query or command names.

Code is lines without blanks, comments, docstrings and imports, of all modules of Parley that a
process imports until it ends. `pytest -s tests/test_imports.py` prints the figures.
"""

from __future__ import annotations

import ast
import functools
import io
import os
import subprocess
import sys
import tokenize
from importlib.util import find_spec
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
_CAPS = {"default run": 17_980, "party": 11_575, "server with a training job": 13_820}
"""Most lines of code that a process of each kind imports."""


def _run(folder: Path, *arguments: str) -> dict[str, set[str]]:
    """Run `parley` in a process of its own; return command → modules of it and its children."""
    (folder / "seen").mkdir()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "parley", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(_ROOT), str(_ROOT / "tests" / "fixtures" / "imports_recorded")]
            ),
            "PARLEY_TEST_IMPORTS": str(folder / "seen"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    records = [path.read_text().splitlines() for path in (folder / "seen").iterdir()]
    return {command: set(modules) for command, *modules in records}


@functools.cache
def _find_file(module: str) -> Path | None:
    """Return a module's file; None for a name that is no module."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


@functools.cache
def _count_code_lines(path: Path) -> int:
    """Return a file's lines without blanks, comments, docstrings and imports."""
    text = path.read_text(encoding="utf-8")
    other: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        nodes: list[ast.AST] = []
        if isinstance(node, ast.Module | ast.ClassDef):
            nodes = [*node.body]  # attributes have docstrings, too
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes = [node.body[0]]
        texts = [
            each
            for each in nodes
            if isinstance(each, ast.Expr)
            and isinstance(each.value, ast.Constant)
            and isinstance(each.value.value, str)
        ]
        texts += [node] if isinstance(node, ast.Import | ast.ImportFrom) else []
        for each in texts:
            other |= set(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - other)


def _check_caps(found: dict[str, set[str]]) -> None:
    """Check the lines of each kind of process, and print them."""
    lines = {
        kind: sum(
            _count_code_lines(path) for path in {_find_file(name) for name in modules} if path
        )
        for kind, modules in found.items()
    }
    print({kind: f"{count:,} lines of code" for kind, count in lines.items()})
    assert {kind: count for kind, count in lines.items() if count > _CAPS[kind]} == {}


def test_a_default_run_imports_what_its_job_names(tmp_path: Path) -> None:
    (modules,) = _run(tmp_path, "run", "--seed", "1").values()
    _check_caps({"default run": modules})
    others = {
        "parley.client.algorithms.output_perturbation",
        "parley.client.algorithms.pca_projection",
        "parley.client.data.schema_inference.schema_draft",
        "parley.client.queries.base",
        "parley.privacy.accounting.privacy_filters",
        "parley.privacy.ledger.record_digests",
        "parley.server.jobs.network_algorithms",
        "parley.server.records.run_folder_opening",
        "parley.server.synthetic.generation",
        "parley.simulations.audit.guarantee_audit",
    }
    assert modules & others == set()


def test_a_real_party_and_its_server_import_what_a_training_job_names(tmp_path: Path) -> None:
    """About ten seconds: a server's process and two parties', which start and train one round."""
    keys = ["parties.count=2", "algorithm.rounds=1", "secure-aggregation.corrupt=0"]
    settings = [word for key in keys for word in ("--set", key)]
    found = _run(tmp_path, "run", "--engine", "processes", "--seed", "1", *settings)
    parties = [each for command, each in found.items() if "stream.party_client" in command]
    (server,) = (each for command, each in found.items() if "stream.single_run_server" in command)
    assert len(parties) == 2
    _check_caps({"party": set().union(*parties), "server with a training job": server})


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]], ids=str)
def test_help_imports_no_command(tmp_path: Path, arguments: list[str]) -> None:
    (modules,) = _run(tmp_path, *arguments).values()
    packages = ("parley.client", "parley.server", "parley.simulations", "parley.commands.")
    assert [name for name in modules if name.startswith(packages)] == []
