"""Networks that a caller passes as objects, and the names by which a job finds them again.

A job names its network as text. An object gets a name in a module that only this process has, so a
run with it is a simulation, and other processes need the code in a file.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import sys
import types
from collections.abc import Callable
from typing import Any

from parley.prediction.permitted_code import OBJECTS_MODULE
from parley.server.jobs.section_base import JobError


def name_model(model: Any) -> str:
    """Return a name by which a job builds the network.

    Args:
        model: a function (features, classes) that returns a `torch.nn.Module`; a function
            or class without arguments; or a module, whose weights are the public start.

    Raises:
        JobError: it is none of these.
    """
    if _is_importable(model):
        return f"{model.__module__}:{model.__name__}"
    build = _build_function(model)
    held = sys.modules.setdefault(OBJECTS_MODULE, types.ModuleType(OBJECTS_MODULE))
    name = _choose_free_name(getattr(model, "__name__", type(model).__name__), held)
    setattr(held, name, build)
    return f"{OBJECTS_MODULE}:{name}"


def _choose_free_name(name: str, held: types.ModuleType) -> str:
    base = name if name.isidentifier() else "network"
    names = (base if not count else f"{base}_{count + 1}" for count in itertools.count())
    return next(name for name in names if not hasattr(held, name))


def _is_importable(model: Any) -> bool:
    """Return whether it is a function of two arguments that its module has under its name."""
    if not isinstance(model, types.FunctionType) or len(_list_required(model)) != 2:
        return False
    return getattr(sys.modules.get(model.__module__), model.__qualname__, None) is model


def _build_function(model: Any) -> Callable[[int, int], Any]:
    if hasattr(model, "state_dict") and not isinstance(model, type):
        return lambda features, classes: copy.deepcopy(model)
    if not callable(model):
        raise JobError(
            "Expected model to be a name, a torch.nn.Module, or a function or class that makes "
            f"one, got {type(model).__name__}."
        )
    required = len(_list_required(model))
    if required == 0:
        return lambda features, classes: model()
    if required == 2:
        built: Callable[[int, int], Any] = model
        return built
    raise JobError(
        f"Expected a model that is made without arguments, or from (features, classes), got one "
        f"with {required} arguments without defaults."
    )


def _list_required(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the positional arguments that have no default."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind in positional
    ]
