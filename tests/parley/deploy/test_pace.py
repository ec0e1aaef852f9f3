"""That Flower waits where `parley.deploy.pace` thinks it does: a new version is noticed here."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys

from flwr.supercore.inflatable import inflatable_utils
from flwr.supernode import start_client_internal


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


def test_quicken_takes_effect():
    code = (
        "from parley.deploy.pace import Pace, quicken\n"
        "quicken(supernode=True)\n"
        "from flwr.supernode import start_client_internal as node\n"
        "from flwr.supercore.inflatable.inflatable_utils import pull_objects\n"
        "assert isinstance(node.time, Pace)\n"
        "assert pull_objects.__kwdefaults__['initial_backoff'] < 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
