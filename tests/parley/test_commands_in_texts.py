"""Every command, option and job key that a message, or help text names exists as typed."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer.main

from parley.cli import app
from parley.command_table import LazyCommand
from parley.server.jobs.job import FORMS, Job

ROOT = Path(__file__).parents[2]
CODE = ("client", "parley", "privacy", "secure_agg", "server", "simulations")
STANDS_FOR_A_VALUE = "X"
FILES = (
    "md",
    "toml",
    "py",
    "json",
    "csv",
    "npz",
    "html",
    "key",
    "pem",
    "safetensors",
    "jsonl",
    "sqlite",
)


def test_each_command_in_a_text_of_the_code_exists_with_its_options() -> None:
    wrong = []
    for place, text in _list_texts():
        for quoted, bare in re.findall(r"`(parley [^`]*)`|(?<=: )(parley [a-z][^.;,)]*)", text):
            typed = quoted or bare
            if fault := _find_fault(typed):
                wrong.append(f"{place}: {typed!r}: {fault}")
    assert not wrong, "\n".join(wrong)


def test_each_option_in_a_text_of_the_code_exists() -> None:
    known = {option for command in _list_commands() for option in _list_options(command)}
    wrong = [
        f"{place}: {option}"
        for place, text in _list_texts()
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+(?!\w)", text)
        if option not in known and "parley" not in option and option not in OTHER_PROGRAMS
    ]
    assert not wrong, "\n".join(wrong)


OTHER_PROGRAMS = {"--upgrade", "--head"}
"""Options of pip and Ray that a text of ours names."""


def test_each_job_key_in_a_text_of_the_code_exists() -> None:
    keys, sections = _list_job_keys()
    wrong = []
    for place, text in _list_texts(docstrings=False):
        for section, key in re.findall(
            r"(?<![\w./\\-])([a-z][a-z-]+)\.([a-z][a-z-]+)(?![\w./(\\-])", text
        ):
            if section in sections and (section, key) not in keys and key not in FILES:
                wrong.append(f"{place}: {section}.{key}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "typed", ["parley rum", "parley run --no-such", "parley ledger shwo", "parley run --set a.b=1"]
)
def test_a_text_that_names_what_does_not_exist_would_be_found(typed: str) -> None:
    assert _find_fault(typed)


def _find_fault(typed: str) -> str | None:
    """Return what is wrong with a command line, as far as its words tell without running it."""
    words = typed.split()[1:]
    command: click.Command = typer.main.get_command(app)
    while words and isinstance(command, click.Group) and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        if words[0] not in command.list_commands(click.Context(command)):
            return f"no command {words[0]}"
        command = _load(command, words.pop(0))
    options = _list_options(command)
    for word in words:
        option = word.strip("[]").split("=")[0]
        if re.fullmatch(r"--?[a-z][a-z-]*", option) and option not in options:
            return f"no option {option}"
    keys, _ = _list_job_keys()
    for section, key in re.findall(r"--set '?([a-z-]+)\.([a-z-]+)=", typed):
        if (section, key) not in keys:
            return f"no job key {section}.{key}"
    return None


def _list_commands() -> Iterator[click.Command]:
    todo = [typer.main.get_command(app)]
    while todo:
        command = todo.pop()
        yield command
        if isinstance(command, click.Group):
            todo += [_load(command, name) for name in command.list_commands(click.Context(command))]


def _load(group: click.Group, name: str) -> click.Command:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    return command.loaded if isinstance(command, LazyCommand) else command


def _list_options(command: click.Command) -> set[str]:
    return {
        option
        for parameter in command.get_params(click.Context(command))
        for option in (*parameter.opts, *parameter.secondary_opts)
    }


def _list_job_keys() -> tuple[set[tuple[str, str]], set[str]]:
    keys = set()
    for name, info in Job.model_fields.items():
        section = info.alias or name
        models = FORMS[section].forms.values() if section in FORMS else [info.annotation]
        for model in models:
            for field, about in model.model_fields.items():
                keys.add((section, about.alias or field))
    return keys, {section for section, _ in keys}


def _find_docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield texts that stand as statements: docstrings, which name attributes as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


@functools.cache
def _list_texts(*, docstrings: bool = True) -> list[tuple[str, str]]:
    """Return the texts in the code with their places; values in f-strings become one letter."""
    return [(place, text) for place, text, is_doc in _find_texts() if docstrings or not is_doc]


@functools.cache
def _find_texts() -> tuple[tuple[str, str, bool], ...]:
    """Return place, text and whether it is a docstring, for each text in the code."""
    return tuple(
        each
        for folder in CODE
        for path in sorted((ROOT / folder).rglob("*.py"))
        for each in _find_texts_of(path)
    )


def _find_texts_of(path: Path) -> Iterator[tuple[str, str, bool]]:
    tree, name = ast.parse(path.read_text()), path.relative_to(ROOT)
    docstrings = {id(text) for text in _find_docstrings(tree)}
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner |= {id(part) for part in node.values}
            parts = [
                part.value if isinstance(part, ast.Constant) else STANDS_FOR_A_VALUE
                for part in node.values
            ]
            text = " ".join("".join(map(str, parts)).split())
            yield f"{name}:{node.lineno}", text, False
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner
        ):
            text = " ".join(node.value.split())
            yield f"{name}:{node.lineno}", text, id(node) in docstrings
