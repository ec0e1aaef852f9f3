"""A condition that a person wrote, by a parser that knows nothing but conditions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from parley.client.contract.strict_decoding import LONGEST_TEXT, DecodingError
from parley.client.queries.filters.expressions import (
    DEEPEST,
    MOST_NODES,
    SIGNS,
    WORDS,
    Constant,
    Expression,
    Joined,
    Leaf,
    WhereError,
    among,
    constant_of,
    joined,
    limited,
    negated,
    shown_constant,
    shown_name,
)


def where_from(value: object) -> Expression:
    """The condition in plain JSON values, whose keys and types are exactly those of `to_json`."""
    try:
        return limited(_decoded(value, DEEPEST))
    except WhereError as error:
        raise DecodingError(f"where: {error}") from None


def _decoded(value: object, levels: int) -> Expression:
    if levels < 1:
        raise WhereError(f"Expected a condition of at most {DEEPEST} levels, got more.")
    if not isinstance(value, Mapping):
        raise WhereError(f"Expected a condition as an object, got {type(value).__name__}.")
    keys = set(value)
    if keys == {"not"}:
        return negated(_decoded(value["not"], levels - 1))
    if keys in ({"and"}, {"or"}):
        (word,) = keys
        parts = value[word]
        if not isinstance(parts, list) or not 2 <= len(parts) <= MOST_NODES:
            raise WhereError(f"Expected a list of 2 to {MOST_NODES} conditions under {word}.")
        return Joined(word, tuple(_decoded(part, levels - 1) for part in parts))
    column, sign = value.get("column"), value.get("is")
    if not isinstance(column, str) or len(column) > LONGEST_TEXT or not isinstance(sign, str):
        raise WhereError("Expected and, or, not, or a column and what it is.")
    if keys == {"column", "is"} and sign == "null":
        return Leaf(column, "null")
    if keys == {"column", "is", "values"} and sign == "in":
        values = value["values"]
        if not isinstance(values, list) or len(values) > MOST_NODES:
            raise WhereError(f"Expected a list of at most {MOST_NODES} constants under values.")
        return among(column, tuple(constant_of(v, place="in a condition") for v in values))
    if keys == {"column", "is", "value"} and sign in SIGNS:
        return Leaf(column, sign, (constant_of(value["value"], place="in a condition"),))
    raise WhereError("Expected and, or, not, or a column and what it is, got other keys.")


_LONGEST: Final = 4096
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_SIGNS: Final = ("<", "<=", ">", ">=", "==", "!=", "=", "<>")

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<text>'(?:[^'\\]|\\['\\])*'|"(?:[^"\\]|\\["\\])*")
    |(?P<quoted>`[^`]+`)
    |(?P<name>[^\W\d]\w*)
    |(?P<sign><=|>=|==|!=|<>|[<>=(),]))""",
    re.VERBOSE,
)


def parse_where(text: str) -> Expression:
    """The condition that a person wrote: `age > 60 and sex == 'Female'`.

    Signs are < <= > >= == != (= and <> as well); words and, or, not, in, is null, is not null,
    true, false in any case; a column whose name is no word stands in backticks.

    Raises:
        WhereError: anything else: a call, arithmetic, a column beside a column, an open bracket.
    """
    if not isinstance(text, str):
        raise WhereError(f"Expected a condition as text, got {type(text).__name__}.")
    if len(text) > _LONGEST:
        raise WhereError(f"Expected a condition of at most {_LONGEST} characters, got {len(text)}.")
    return limited(_Parser(text).whole())


class _Parser:
    """By recursive descent: or, and, not, comparison; never deeper than `DEEPEST`."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise WhereError(
                    "Expected columns (a name that is not a word in backticks: `capital-gain`), "
                    "constants, comparisons, and, or, not, in, is null, "
                    f"got {text[at:].strip()!r:.40} in {text!r:.200}."
                )
            kind = str(found.lastgroup)
            token = found[kind]
            if kind == "name" and token.lower() in WORDS:
                kind, token = "word", token.lower()
            self._tokens.append((kind, token))
            at = found.end()
        self._tokens.append(("end", "the end"))
        self._at = 0

    def whole(self) -> Expression:
        """All of the text."""
        found = self._either(DEEPEST)
        if self._peek()[0] != "end":
            raise WhereError(f"Expected and, or, or the end after {found}, got {self._shown()}.")
        return found

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at]

    def _take(self, *wanted: str) -> str | None:
        """The next token, if it is one of these words or signs."""
        kind, token = self._peek()
        if kind in {"word", "sign"} and token in wanted:
            self._at += 1
            return token
        return None

    def _shown(self) -> str:
        kind, token = self._peek()
        return f"the name {token}" if kind in {"name", "quoted"} else token

    def _either(self, levels: int) -> Expression:
        return self._parts("or", lambda: self._parts("and", lambda: self._negated(levels)))

    def _parts(self, word: str, part: Callable[[], Expression]) -> Expression:
        parts = [part()]
        while self._take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else joined(word, *parts)

    def _negated(self, levels: int) -> Expression:
        if levels < 1:
            raise WhereError(f"Expected a condition of at most {DEEPEST} levels, got more.")
        if self._take("not"):
            return negated(self._negated(levels - 1))
        if self._take("("):
            found = self._either(levels - 1)
            if not self._take(")"):
                raise WhereError(f"Expected ) after {found}, got {self._shown()}.")
            return found
        return self._comparison()

    def _comparison(self) -> Expression:
        """`age > 60`, `60 < age`, `18 <= age < 65`, `age in (1, 2)`, `ward is null`."""
        if self._peek()[0] in {"name", "quoted"}:
            return self._of_column(self._column())
        first = self._value("before a comparison")
        sign = self._sign(f"after {shown_constant(first)}")
        column = self._column()
        lower = Leaf(column, _MIRRORED[sign], (first,))
        if self._peek() in {("sign", each) for each in _SIGNS}:
            return joined("and", lower, self._of_column(column))
        return lower

    def _of_column(self, column: str) -> Expression:
        name = shown_name(column)
        if self._take("is"):
            turned = self._take("not")
            if not self._take("null", "none"):
                raise WhereError(f"Expected null after '{name} is', got {self._shown()}.")
            return negated(Leaf(column, "null")) if turned else Leaf(column, "null")
        turned = self._take("not")
        if self._take("in"):
            found = among(column, self._list(name))
            return negated(found) if turned else found
        if turned:
            raise WhereError(f"Expected in after '{name} not', got {self._shown()}.")
        sign = self._sign(f"after {name!r}")
        return Leaf(column, sign, (self._value(f"after '{name} {sign}'"),))

    def _list(self, name: str) -> tuple[Constant, ...]:
        if not self._take("("):
            raise WhereError(f"Expected ( after '{name} in', got {self._shown()}.")
        values = [self._value(f"after '{name} in ('")]
        while self._take(","):
            values.append(self._value(f"after '{name} in (…,'"))
        if not self._take(")"):
            raise WhereError(f"Expected ) after the constants of {name!r}, got {self._shown()}.")
        return tuple(values)

    def _column(self) -> str:
        kind, token = self._peek()
        if kind not in {"name", "quoted"}:
            raise WhereError(f"Expected a column's name, got {token}.")
        self._at += 1
        return token.strip("`") if kind == "quoted" else token

    def _sign(self, place: str) -> str:
        found = self._take(*_SIGNS)
        if found is None:
            raise WhereError(f"Expected a comparison {place}, got {self._shown()}.")
        return {"=": "==", "<>": "!="}.get(found, found)

    def _value(self, place: str) -> Constant:
        kind, token = self._peek()
        if kind == "number":
            value: Constant = float(token) if re.search(r"[.eE]", token) else int(token)
        elif kind == "text":
            value = re.sub(r"\\(.)", r"\1", token[1:-1])
        elif kind == "word" and token in {"true", "false"}:
            value = token == "true"  # noqa: S105 - of the text, no secret
        else:
            raise WhereError(f"Expected a constant {place}, got {self._shown()}.")
        self._at += 1
        return constant_of(value, place=place)
