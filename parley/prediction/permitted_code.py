"""Own code that a caller lets a model file build, by the name that the file has for it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from parley.client.own_code.own_code_names import get_public_name, is_own_code

OBJECTS_MODULE = "parley_objects"
"""Module that holds networks that a caller passed as objects (`parley.passed_networks`)."""

_INTERACTIVE = "__main__:"
"""Start of the name of a function that a script or a notebook defined."""


def is_object_name(kind: str) -> bool:
    """Return whether a job's model is an object that only this process has."""
    return kind.startswith(f"{OBJECTS_MODULE}:")


def match_own_code(used: Any, own_models: tuple[str, ...]) -> Mapping[str, str]:
    """Return the code that may be built: name in the file → name of the code.

    No later process can import a network that a script or a notebook defined. Then the caller's
    code with the same function name stands for it. For an object, the only code that the caller
    names does, too. The number of parameters must still fit.

    Args:
        used: name of the network or feature map in the file.
        own_models: names of the caller, "file.py:function" or "module:function".

    >>> match_own_code("__main__:small", ("nets/net.py:small",))["__main__:small"]
    'nets/net.py:small'
    """
    allowed = {get_public_name(name): name for name in own_models}
    if _is_lost_with_process(used):
        same = [name for name in own_models if _get_function(name) == _get_function(used)]
        only = own_models if is_object_name(used) and len(own_models) == 1 else ()
        for name in [*same, *only][:1]:
            allowed.setdefault(used, name)
    return MappingProxyType(allowed)


def describe_missing_code(used: Any, own_models: tuple[str, ...]) -> str:
    """Return what to do about code that a file needs and the caller did not name, or no text."""
    own = isinstance(used, str) and used.isprintable() and is_own_code(used)
    if not own or used in match_own_code(used, own_models):
        return ""
    if not _is_lost_with_process(used):
        name = get_public_name(used)
        return (
            f"Expected the code of {name}, which was not run. If it is yours, name it: --own-model "
            f'{name} (in Python own_models=("{name}",)).'
        )
    name = "FUNCTION" if is_object_name(used) else _get_function(used)
    return (
        f"Expected the code of {used}, which was defined in Python. Put it into a file and name "
        f'that: --own-model FILE.py:{name} (in Python own_models=("FILE.py:{name}",)).'
    )


def get_network_name(task: Any) -> Any:
    """Return the name of the network in a model file's task, or None."""
    network = task.get("network") if isinstance(task, Mapping) else None
    return network.get("kind") if isinstance(network, Mapping) else None


def _get_function(name: str) -> str:
    return name.rpartition(":")[2]


def _is_lost_with_process(used: Any) -> bool:
    return isinstance(used, str) and (used.startswith(_INTERACTIVE) or is_object_name(used))
