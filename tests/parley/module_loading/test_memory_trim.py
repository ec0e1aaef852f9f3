"""Memory that torch needed only to start."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In its own process: what this one imported before is not this test's.
PARTY = """
import sys
import parley.deploy.stream.party_client, parley.deploy.stream.single_run_server
print(sorted({"torch", "opacus", "dp_accounting", "sqlalchemy"} & set(sys.modules)))
"""
TORCH = """
from pathlib import Path
import torch
from parley.module_loading.memory_trim import release_start_pages

def code():
    return int(Path("/proc/self/status").read_text().partition("RssFile:")[2].split()[0])

x = torch.linspace(0, 1, 300).reshape(20, 15)
before, sum_before = code(), (x @ x.T).sum().item()
given = release_start_pages()
after = code()
assert (x @ x.T).sum().item() == sum_before
print(given > 5 and after < before / 2)
"""


def ran(program):
    return subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_server_and_party_start_without_libraries_that_only_some_jobs_need():
    assert ran(PARTY) == "[]"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_code_that_torch_needed_to_start_is_given_back_and_read_again():
    assert ran(TORCH) == "True"
