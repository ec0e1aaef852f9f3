"""Add pages to the docs site that are not files in `docs/`. A hook of MkDocs, named in
`mkdocs.yml`.

- the repository's own pages (`ROOT_PAGES`): README.md is the first page, and so on
- the reference pages that `docs/reference_pages.py` builds from the code
- the API reference: one page per folder, from the docstrings of its modules

A page links to files by their paths in the repository, so that it reads the same there. On the
site, links to the repository's own pages lead to their copies. A link to any other file becomes its
path. A link to a file that does not exist stops the build.
"""

from __future__ import annotations

import logging
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))
import reference_pages

ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
PACKAGES = ("parley", "simulations", "server", "client", "secure_agg", "privacy")
_ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
_VERBATIM = re.compile(
    r"(^```.*?^```|^:::.*?$|`[^`\n]*`|\]\([^)\n]*\)|\{:? ?[#.][^}\n]*\})", re.MULTILINE | re.DOTALL
)
"""Code, names of modules, targets of links and attributes: what is not text."""
_INDEX = re.compile(
    r"((?<!\w)[^\W_]*[^\W\d_][\u0302\u0303]?|‖)_(?:\{([^}]*)\}|(ij|ji|[^\W_]))(?![A-Za-z0-9_])"
)
_POWER = re.compile(
    r"\^(?:\{([^}]*)\}|\(((?:[^()]|\([^()]*\))*)\)|([−-]?(?:\d+\.\d+|[^\W_]+(?:-[a-z]+)*|\([^()]*\))))"
)
_BINDINGS = (
    (re.compile(r"(?<=\d) (?=%|(?:[nµm]?s|[KMG]i?B)\b)"), "\u00a0"),
    (re.compile(r"(?<=\bCPU) (?=s\b)"), "\u00a0"),
    (re.compile(r"(?<![^\W\d_])([^\W\d_]) ([=<≤≥]) (?=[\d.])"), "\\1\u00a0\\2\u00a0"),
    (re.compile(r"(?<=\[−\d,) (?=\d\])"), "\u00a0"),
    (re.compile(r" ?± (?=\d)"), "\u00a0±\u00a0"),
)
"""What must not be torn apart at the end of a line: "5 %", "3 ms", "ε = 1", "[−1, 1]" and
"0.9 ± 0.1"."""
_WHOLE = re.compile(r"\d{4}-\d\d-\d\d|\d[\d.]*(?:e[-−]|–)\d[\d.]*|\b[A-Z]{2,}-[A-Z\d]\w+")
"""Words with hyphens that must not be torn apart: a date, "1e-5", "0.2–0.3", "DP-SGD"."""
_OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
_NOT_TEXT = re.compile(r"(<pre\b.*?</pre>|<code\b.*?</code>|<[^>]*>)", re.DOTALL)
_INLINE_CODE = re.compile(r"(?<!</span>)<code>([^<]+)</code>")
_LONG_CODE, _LONG_NAME, _LONG_MODULE, _LONG_PART = 25, 23, 30, 19
"""Lengths in characters from which something may break: code inside a table, a name at slashes, a
module's name at dots, a part of a path at underscores."""
_log = logging.getLogger("mkdocs.hooks.site_pages")


def on_startup(**_: Any) -> None:
    """Make the folder that the reference reads modules from, before a plug-in looks for it."""
    subprocess.run([sys.executable, _ROOT / ".ci/view"], check=True)  # noqa: S603 - our own


def on_config(config: Any) -> Any:
    """Append the pages of the Python API to the navigation's group "Reference"."""
    folders: dict[str, list[Any]] = {}
    for folder in _list_folders():
        folders.setdefault(folder.split("/")[0], []).append({_title(folder): _page(folder)})
    (group,) = (entry for entry in config.nav if "Reference" in entry)
    pages = [{title: name} for name, (title, _) in reference_pages.PAGES.items()]
    keys = [page for page in pages if next(iter(page)).endswith(" keys")]
    group["Reference"] += [{"Keys of files": keys}, *(page for page in pages if page not in keys)]
    group["Reference"].append(
        {"Python API": [{package: pages} for package, pages in folders.items()]}
    )
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages."""
    for source, page in ROOT_PAGES.items():
        text = (_ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_relinked(text, source)))
    for name, text in reference_pages.build_reference_pages().items():
        files.append(File.generated(config, name, content=text))
    for folder in _list_folders():
        files.append(File.generated(config, _page(folder), content=_reference(folder)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite links that leave a page in `docs/`, so that they lead to pages of the site. Set
    indices and powers, and keep numbers together with their signs.
    """
    del files
    if page.file.generated_by is None:
        markdown = _relinked(markdown, f"docs/{page.file.src_uri}")
    parts = _VERBATIM.split(markdown)
    return "".join(
        part if at % 2 else _set_formulas(_bind_words(part)) for at, part in enumerate(parts)
    )


def on_page_content(html: str, **_: Any) -> str:
    """Let long names in code break between their parts. Keep options, dates and numbers whole."""
    parts = _NOT_TEXT.split(html)
    parts[::2] = (_WHOLE.sub(_keep_whole, text) for text in parts[::2])
    return _INLINE_CODE.sub(_break_code, "".join(parts))


def _keep_whole(match: re.Match[str]) -> str:
    return f'<span class="whole">{match[0]}</span>'


def _break_code(match: re.Match[str]) -> str:
    broken = _OPTION.sub(_keep_whole, re.sub(r"[^\s,]+", _break_name, match[1]))
    kind = ' class="long"' if len(match[1]) >= _LONG_CODE else ""
    return f"<code{kind}>{broken}</code>"


def _break_name(match: re.Match[str]) -> str:
    """Return a path, a test's name or a module's with `<wbr>` where it may break."""
    name = match[0]
    if re.fullmatch(r"\w+(\.\w+)*\.\w{7,}(\(.*)?", name):  # a shorter end is a file's suffix
        return re.sub(r"\.(?=\w)", ".<wbr>", name) if len(name) >= _LONG_MODULE else name
    if len(name) < _LONG_NAME:
        return name
    parts = re.split(r"(?<=/)(?=\w)|(?<=::)", name)
    for at, part in enumerate(parts):
        if len(part) >= _LONG_PART:
            parts[at] = re.sub(r"(?<=\w_)(?=\w)", "<wbr>", part)
    return "<wbr>".join(parts)


def _set_formulas(text: str) -> str:
    """Return `text` with "x_j" and "2^(b − 1)" as an index and a power."""
    text = _INDEX.sub(lambda found: f"{found[1]}<sub>{found[2] or found[3]}</sub>", text)
    return _POWER.sub(
        lambda found: f"<sup>{re.sub('^-', '−', found[1] or found[2] or found[3])}</sup>", text
    )


def _bind_words(text: str) -> str:
    """Return `text` with spaces at which no line may end."""
    for pattern, bound in _BINDINGS:
        text = pattern.sub(bound, text)
    return text


def _relinked(text: str, source: str) -> str:
    """Return `text` with links as they are on the site.

    Args:
        text: of a page.
        source: its path in the repository.
    """

    def relinked(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        if ":" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path in ROOT_PAGES:
            return f"{label}({ROOT_PAGES[path]}{anchor})"
        if path[5:] in reference_pages.PAGES:
            return f"{label}({path[5:]}{anchor})"
        if path.startswith("docs/") and Path(path).suffix in {".csv", ".md", ".svg", ".png"}:
            return f"{label}({path[5:]}{anchor})"  # MkDocs checks it
        if not (_ROOT / path).exists():
            _log.warning("%s links to %s, which does not exist.", source, target)
        return f"{label[1:-1]} (`{path}`)" if label[1:-1] != path else f"`{path}`"

    # Code is no place for links.
    parts = _FENCE.split(text)
    return "".join(part if at % 2 else _LINK.sub(relinked, part) for at, part in enumerate(parts))


def _list_folders() -> list[str]:
    """Folders of modules, as paths from the repository's root: "client/contract"."""
    return [
        str(init.parent.relative_to(_ROOT))
        for package in PACKAGES
        for init in sorted((_ROOT / package).rglob("__init__.py"))
        if "__pycache__" not in init.parts
    ]


def _title(folder: str) -> str:
    package, _, rest = folder.partition("/")
    return rest.replace("/", ".") or package


def _page(folder: str) -> str:
    return f"reference/{folder}.md" if "/" in folder else f"reference/{folder}/index.md"


def _module(folder: str) -> str:
    dotted = folder.replace("/", ".")
    return dotted if dotted.split(".")[0] == "parley" else f"parley.{dotted}"


def _reference(folder: str) -> str:
    """Return a page with every public module of a folder."""
    package = _module(folder)
    modules = sorted(
        path.stem for path in (_ROOT / folder).glob("*.py") if not path.stem.startswith("_")
    )
    # The package's own names, then those of its modules; sub-packages have their own pages.
    parts = [f"# {package}", f"::: {package}\n    options:\n      show_root_heading: false"]
    parts += [f"::: {package}.{module}" for module in modules]
    return "\n\n".join(parts) + "\n"
