"""Read the descriptions of a settings class from the docstrings of its attributes.

Job files, policies and schemas are pydantic classes. Only what prints their keys needs the
descriptions, so that other processes do not read the source for them
(`ConfigDict(use_attribute_docstrings=True)` would, whenever a class is defined).
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from itertools import pairwise
from typing import Any


def describe_fields(model: type[Any]) -> dict[str, str]:
    """Return the description of each field: its `description`, or the docstring below it, in one
    line. The docstring of a base class holds for a field that is not documented again.
    """
    found = {}
    for owner in reversed(model.__mro__):
        if "model_fields" in dir(owner) and not owner.__module__.startswith("pydantic"):
            found.update(_read_attribute_docstrings(owner))
    stated = {name: info.description for name, info in model.model_fields.items()}
    return {name: text or found.get(name, "") for name, text in stated.items()}


@functools.cache
def _read_attribute_docstrings(owner: type[Any]) -> dict[str, str]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    found = {}
    for field, text in pairwise(tree.body if isinstance(tree, ast.ClassDef) else []):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            found[ast.unparse(field.target)] = " ".join(ast.literal_eval(text.value).split())
    return found
