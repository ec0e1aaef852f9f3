"""Flower's engines do what the fast engine does: the conformance class of tests/conformance."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from parley.deploy.engines import run_flower, run_processes


def _conformance():
    path = Path(__file__).parents[1] / "conformance" / "test_engines.py"
    spec = importlib.util.spec_from_file_location("engine_conformance", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


suite = _conformance()


@pytest.mark.heavy
class TestProcesses(suite.EngineConformance):
    def run(self, job, folder):
        return run_processes(job, out=folder / "run").folder

    def test_it_does_what_the_fast_engine_does(self, ground):
        self.check("gradients", ground.root)

    @pytest.mark.parametrize("pca", ["private", "public"])
    def test_rows_are_projected_on_the_same_components(self, ground, pca):
        self.check_components(pca, ground.root)


@pytest.mark.heavy
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs parley[ray]")
class TestFlower(suite.EngineConformance):
    def run(self, job, folder):
        return run_flower(job, out=folder / "run").folder

    def test_it_does_what_the_fast_engine_does(self, ground):
        self.check("gradients", ground.root)

    def test_rows_are_projected_on_the_same_components(self, ground):
        self.check_components("private", ground.root)
