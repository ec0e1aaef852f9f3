"""Check the built docs site: every link has a target, and no page loads anything from the web.

    mkdocs build && python docs/check_site.py

MkDocs checks links between source pages. This script checks the built pages: navigation, the API
reference, pictures, anchors.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_SITE = Path(__file__).parents[1] / "site"
_LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
"""Attributes with a file that a browser fetches by itself."""


@dataclass
class Page(HTMLParser):
    """Links, loaded files and anchors of a page."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the links and anchors of one element."""
        for name, value in attrs:
            if not value:
                continue
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value)
            elif (tag, name) in _LOADS:
                self.loads.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


def problems(site: Path) -> list[str]:
    """Return all problems, one line each.

    Raises:
        FileNotFoundError: there is no site.
    """
    pages: dict[Path, Page] = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    if not pages:
        raise FileNotFoundError(f"Expected a built site in {site}, got no page: run mkdocs build.")
    found = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links are absolute, for wherever it is served
            continue
        here = path.relative_to(site)
        for target in page.loads:
            if urlsplit(target).scheme in {"http", "https"} or target.startswith("//"):
                found.append(f"{here} loads {target} from the web.")
        for target in [*page.links, *page.loads]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if file.is_dir():
                file /= "index.html"
            if not file.is_file():
                found.append(f"{here} links to {target}, which does not exist.")
            elif parts.fragment and file in pages:
                anchor = unquote(parts.fragment)
                if anchor not in pages[file].anchors and not anchor.startswith("__"):
                    found.append(f"{here} links to {target}, where nothing has that id.")
    return found


def main() -> None:
    """Print all problems; exit status 1 if there are any."""
    wrong = problems(_SITE.resolve())
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
