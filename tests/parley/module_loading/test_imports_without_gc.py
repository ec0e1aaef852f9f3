"""A large library is imported without the garbage collector and stays out of its searches."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from parley.module_loading.imports_without_gc import import_large_library


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large_library.py").write_text("import gc\nenabled = gc.isenabled()\n")
    (tmp_path / "broken_library.py").write_text("raise ImportError('no such file')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "large_library", raising=False)


def test_the_collector_pauses_while_a_library_is_imported_for_the_first_time() -> None:
    import_large_library("large_library")
    assert not sys.modules["large_library"].enabled
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    kept = [[] for _ in range(1000)]
    import_large_library("large_library")
    assert gc.get_freeze_count() < frozen + len(kept)


def test_the_collector_runs_again_after_an_import_that_fails() -> None:
    with pytest.raises(ImportError, match="no such file"):
        import_large_library("broken_library")
    assert gc.isenabled()
