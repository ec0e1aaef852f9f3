"""The notebooks run from the first cell to the last, and show progress, results and reports."""

import os
import sys
from pathlib import Path

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]


def test_there_is_one_of_each_kind_and_none_has_outputs():
    assert NAMES == ["deep-model", "first-model", "own-data", "sweep"]
    for path in NOTEBOOKS:
        cells = nbformat.read(path, 4).cells
        assert not any(cell.get("outputs") for cell in cells)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A notebook's shell in this process: what a kernel adds is messages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    InteractiveShell.clear_instance()
    config = Config()
    config.HistoryManager.enabled = False
    yield InteractiveShell.instance(config=config)
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_runs_from_the_first_cell_to_the_last(path, shell):
    shown = []
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code":
            with capture_output() as captured:
                result = shell.run_cell(cell.source)
            result.raise_error()
            shown += [output.data.get("text/html", "") for output in captured.outputs]
            if result.result is not None:
                shown.append(shell.display_formatter.format(result.result)[0].get("text/html", ""))
    page = "\n".join(shown)
    assert "simulation only" in page
    assert "<iframe sandbox srcdoc=" in page
    assert path.stem == "sweep" or "round 3 of" in page


@pytest.mark.heavy
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_runs_in_a_kernel(path, tmp_path, monkeypatch):
    from nbclient import NotebookClient

    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.read(path, 4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert not [out for out in outputs if out.output_type == "error"]
