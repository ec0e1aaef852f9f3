"""Build reference pages from the code: command line, job, party.toml, schema and so on.

`docs/site_pages.py` adds them to the site. No file holds their text, so they cannot disagree with
the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import typer.main
from pydantic import BaseModel

from parley.analytics.session_settings import Settings
from parley.cli import app
from parley.client.data.schema import COLUMN_KINDS, FileFormat, Schema
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.owner_policy import OwnerPolicy
from parley.command_table import LazyCommand
from parley.deploy.run_watcher import REASON_MEANINGS
from parley.deploy.stream.metrics_server import Monitor
from parley.exit_status import EXIT_CODES
from parley.safe_io.attribute_docstrings import describe_fields
from parley.safe_io.toml_writing import format_toml_value
from parley.server.jobs.job import FORMS, Job
from parley.server.records.evaluation import ClassifierMetrics, RegressionMetrics
from parley.server.records.round_line import RoundLine


def build_reference_pages() -> dict[str, str]:
    """Return every page's Markdown by its file name on the site."""
    return {name: build() for name, (_, build) in PAGES.items()}


def build_cli_page() -> str:
    """Build the page of the command line: every command with its arguments and options."""
    root = typer.main.get_command(app)
    parts = [
        "# Command line",
        "Every command with its arguments and options, as `parley COMMAND --help` prints them.",
    ]
    for path, command in _list_commands(root, ()):
        level = "#" * (len(path) + 1)
        parts += [f"{level} {' '.join(('parley', *path))}", _format_help(command.help or "")]
        context = click.Context(command, info_name=" ".join(("parley", *path)))
        parts.append(f"```\n{command.get_usage(context).removeprefix('Usage: ')}\n```")
        parts += _format_options(command, context)
    return _join(parts)


def build_job_page() -> str:
    """Build the page of job keys, section by section."""
    parts = [
        "# Job keys",
        "A job is a TOML file of nine sections. All keys are optional. `parley run --print-job` "
        "prints the defaults with these comments. `--set section.key=value` overrides one key. "
        "Relative paths in a job file are relative to that file, as in `party.toml` and in a file "
        "of queries. Paths on the command line, in Python and in `run.out` are relative to the "
        "folder in which you run the command. "
        "A key of another kind is refused if you change it.",
    ]
    for name, info in Job.model_fields.items():
        section = info.alias or name
        if section in FORMS:
            forms = FORMS[section]
            parts += [f"## [{section}]", _to_markdown(forms.purpose)]
            kinds = _group_kinds_by_key(forms.forms)
            for key, fields in _merge_properties(forms.forms.values()).items():
                note = "" if len(kinds[key]) == len(forms.forms) else _format_kinds(kinds[key])
                parts.append(_build_key_entry(f"{section}.{key}", fields, note=note))
        else:
            model = info.annotation
            parts += [f"## [{section}]", _to_markdown(model.__doc__ or "")]
            parts += _build_key_entries(model, prefix=f"{section}.")
    return _join(parts)


def build_party_page() -> str:
    """Build the page of `party.toml`, the policy of a party's owner."""
    return _join(
        [
            "# party.toml keys",
            "`party.toml` is your policy as a party's owner: which jobs your machine accepts, and "
            "how much they may spend. [Policies, databases, services](deployment-services.md) "
            "explains how to write one.",
            "## Top level",
            *_build_key_entries(OwnerPolicy, without=("data",)),
            "## [data.NAME]",
            "One section per data set that you serve. NAME is what a job writes as `data.source`.",
            *_build_key_entries(DatasetConfig, section="data"),
        ]
    )


def build_schema_page() -> str:
    """Build the page of schema keys: the file's own, and those of each kind of column."""
    parts = [
        "# Schema keys",
        "[Describe your table](schema.md) explains schemas step by step. These are all keys.",
        "## Top level",
        *_build_key_entries(Schema, without=("file", "columns")),
        "## [file]",
        "How the file is written.",
        *_build_key_entries(FileFormat, section="file"),
    ]
    for kind, column in COLUMN_KINDS.items():
        summary = (column.__doc__ or "").partition("\n")[0]
        entries = _build_key_entries(column, section=kind, without=("kind",))
        parts += [f"## Columns of kind {kind}", summary if entries else f"{summary} No other keys."]
        parts += entries
    return _join(parts)


def build_session_page() -> str:
    """Build the page of the keys of `[session]` in a file of queries."""
    return _join(
        [
            "# Session keys",
            "The `[session]` section of a file of queries, and keywords of `parley.Session`. "
            "[Every kind of query](queries.md) lists what you can ask.",
            *_build_key_entries(Settings),
        ]
    )


def build_errors_page() -> str:
    """Build the page of the reasons that a party gives when it declines."""
    return _join(
        [
            "# Why a party declines",
            "A party that declines gives one of these reasons, and no detail: its detail stays in "
            "its log. `parley status` and the server's log name the party and the reason. The "
            "party's owner sees what was expected and what was proposed in the party's log.",
            *(
                f"## `{reason}` {{ #{reason} .entry }}\n\n{_to_sentence(text)}."
                for reason, text in REASON_MEANINGS.items()
            ),
        ]
    )


def build_exit_codes_page() -> str:
    """Build the page of the exit codes of every command."""
    return _join(
        [
            "# Exit codes",
            "What a script can tell from `$?` after a command of `parley`. Messages are on "
            "standard error; `--json` writes one object to standard output, also if the command "
            "fails later.",
            _build_table(
                ["code", "meaning"],
                [
                    [_build_anchored(str(code), "code"), _to_markdown(text)]
                    for code, text in EXIT_CODES.items()
                ],
            ),
        ]
    )


def build_records_page() -> str:
    """Build the page of metrics: of rounds and models in run folders, and of the monitor."""
    parts = [
        "# Metrics and rounds",
        "Keys of a run folder's JSON. `summary.json` has the model's metrics under `evaluation`; "
        "`rounds.jsonl` has one line per round.",
    ]
    for title, section, record in (
        ("Metrics of a classifier", "classifier", ClassifierMetrics),
        ("Metrics of a regression", "regression", RegressionMetrics),
        ("A line of rounds.jsonl", "round", RoundLine),
    ):
        parts += [f"## {title}", _build_record_table(record, section)]
    return _join([*parts, *_build_monitor_entries()])


def _build_monitor_entries() -> list[str]:
    """Return the section on the metrics that `parley server --monitor PORT` serves."""
    connections = SimpleNamespace(list_online=frozenset)
    port = SimpleNamespace(deployment=SimpleNamespace(parties=()), connections=connections)
    queue = SimpleNamespace(list_runs=list)
    rows = []
    for metric in Monitor(port, queue, say=lambda _event: None).collect():
        name = metric.name + ("_total" if metric.type == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in metric._labelnames) or "–"
        rows.append([_build_anchored(name), metric.type, labels, metric.documentation])
    return [
        "## Metrics of the monitor",
        "`parley server DIR --monitor PORT` serves them at `/metrics`, for Prometheus.",
        _build_table(["metric", "kind", "labels", "meaning"], rows),
    ]


PAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "reference-cli.md": ("Command line", build_cli_page),
    "reference-job.md": ("Job keys", build_job_page),
    "reference-party.md": ("party.toml keys", build_party_page),
    "reference-schema.md": ("Schema keys", build_schema_page),
    "reference-session.md": ("Session keys", build_session_page),
    "reference-metrics.md": ("Metrics and rounds", build_records_page),
    "reference-exit-codes.md": ("Exit codes", build_exit_codes_page),
    "reference-reasons.md": ("Why a party declines", build_errors_page),
}
"""File name on the site → title in the navigation, and the function that builds the page."""


def _list_commands(
    command: click.Command, path: tuple[str, ...]
) -> Iterable[tuple[tuple[str, ...], click.Command]]:
    """Yield every command below `command` with its words, groups before their members."""
    if path:
        yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            if isinstance(member, LazyCommand):
                member, summary = member.loaded, member.help
                member.help = member.help or summary
            if member and not member.hidden:
                yield from _list_commands(member, (*path, name))


def _format_options(command: click.Command, context: click.Context) -> list[str]:
    """Return the table of a command's arguments, then its options, if it has any."""
    rows = []
    shown = command.get_params(context)
    for parameter in sorted(shown, key=lambda one: isinstance(one, click.Option)):
        if getattr(parameter, "hidden", False) or "--help" in parameter.opts:
            continue
        record = parameter.get_help_record(context) or ("", "")
        names = re.split(r", | / ", record[0].removesuffix(" RANGE"))
        rows.append(
            [", ".join(f"`{name}`" for name in names), _format_option_help(parameter, record[1])]
        )
    return [_build_table(["name", "meaning"], rows)] if rows else []


def _format_option_help(parameter: click.Parameter, text: str) -> str:
    """Return the meaning of an argument or option with its default, or that it is required.

    Args:
        parameter: the argument or option.
        text: help that the terminal shows, which ends with "[default: 0; x>=0]".
    """
    meaning, _, extra = text.partition("  \\[")
    default = re.match(r"default: ([^;\]]+)", extra)
    if default:
        return f"{_mark_options(meaning)} Default: `{default[1]}`."
    needed = isinstance(parameter, click.Option) and parameter.required
    return _mark_options(meaning) + (" Required." if needed else "")


def _mark_options(text: str) -> str:
    """Return the Markdown of a help text with the options that it names as code."""
    return re.sub(
        r"(`[^`]*`)|(--[a-z][\w-]*)", lambda found: found[1] or f"`{found[2]}`", _to_markdown(text)
    )


def _build_key_entries(
    model: type[BaseModel], *, prefix: str = "", section: str = "", without: tuple[str, ...] = ()
) -> list[str]:
    """Build the entry of each key of a section.

    Args:
        model: class of the section's settings.
        prefix: text before each key's name.
        section: name before each key's anchor, if other sections have keys of the same name.
        without: keys to leave out.
    """
    return [
        _build_key_entry(prefix + key, [found], section=section)
        for key, found in _list_properties(model).items()
        if key not in without
    ]


def _build_key_entry(
    name: str, found: list[Mapping[str, Any]], *, section: str = "", note: str = ""
) -> str:
    """Build a key's entry: a heading that search finds, its values and default, its meaning."""
    values = _join_words(text for one in found for text in _list_values(one))
    default = _join_words(_describe_default(one) for one in found)
    meaning = next((one["description"] for one in found if "description" in one), "")
    facts = [values, default if default == "required" else f"default:\u00a0{default}", note]
    if default == "none" and re.search(r"\bdefault\b", meaning, re.IGNORECASE):
        del facts[1]
    anchor = "-".join(filter(None, (section, name.replace(".", "-"))))
    return (
        f"### `{name}` {{ #{anchor} .entry }}\n\n"
        f"{' · '.join(fact for fact in facts if fact)}\n{{: .facts }}\n\n"
        + _to_markdown(_mark_values(meaning, re.findall(r"`([a-z][\w-]*)`", values)))
    )


def _mark_values(text: str, values: Iterable[str]) -> str:
    """Return a key's meaning with its values as code where it explains or lists them: in
    "uniform: every party counts the same", and in "sgd | adam".
    """
    kinds = {kind for forms in FORMS.values() for kind in forms.forms} - {"none"}
    ordered = sorted({*values, *kinds, "auto"}, key=len, reverse=True)
    names = "|".join(re.escape(name) for name in ordered)
    explained = rf"(?<![\w`.'-])({names})(?=(?:, (?:{names}))*: | \|)"
    return re.sub(rf"{explained}|(?<=\| )({names})(?![\w-])", r"`\1\2`", text)


def _list_properties(model: type[BaseModel]) -> dict[str, Mapping[str, Any]]:
    """Return the JSON schema of each key of a section, with references resolved."""
    schema = model.model_json_schema(by_alias=True)
    definitions, required = schema.get("$defs", {}), schema.get("required", [])
    described = {
        info.alias or name: describe_fields(model)[name]
        for name, info in model.model_fields.items()
    }
    return {
        key: {
            **_resolve(found, definitions),
            "required": key in required,
            **({"description": described[key]} if described.get(key) else {}),
        }
        for key, found in schema.get("properties", {}).items()
    }


def _resolve(found: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    resolved = dict(found)
    if "$ref" in resolved:
        resolved = {**definitions[resolved.pop("$ref").rsplit("/", 1)[-1]], **resolved}
    for key in ("anyOf", "allOf", "oneOf"):
        if key in resolved:
            resolved[key] = [_resolve(one, definitions) for one in resolved[key]]
    if isinstance(resolved.get("items"), Mapping):
        resolved["items"] = _resolve(resolved["items"], definitions)
    return resolved


def _merge_properties(
    models: Iterable[type[BaseModel]],
) -> dict[str, list[Mapping[str, Any]]]:
    """Return, per key, its JSON schemas in all kinds that have it."""
    merged: dict[str, list[Mapping[str, Any]]] = {}
    for model in models:
        for key, found in _list_properties(model).items():
            merged.setdefault(key, []).append(found)
    return merged


def _group_kinds_by_key(forms: Mapping[str, type[BaseModel]]) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for kind, model in forms.items():
        for key in _list_properties(model):
            kinds.setdefault(key, []).append(kind)
    return kinds


def _format_kinds(kinds: Iterable[str]) -> str:
    return "only for " + _join_words(f"`{kind}`" for kind in kinds)


def _describe_default(found: Mapping[str, Any]) -> str:
    if found["required"]:
        return "required"
    value = found.get("default")
    if value in (None, "", []):
        return "none"
    text = str(value) if isinstance(value, dict) else format_toml_value(value)
    return "all" if len(text) > _LONGEST_DEFAULT else f"`{text}`"


_LONGEST_DEFAULT = 60


def _list_values(found: Mapping[str, Any]) -> list[str]:
    """Return the alternatives that a JSON schema accepts, in words."""
    members = found.get("anyOf") or found.get("oneOf")
    if members:
        return [text for one in members if one.get("type") != "null" for text in _list_values(one)]
    constants = [found["const"]] if "const" in found else found.get("enum", ())
    if found.get("type") == "boolean":
        constants = constants or (True, False)
    if constants:
        return [f"`{one if isinstance(one, str) else format_toml_value(one)}`" for one in constants]
    if found.get("type") == "array":
        items = found.get("items") or next(iter(found.get("prefixItems", ())), None)
        if not items:
            return ["list"]
        return ["list of " + _join_words(_TYPE.sub(r"\1s", text) for text in _list_values(items))]
    return [_describe_range(found)]


_TYPE = re.compile(r"^(integer|number|text|table|list)\b")


def _describe_range(found: Mapping[str, Any]) -> str:
    """Return the type and the bounds of a JSON schema of numbers, texts or tables."""
    names = {"integer": "integer", "number": "number", "object": "table"}
    name = names.get(found.get("type", ""), "text")
    if "minimum" in found and "maximum" in found:
        return f"{name}, {_format_bound(found['minimum'])} to {_format_bound(found['maximum'])}"
    bounds = [f"{sign} {_format_bound(found[key])}" for key, sign in _BOUNDS if key in found]
    return f"{name} {' and '.join(bounds)}".strip()


def _join_words(texts: Iterable[str]) -> str:
    """Return the different texts as "a, b or c", with lists last."""
    different = sorted(dict.fromkeys(texts), key=lambda text: text.startswith("list of"))
    return " or ".join(filter(None, (", ".join(different[:-1]), different[-1])))


def _format_bound(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:,g}"


_BOUNDS = (
    ("exclusiveMinimum", ">"),
    ("minimum", "≥"),
    ("exclusiveMaximum", "<"),
    ("maximum", "≤"),
)


def _build_record_table(record: type[BaseModel], section: str) -> str:
    """Build the table of a JSON record's keys; their meanings are in the class's docstring."""
    meanings = _parse_attributes(record)
    rows = [
        [
            _build_anchored(key, section),
            _join_words(_list_values(found)),
            _to_sentence(meanings[key]),
        ]
        for key, found in _list_properties(record).items()
        if key != "format"
    ]
    return _build_table(["key", "values", "meaning"], rows)


def _parse_attributes(record: type[BaseModel]) -> dict[str, str]:
    """Return the meanings that docstrings of a class and its bases list under "Attributes:"."""
    entries = []
    for each in reversed(record.__mro__):
        _, _, listed = (each.__doc__ or "").partition("Attributes:\n")
        entries += re.findall(r"^ {8}(\S[^:]*): (.*(?:\n {12}.*)*)", listed, re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


def _build_anchored(name: str, section: str = "") -> str:
    """Build a name to which a link can lead, for the first cell of a row."""
    return f"`{name}`{{ #{'-'.join(filter(None, (section, name)))} }}"


def _build_table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(_escape_bars(cell) for cell in row)} |" for row in lines)


def _escape_bars(cell: str) -> str:
    """Return `cell` with its bars escaped, except in code, which shows a backslash as it is."""
    return re.sub(r"(`[^`]*`)|\|", lambda found: found[1] or r"\|", cell)


_PAGE_NAME = re.compile(r"\bdocs/([a-z-]+\.md)(#[a-z-]+)?")
_DOCS = Path(__file__).parent


def _to_markdown(text: str) -> str:
    """Escape what Markdown would read as markup, and turn names of pages into links."""
    text = re.sub(r"\[/?bold\]", "`", text).replace("\\[", "[")  # markup of the terminal
    parts = re.split(r"(`[^`]*`)", text)
    escaped = [
        part if at % 2 else re.sub(r"([\[\]<>*_])", r"\\\1", part) for at, part in enumerate(parts)
    ]
    joined = re.sub(r"\s*\n\s*(?!\n)", " ", "".join(escaped)).strip()
    return _PAGE_NAME.sub(_link_page, joined.replace("\\_", "_"))


def _link_page(match: re.Match[str]) -> str:
    """Return a link to a page of `docs/`, with the page's title as its text."""
    with (_DOCS / match[1]).open(encoding="utf-8") as page:
        title = page.readline().removeprefix("#").strip()
    return f"[{title}]({match[1]}{match[2] or ''})"


def _to_sentence(text: str) -> str:
    """Return the Markdown of a meaning: begin with a capital, and write JSON's null as such."""
    return _to_markdown(
        re.sub(r"\bNone\b", "`null`", re.sub("^[a-z]", lambda a: a[0].upper(), text))
    )


def _format_help(text: str) -> str:
    """Return a command's help as paragraphs, and as a list what it lists as "name: meaning"."""
    parts = [_mark_options(part) for part in text.replace("\b", "").split("\n\n")]
    shown = [f"- {part}" if re.match(r"[a-z.]+: ", part) else f"\n{part}\n" for part in parts]
    return "\n".join(shown).strip()


def _join(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
