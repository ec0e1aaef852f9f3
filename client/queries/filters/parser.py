"""Parsers of conditions from text and from strict JSON. They accept only conditions.

A condition consists of comparisons of a column with a constant, `in`, `is null`, and/or/not. It has
no comparison of two columns, no arithmetic and no call, so that it means the same in every party
and version. Numbers are compared after clamping to the schema's public range. An empty category is
the cell "(missing)", an ordinary cell that `is null` selects.

    >>> from parley.client.queries.filters.expressions import col
    >>> old = (col.age > 60) & ~(col["sex"] == "Female")
    >>> str(old)
    "age > 60 and not sex == 'Female'"
    >>> parse_where("18 <= age < 65 or `ward name` in ('A', 'B')").columns == {"age", "ward name"}
    True
    >>> decode_where(old.to_json()) == old
    True
    >>> parse_where("age > b")
    Traceback (most recent call last):
        ...
    parley.client.queries.filters.expressions.WhereError: Expected a constant after 'age >', got...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from parley.client.contract.strict_decoding import MAX_TEXT_LENGTH, DecodingError
from parley.client.queries.filters.expressions import (
    MAX_DEPTH,
    MAX_NODES,
    RESERVED_WORDS,
    SIGNS,
    Comparison,
    CompoundCondition,
    Constant,
    Expression,
    WhereError,
    build_in_condition,
    check_size,
    format_column,
    format_constant,
    join_conditions,
    negate,
    parse_constant,
)


def decode_where(value: object) -> Expression:
    """Return the condition in plain JSON values with exactly the keys and types of `to_json`.

    Raises:
        DecodingError: the values are anything else.
    """
    try:
        return check_size(_decode(value, MAX_DEPTH))
    except WhereError as error:
        raise DecodingError(f"where: {error}") from None


def _decode(value: object, levels: int) -> Expression:
    if levels < 1:
        raise WhereError(f"Expected a condition of at most {MAX_DEPTH} levels, got more.")
    if not isinstance(value, Mapping):
        raise WhereError(f"Expected a condition as an object, got {type(value).__name__}.")
    keys = set(value)
    if keys == {"not"}:
        return negate(_decode(value["not"], levels - 1))
    if keys in ({"and"}, {"or"}):
        (word,) = keys
        parts = value[word]
        if not isinstance(parts, list) or not 2 <= len(parts) <= MAX_NODES:
            raise WhereError(f"Expected a list of 2 to {MAX_NODES} conditions under {word}.")
        return CompoundCondition(word, tuple(_decode(part, levels - 1) for part in parts))
    column, sign = value.get("column"), value.get("is")
    if not isinstance(column, str) or len(column) > MAX_TEXT_LENGTH or not isinstance(sign, str):
        raise WhereError("Expected and, or, not, or a column and what it is.")
    if keys == {"column", "is"} and sign == "null":
        return Comparison(column, "null")
    if keys == {"column", "is", "values"} and sign == "in":
        values = value["values"]
        if not isinstance(values, list) or len(values) > MAX_NODES:
            raise WhereError(f"Expected a list of at most {MAX_NODES} constants under values.")
        given = tuple(parse_constant(v, context="in a condition") for v in values)
        return build_in_condition(column, given)
    if keys == {"column", "is", "value"} and sign in SIGNS:
        return Comparison(column, sign, (parse_constant(value["value"], context="in a condition"),))
    raise WhereError("Expected and, or, not, or a column and what it is, got other keys.")


_MAX_LENGTH: Final = 4096
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
    """Parse a condition that a person wrote: `age > 60 and sex == 'Female'`.

    Signs are < <= > >= == != (also = and <>). Words are and, or, not, in, is null, is not null,
    true, false in any case. A column whose name is not a word needs backticks.

    Raises:
        WhereError: anything else: a call, arithmetic, a comparison of two columns, an open bracket.
    """
    if not isinstance(text, str):
        raise WhereError(f"Expected a condition as text, got {type(text).__name__}.")
    if len(text) > _MAX_LENGTH:
        limit = f"at most {_MAX_LENGTH} characters"
        raise WhereError(f"Expected a condition of {limit}, got {len(text)}.")
    return check_size(_Parser(text).parse())


class _Parser:
    """A recursive-descent parser: or, and, not, comparison; never deeper than `MAX_DEPTH`."""

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
            if kind == "name" and token.lower() in RESERVED_WORDS:
                kind, token = "word", token.lower()
            self._tokens.append((kind, token))
            at = found.end()
        self._tokens.append(("end", "the end"))
        self._at = 0

    def parse(self) -> Expression:
        """Parse the whole text."""
        found = self._parse_or(MAX_DEPTH)
        if self._get_token()[0] != "end":
            got = self._format_token()
            raise WhereError(f"Expected and, or, or the end after {found}, got {got}.")
        return found

    def _get_token(self) -> tuple[str, str]:
        return self._tokens[self._at]

    def _take(self, *wanted: str) -> str | None:
        """Consume and return the next token, if it is one of these words or signs."""
        kind, token = self._get_token()
        if kind in {"word", "sign"} and token in wanted:
            self._at += 1
            return token
        return None

    def _format_token(self) -> str:
        kind, token = self._get_token()
        return f"the name {token}" if kind in {"name", "quoted"} else token

    def _parse_or(self, levels: int) -> Expression:
        def parse_and() -> Expression:
            return self._parse_operands("and", lambda: self._parse_not(levels))

        return self._parse_operands("or", parse_and)

    def _parse_operands(self, word: str, parse_operand: Callable[[], Expression]) -> Expression:
        parts = [parse_operand()]
        while self._take(word):
            parts.append(parse_operand())
        return parts[0] if len(parts) == 1 else join_conditions(word, *parts)

    def _parse_not(self, levels: int) -> Expression:
        if levels < 1:
            raise WhereError(f"Expected a condition of at most {MAX_DEPTH} levels, got more.")
        if self._take("not"):
            return negate(self._parse_not(levels - 1))
        if self._take("("):
            found = self._parse_or(levels - 1)
            if not self._take(")"):
                raise WhereError(f"Expected ) after {found}, got {self._format_token()}.")
            return found
        return self._parse_comparison()

    def _parse_comparison(self) -> Expression:
        """Parse `age > 60`, `60 < age`, `18 <= age < 65`, `age in (1, 2)` or `ward is null`."""
        if self._get_token()[0] in {"name", "quoted"}:
            return self._parse_after_column(self._parse_column())
        first = self._parse_value("before a comparison")
        sign = self._parse_sign(f"after {format_constant(first)}")
        column = self._parse_column()
        lower = Comparison(column, _MIRRORED[sign], (first,))
        if self._get_token() in {("sign", each) for each in _SIGNS}:
            return join_conditions("and", lower, self._parse_after_column(column))
        return lower

    def _parse_after_column(self, column: str) -> Expression:
        name = format_column(column)
        if self._take("is"):
            turned = self._take("not")
            if not self._take("null", "none"):
                raise WhereError(f"Expected null after '{name} is', got {self._format_token()}.")
            return negate(Comparison(column, "null")) if turned else Comparison(column, "null")
        turned = self._take("not")
        if self._take("in"):
            found = build_in_condition(column, self._parse_list(name))
            return negate(found) if turned else found
        if turned:
            raise WhereError(f"Expected in after '{name} not', got {self._format_token()}.")
        sign = self._parse_sign(f"after {name!r}")
        return Comparison(column, sign, (self._parse_value(f"after '{name} {sign}'"),))

    def _parse_list(self, name: str) -> tuple[Constant, ...]:
        if not self._take("("):
            raise WhereError(f"Expected ( after '{name} in', got {self._format_token()}.")
        values = [self._parse_value(f"after '{name} in ('")]
        while self._take(","):
            values.append(self._parse_value(f"after '{name} in (…,'"))
        if not self._take(")"):
            got = self._format_token()
            raise WhereError(f"Expected ) after the constants of {name!r}, got {got}.")
        return tuple(values)

    def _parse_column(self) -> str:
        kind, token = self._get_token()
        if kind not in {"name", "quoted"}:
            raise WhereError(f"Expected a column's name, got {token}.")
        self._at += 1
        return token.strip("`") if kind == "quoted" else token

    def _parse_sign(self, context: str) -> str:
        found = self._take(*_SIGNS)
        if found is None:
            raise WhereError(f"Expected a comparison {context}, got {self._format_token()}.")
        return {"=": "==", "<>": "!="}.get(found, found)

    def _parse_value(self, context: str) -> Constant:
        kind, token = self._get_token()
        if kind == "number":
            value: Constant = float(token) if re.search(r"[.eE]", token) else int(token)
        elif kind == "text":
            value = re.sub(r"\\(.)", r"\1", token[1:-1])
        elif kind == "word" and token in {"true", "false"}:
            value = token == "true"  # noqa: S105 - of the text, no secret
        else:
            raise WhereError(f"Expected a constant {context}, got {self._format_token()}.")
        self._at += 1
        return parse_constant(value, context=context)
