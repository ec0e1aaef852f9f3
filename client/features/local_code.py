"""Which files a Python file runs beside itself: what its import statements find near it.

Near is the same folder for a file by itself, and the same package for one in a package; what is
installed elsewhere is not looked into. Statements are read, never run, inside functions too. What
code imports by calling `importlib` is not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_INSTALLED = ("site-packages", "dist-packages")


def local_code(code: Path) -> dict[str, Path]:
    """Every file that `code` imports from near it, and they in turn, by name from the root."""
    code = code.resolve()
    package = code.parent
    while (package / "__init__.py").is_file():
        package = package.parent
    root = package
    # Of what is installed side by side, only the file's own package is near.
    top = code.relative_to(root).parts[0] if root != code.parent else ""
    if not top and root.name in _INSTALLED:
        return {}
    found: dict[str, Path] = {}
    left = [code]
    while left:
        file = left.pop()
        for name in _imported(file, root):
            if top and name.split(".")[0] != top:
                continue
            for each in _files(root, name):
                known = each.relative_to(root).as_posix()
                if each.resolve() != code and known not in found:
                    found[known] = each
                    left.append(each)
    return dict(sorted(found.items()))


def _imported(file: Path, root: Path) -> Iterator[str]:
    """Dotted names, from the root, of modules that a file's statements may import."""
    own = file.relative_to(root).with_suffix("").parts
    for statement in ast.walk(ast.parse(file.read_bytes(), filename=str(file))):
        if isinstance(statement, ast.Import):
            yield from (each.name for each in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            # Level 1 is the package that the file is in: all its parts but the last.
            near = own[: max(0, len(own) - statement.level)] if statement.level else ()
            base = ".".join([*near, *filter(None, [statement.module])])
            yield base
            yield from (f"{base}.{each.name}".lstrip(".") for each in statement.names)


def _files(root: Path, name: str) -> Iterator[Path]:
    """The file of a module, and those of the packages that it is in, where they are below root."""
    parts = [part for part in name.split(".") if part]
    for count in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:count])
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                yield file
