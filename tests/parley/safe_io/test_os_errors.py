"""An error of the operating system reaches a person as a sentence, never with its number."""

import ast
import errno
import os
from pathlib import Path

import pytest

import parley.client
from parley.safe_io.os_errors import describe_cause, describe_error

_ROOT = Path(next(iter(parley.client.__path__))).parent
_PACKAGES = ("parley", "simulations", "server", "client")
_OF_THE_SYSTEM = {"OSError", "FileNotFoundError", "PermissionError", "ConnectionError"}


@pytest.mark.parametrize("number", sorted(errno.errorcode))
@pytest.mark.parametrize("name", [None, "folder/rows.csv"])
def test_no_message_has_a_number_and_each_names_its_path(number: int, name: str | None) -> None:
    said = describe_error(OSError(number, os.strerror(number), *([name] if name else [])))
    assert "Errno" not in said
    assert said.endswith(".")
    assert ".." not in said
    assert name is None or said.startswith(f"{name}: ")


def test_a_full_disk_says_what_to_do() -> None:
    assert describe_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) == (
        "The disk is full. Free some space, then start again; a run that began continues with "
        "--resume RUN."
    )


def test_what_our_own_code_says_of_a_file_stays() -> None:
    given = OSError(errno.EFBIG, "expected at most 3 bytes, got 4", "job.toml")
    assert describe_cause(given) == "expected at most 3 bytes, got 4"
    assert describe_error(given) == "job.toml: expected at most 3 bytes, got 4."


def test_every_handler_takes_its_words_from_here() -> None:
    found = []
    for file in sorted(path for name in _PACKAGES for path in (_ROOT / name).rglob("*.py")):
        if file.name == "os_errors.py":
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for handler in (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)):
            if handler.type is None or handler.name is None:
                continue
            caught = {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(handler.type)}
            if caught & _OF_THE_SYSTEM:
                found += [f"{file}:{n.lineno}" for n in ast.walk(handler) if _raw(n, handler.name)]
    assert found == []


def _raw(node: ast.AST, name: str) -> bool:
    """Whether a node turns the error into text by itself."""
    match node:
        case ast.FormattedValue(value=ast.Name(id=used)):
            return used == name
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=used)]):
            return used == name
        case ast.Attribute(value=ast.Name(id=used), attr="strerror"):
            return used == name
    return False
