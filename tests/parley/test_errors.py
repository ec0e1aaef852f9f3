"""Every expected error has an exit status, and the table names classes that exist."""

import importlib

import pytest

from parley.errors import _STATUS, exit_status
from parley.privacy.ledger.errors import LedgerCorrupt


@pytest.mark.parametrize("name", _STATUS)
def test_the_table_names_a_class(name):
    module, _, attribute = name.rpartition(".")
    kind = getattr(importlib.import_module(module), attribute)
    assert f"{kind.__module__}.{kind.__qualname__}" == name


def test_a_subclass_has_its_parents_status_and_a_bug_has_none():
    assert exit_status(LedgerCorrupt("x")) == 1
    assert exit_status(OSError(28, "No space left on device")) == 1
    assert exit_status(KeyError("bug")) is None
