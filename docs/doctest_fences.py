"""Show doctests of docstrings as code blocks of the API reference; an extension of Griffe.

Markdown would read `>>>` at the beginning of a line as a quotation within quotations.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

from griffe import Extension, Object

_DOCTEST = re.compile(r"^[ ]*>>> (?:.*\n)(?:[ ]*\S.*\n?)*", re.MULTILINE)


class DoctestFences(Extension):
    """Extension that puts every doctest into a fence, without its indentation in the docstring."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Rewrite the docstring of `obj`, if it has one, before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = _DOCTEST.sub(_fenced, obj.docstring.value + "\n").rstrip()


def _fenced(block: re.Match[str]) -> str:
    return f"```pycon\n{textwrap.dedent(block[0]).rstrip()}\n```\n"
