"""Ctrl-C while a command starts ends it with one line, whatever is being imported."""

import subprocess
import sys

import pytest

# An interrupt at the first import of a module: no test waits for a moment in time.
_PROGRAM = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000): pass  # a handler of Python's runs between two instructions
signal.signal(signal.SIGINT, signal.default_int_handler)
from parley.__main__ import start
sys.meta_path.insert(0, Interrupts())
sys.argv = ["parley", *{words!r}]
start()
"""


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("typer", ["run"]),
        ("parley.cli", ["run"]),
        ("parley.commands.run", ["run"]),
        ("pydantic", ["run", "--print-job"]),
        ("grpc", ["party", "nosuch"]),
        ("numpy", ["party", "nosuch"]),
    ],
)
def test_an_interrupt_in_an_import_is_one_line(module: str, words: list[str]) -> None:
    program = _PROGRAM.format(module=module, words=words)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.stderr == "parley: interrupted.\n"
    assert ended.returncode == 130
