"""Old names of keys, options and Python names, with the names that replaced them.

An old name works for one minor version after the one that deprecated it, and its use prints the new
name. Later it is refused, with the new name. What Parley itself stored is read for the whole major
version: jobs of run folders, and schemas, which model files contain. So a row stays until the next
major version. Every reader of names that people write uses this table.

    >>> names = {"old": "privacy.eps", "new": "privacy.epsilon"}
    >>> row = Deprecation(kind="job", **names, since="1.1", end="1.3")
    >>> print(row.message)
    privacy.eps is deprecated since Parley 1.1 and stops working with 1.3. Use privacy.epsilon.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["job", "policy", "schema", "option", "python"]


class DeprecatedName(FutureWarning):
    """An old name that still works. Python shows it by default."""


@dataclass(frozen=True, kw_only=True)
class Deprecation:
    """One renaming.

    Attributes:
        kind: where people write the name: a file of that kind, the command line, or Python.
        old: name until `since`: dotted keys (`*` is any name, such as a column's), an option, or
            an attribute of `parley`.
        new: name that replaced it, in the same form. With `*`, only the last part may differ.
        since: version that deprecated the old name, such as 1.1.
        end: first version that refuses it: two minor versions later, such as 1.3. For a schema,
            the next major version, because model files contain schemas.
        is_over: whether the old name is refused: set in that version.
    """

    kind: Kind
    old: str
    new: str
    since: str
    end: str
    is_over: bool = False

    @property
    def message(self) -> str:
        """What to do, in one line."""
        if self.is_over:
            return f"{self.old} was replaced by {self.new} in Parley {self.since}. Use {self.new}."
        return (
            f"{self.old} is deprecated since Parley {self.since} and stops working with "
            f"{self.end}. Use {self.new}."
        )


DEPRECATIONS: tuple[Deprecation, ...] = ()
"""All old names of this major version."""


def rename_keys(kind: Kind, tree: dict[str, Any], *, stored: bool = False) -> None:
    """Replace old keys in nested tables by the new ones, with a warning for each.

    Args:
        stored: Parley wrote the file, not a person: rename without warning or end.

    Raises:
        ValueError: an old key is over, or both the old and the new key are there.
    """
    for row in (row for row in DEPRECATIONS if row.kind == kind):
        *path, last = row.old.split(".")
        *new_path, new = row.new.split(".")
        for table in list(_find_tables(tree, path)):
            if last not in table:
                continue
            target = table
            if path != new_path:
                target = tree
                for part in new_path:
                    target = target.setdefault(part, {})
                    if not isinstance(target, dict):
                        raise ValueError(f"Expected a table [{part}], got {target!r}.")
            if new in target:
                raise ValueError(f"Expected {row.new} or {row.old}, got both. Delete {row.old}.")
            if not stored:
                _warn(row)
            target[new] = table.pop(last)


def rename_key(kind: Kind, name: str) -> str:
    """Return the current name of a dotted key or a Python name; an old one causes a warning.

    Raises:
        ValueError: the old name is over.
    """
    for row in (row for row in DEPRECATIONS if row.kind == kind):
        if row.old == name:
            _warn(row)
            return row.new
    return name


def rename_options(arguments: Sequence[str]) -> list[str]:
    """Return a command line with current options; each old one causes a warning."""
    renamed = []
    for argument in arguments:
        option, equals, value = argument.partition("=")
        renamed.append(rename_key("option", option) + equals + value)
    return renamed


def _find_tables(tree: dict[str, Any], path: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the tables at a path, in which `*` is any key."""
    if not path:
        yield tree
        return
    first, *rest = path
    for name in list(tree) if first == "*" else [first]:
        if isinstance(tree.get(name), dict):
            yield from _find_tables(tree[name], rest)


def _warn(row: Deprecation) -> None:
    if row.is_over:
        raise ValueError(row.message)
    warnings.warn(row.message, DeprecatedName, stacklevel=3)
