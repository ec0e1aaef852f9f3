"""Measure the language of docstrings, comments and pages. `tests/test_language.py` holds the caps.

python docs/measure_language.py
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("parley", "simulations", "server", "client", "secure_agg", "privacy")
CODE_WORDS = {
    "where for if": r"\bwhere (there|it|they|a|the|no|none|nothing|one|its|all|both)\b",
    "nobody, nothing": r"\b(nobody|anybody|somebody|nothing)\b",
    "say, tell": r"\b(says?|said|told|tells?)\b",
    "alone": r"\balone\b",
    "beside": r"\bbeside\b",
}
"""Name of a count in docstrings and comments → the pattern of the counted words."""
PAGE_WORDS = {
    "you": r"\byour?\b",
    "examples": r"\b(for example|such as|e\.g\.)",
    "numbers without their zero": r"(?<![\w/.])\.\d+\b",
}
"""Name of a count in pages → the pattern of the counted words."""
LONG_SENTENCE = 30


def measure_code(root: Path = ROOT) -> dict[str, float]:
    """Return how often each of `CODE_WORDS` occurs per 10,000 words of docstrings and comments."""
    texts = (
        text
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
        for text in list_prose(path.read_text(encoding="utf-8"))
    )
    return count_words(texts, CODE_WORDS)


def measure_pages(root: Path = ROOT) -> dict[str, float]:
    """Return the length of sentences, and `PAGE_WORDS` per 10,000 words of pages."""
    paths = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    pages = [strip_markup(path.read_text(encoding="utf-8")) for path in paths]
    lengths = [length for page in pages for length in list_sentence_lengths(page)]
    return {
        "words per sentence": sum(lengths) / len(lengths),
        "sentences over 30 words, %": 100
        * sum(length > LONG_SENTENCE for length in lengths)
        / len(lengths),
        **count_words(pages, PAGE_WORDS),
    }


def count_words(texts: Iterable[str], patterns: Mapping[str, str]) -> dict[str, float]:
    """Return the matches of each pattern per 10,000 words."""
    whole = "\n".join(texts)
    words = len(whole.split())
    return {
        name: 1e4 * len(re.findall(pattern, whole, re.IGNORECASE)) / words
        for name, pattern in patterns.items()
    }


def list_prose(source: str) -> Iterator[str]:
    """Yield the docstrings and comments of a module's source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def strip_markup(markdown: str) -> str:
    """Return a page's sentences: no code, tables, headings, pictures or targets of links."""
    text = re.sub(r"(?s)```.*?```", "", markdown)
    text = re.sub(r"(?s)<[^>]+>", "", text)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    lines = [
        "" if line.startswith("#") else re.sub(r"^\s*([-*+]|\d+\.)\s+", "\n", line)
        for line in text.split("\n")
        if not line.lstrip().startswith("|")
    ]
    return re.sub(r"[`*_]", "", "\n".join(lines))


def list_sentence_lengths(text: str) -> Iterator[int]:
    """Yield the number of words of each sentence of at least three."""
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in re.split(r"(?<=[.!?:])\s+(?=[A-Z`(0-9])", " ".join(paragraph.split())):
            if (length := len(sentence.split())) >= 3:
                yield length


if __name__ == "__main__":
    for name, figure in {**measure_code(), **measure_pages()}.items():
        print(f"{name:30} {figure:7.1f}")
