"""That Flower waits where `pace` thinks it does: a new version is noticed here."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys

from flwr.supercore.inflatable import inflatable_utils
from flwr.supernode import start_client_internal

from parley.deploy.flower.pace import Bell, Pace


def test_the_supernode_uses_time_for_nothing_but_sleeping():
    tree = ast.parse(inspect.getsource(start_client_internal))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "time"
    }
    assert used == {"sleep"}


def test_what_is_still_on_its_way_is_asked_for_with_these_defaults():
    for function in (
        inflatable_utils.pull_objects,
        inflatable_utils.pull_and_inflate_object_from_tree,
    ):
        assert {"initial_backoff", "backoff_cap"} <= set(function.__kwdefaults__)


def test_a_message_that_is_being_answered_rings_the_bell():
    bell, waits = Bell(), []
    pace = Pace(sleep=waits.append, answering=bell.ring)
    pace.sleep(3)
    assert not bell.wait(0)
    pace.sleep(0.5)
    assert bell.wait(0)


def test_a_bell_wakes_a_forked_process_and_is_never_full():
    bell = Bell()
    child = os.fork()
    if child == 0:
        os._exit(0 if bell.wait(10) else 1)
    for _ in range(100_000):
        bell.ring()
    assert os.waitpid(child, 0)[1] == 0


def test_quicken_takes_effect():
    code = (
        "from parley.deploy.flower.pace import Pace, quicken\n"
        "quicken(supernode=True)\n"
        "from flwr.supernode import start_client_internal as node\n"
        "from flwr.supercore.inflatable.inflatable_utils import pull_objects\n"
        "assert isinstance(node.time, Pace)\n"
        "assert pull_objects.__kwdefaults__['initial_backoff'] < 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
