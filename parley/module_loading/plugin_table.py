"""Tables of plug-ins: rows name → "module:attribute", each imported when it is looked up.

Every registry of Parley is a `PluginTable`: of algorithms, queries, noise laws, commands and so on.
Listing the names and asking whether a name is there imports nothing, so that a process imports only
the plug-ins that its job, query or command names.

    >>> laws = PluginTable({"root": "math:sqrt", "broken": "no_such_module:law"})
    >>> sorted(laws), "broken" in laws, laws["root"](9.0)
    (['broken', 'root'], True, 3.0)
    >>> laws["cube"]
    Traceback (most recent call last):
        ...
    parley.module_loading.plugin_table.UnknownPluginError: Expected one of root, broken, got 'cube'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class UnknownPluginError(KeyError):
    """A name that a table of plug-ins does not have. Its text lists the names."""

    def __str__(self) -> str:
        return str(self.args[0])


class PluginTable(Mapping[str, T], Generic[T]):
    """A read-only mapping from names to plug-ins. Only a plug-in that is looked up is imported.

    Attributes:
        rows: Location of each plug-in, "module:attribute", by its name.
    """

    def __init__(self, rows: MutableMapping[str, str]) -> None:
        self.rows = rows

    def __getitem__(self, name: str) -> T:
        if name not in self.rows:
            raise UnknownPluginError(f"Expected one of {', '.join(self.rows)}, got {name!r:.80}.")
        plugin: T = load_attribute(self.rows[name])
        return plugin

    def __contains__(self, name: object) -> bool:
        return name in self.rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def find_name(self, plugin: Any) -> str:
        """Return the name of a class or function whose row this table has."""
        location = f"{plugin.__module__}:{plugin.__qualname__}"
        return next(name for name, row in self.rows.items() if row == location)


def load_attribute(location: str) -> Any:
    """Return the attribute that "module:attribute" names. Import its module if necessary."""
    module, _, attribute = location.partition(":")
    return getattr(import_module(module), attribute)
