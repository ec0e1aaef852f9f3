"""Pages of names that are markup: nothing of them is a tag, runs or asks for anything.

Names of columns, categories, questions, groups, methods, folders and files, through Parley's own
commands, into the page of a run, a session, a sweep, a comparison and an audit. A parser reads each
page as a browser would, and, where there is one, a real browser does.
"""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import subprocess
import threading
from dataclasses import replace

import numpy as np
import pytest
from commands import invoked
from pages import Page, make_run

import parley
from parley.audit import audit_page
from parley.client.data.schema import Schema
from parley.presentation.page_registry import write_page
from parley.presentation.run_page import write_report
from parley.server.records.run_summary import RunSummary
from parley.sweeps.sweep_cells import build_sweep
from parley.sweeps.sweep_plots import draw_figures
from parley.sweeps.sweep_runner import run_cells
from parley.sweeps.sweep_summary import summarise_rows, write_results

EVIL = (
    "</title></style></text></svg></script>\"'><script src=http://{at}/1></script>"
    "<img src=http://{at}/2 onerror=document.title=666><svg onload=document.title=666>"
    "<style>@import 'http://{at}/3';</style><meta http-equiv=refresh content='0;url=http://{at}/4'>"
    "<base href=http://{at}/5><iframe srcdoc='<script>parent.document.title=666</script>'></iframe>"
    "<!--{{{{7*7}}}}]]>&lt;script&gt;`<b id=x>"
)
BROWSER = shutil.which("chromium")
TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section", "div",
    "p", "h1", "h2", "h3", "h4", "span", "code", "sup", "sub", "pre", "details", "summary", "ul",
    "ol", "li", "dl", "dt", "dd", "table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td",
    "figure", "figcaption", "svg", "g", "path", "text", "tspan", "rect", "line", "circle", "desc",
    "defs", "clippath", "strong", "em", "br", "lineargradient", "stop", "small", "aside", "nav",
}  # fmt: skip


class Canary:
    """An address of this machine that pages would ask; `asked` is what they did."""

    def __init__(self) -> None:
        asked = self.asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_error(404)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.at = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def canary():
    made = Canary()
    yield made
    made.end()


@pytest.fixture(scope="module")
def evil(canary):
    return EVIL.format(at=canary.at)


@pytest.fixture(scope="module")
def page_of(tmp_path_factory, evil):
    """Makes a page of a kind, once."""
    root = tmp_path_factory.mktemp("hostile")
    return functools.cache(lambda kind: KINDS[kind](root / kind, evil))


def report(folder, evil):
    """Of names of data sets, columns, labels, laws, parties in a reason, notes: all of them."""
    named = make_run(folder / evil.replace("/", "∕")[:120], job=f"# {evil}\n", reason=evil)
    path = named / "summary.json"
    known = RunSummary.parse(path.read_text(), path)
    own = known.primary.with_fields(
        noise=known.primary.noise.with_fields(law=evil), conversion=evil, calibration=evil
    )
    facts = known.with_fields(
        secure_aggregation=known.secure_aggregation.with_fields(backend=evil, masked_check=evil)
    ).to_json()
    facts |= dict.fromkeys((key for key in facts if isinstance(facts[key], str)), evil)
    facts |= {"metric": "accuracy", "advice": [evil], "run_dir": str(named)}
    facts["guarantees"] = [own.to_json(), own.to_json() | {"unit": "party"}]
    facts["partition"] = {
        **{"kind": "column", "column": evil, "labels": [evil, "1"], "numeric": False},
        **{"overall": [0.5, 0.5], "skew": {"mean": 0.1, "largest": 0.2}, "quantiles": [0, 0.5, 1]},
        **{"commonest": [0.5] * 5, "sizes": [91, 91, 91], "counts": [[40, 51]] * 5},
    }
    path.write_text(json.dumps(facts))
    lines = named / "rounds.jsonl"
    lines.write_text(lines.read_text().replace('"cks20"', json.dumps(evil)))
    page = write_report(named)
    assert page.read_text(encoding="utf-8").count("&lt;iframe") > 20
    return page


def comparison(folder, evil):
    runs = [report(folder, evil).parent, make_run(folder / "other", rounds=5, parties=3)]
    return write_page("comparison", folder / "compare.html", runs)


def session(folder, evil):
    quoted = evil.replace("\\", "").replace('"', '\\"')
    schema = Schema.from_toml(
        f"""
[columns]
"age{quoted}" = {{ kind = "numeric", range = [0, 100] }}
"ward{quoted}" = {{ kind = "categorical", categories = ["A & E", "{quoted}"] }}
sick = {{ kind = "label", positive = "yes{quoted}", negative = "no" }}
"""
    )
    rng = np.random.default_rng(1)
    age, ward, count = f"age{evil}", f"ward{evil}", 300
    data = [
        {
            age: rng.uniform(0, 100, count),
            ward: rng.choice(["A & E", evil], count),
            "sick": rng.choice([f"yes{evil}", "no"], count),
        }
    ] * 3
    with parley.Session(data, schema=schema, epsilon=50.0, delta=1e-6, out=folder) as s:
        s.histogram(age, bins=5, epsilon=1)
        s.group_by(ward).mean(age, epsilon=1)
        s.histogram(ward, epsilon=1, by="party")
        s.histogram("sick", epsilon=1)
        s.partition(ward, epsilon=1)[0].mean(age, epsilon=0.4)
        return s.report()


def sweep(folder, evil):
    table = {"seeds": 1, "methods": {evil: {"algorithm.rounds": 2}, "b": {}}}
    table["grid"] = {"privacy.epsilon": [1, 2]}
    base = {
        "parties": {"count": 3},
        "data": {"source": "synthetic", "records": 120},
        "algorithm": {"rounds": 1},
    }
    cells = build_sweep({**base, "sweep": table}, source="s.toml")
    rows = run_cells(cells, folder, workers=1)
    rows = [*rows, {**rows[0], "status": "failed", "error": evil}]
    write_results(rows, cells.axes, folder)
    figures = draw_figures(summarise_rows(rows, cells.axes), folder)
    return write_page("sweep", folder / "sweep.html", rows, cells.axes, figures, title=evil)


def audit(folder, evil):
    kept = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_page, "write_audit", lambda reports, at: kept.extend(reports) or at)
        quick = ["--trials", "600", "--seed", "4", "--set", "algorithm.rounds=1"]
        result = invoked("audit", *quick, "--set", "privacy.noise-point=server", "--out", folder)
        assert result.exit_code == 0, result.output
    changed = [replace(each, environment={**each.environment, "changed": [evil]}) for each in kept]
    return audit_page.write_audit(changed, folder)


KINDS = {
    "report": report,
    "compare": comparison,
    "session": session,
    "sweep": sweep,
    "audit": audit,
}
SLOW = {"sweep": pytest.mark.heavy, "audit": pytest.mark.heavy}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=SLOW.get(kind, ())) for kind in KINDS])
def test_a_parser_finds_no_tag_of_a_name_and_a_policy_that_allows_nothing(page_of, kind):
    text = page_of(kind).read_text(encoding="utf-8")
    assert "&lt;script" in text  # it is there, as text
    assert "{{7*7}}" in text  # and data is never a template
    read = Page(text)
    assert set(read.tags) <= TAGS
    names = {name for _, name, _ in read.attributes}
    assert not {name for name in names if name.startswith("on")}
    assert not names & {"src", "srcset", "href", "xlink:href", "action", "srcdoc"}
    ((inside, policy),) = (each for each in read.metas if "http-equiv" in each[1])
    assert inside == ["html", "head"]
    assert policy["http-equiv"] == "Content-Security-Policy"
    rules = dict(rule.split(maxsplit=1) for rule in policy["content"].split("; "))
    assert rules.pop("default-src") == "'none'"
    assert rules.items() <= {"style-src": "'unsafe-inline'", "img-src": "data:"}.items()
    assert text.index("Content-Security-Policy") < text.index("<title>")
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def browsed(page, folder):
    """The page as a browser has it once it is done with it."""
    command = (
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-data-dir={folder}",
        "--virtual-time-budget=3000", "--dump-dom", page.as_uri(),
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.heavy
@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
def test_a_browser_runs_nothing_and_asks_nothing_of_any_page(page_of, canary, evil, tmp_path):
    plain = tmp_path / "plain.html"
    plain.write_text(f"<!doctype html><title>plain</title>{evil}", encoding="utf-8")
    browsed(plain, tmp_path / "0")
    assert canary.asked  # it would do harm
    canary.asked.clear()
    for kind in KINDS:
        dom = browsed(page_of(kind), tmp_path / kind)
        assert set(Page(dom).tags) <= TAGS, kind
        assert "<title>666" not in dom
    assert canary.asked == []
