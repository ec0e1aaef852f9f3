"""The documentation agrees with the code: the import graph, comments' references, attacks."""

from __future__ import annotations

import ast
import csv
import importlib
import json
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

_ROOT = Path(__file__).parents[1]
_PRIVACY = ("docs/privacy.md", "docs/privacy-releases.md", "docs/privacy-shares.md")
_OF_A_JOB = ("algorithm_base", "evaluation_section", "unused_keys")
"""Files of `server/jobs` that a job imports and that check the whole job: they name its type, which
only a type checker imports."""
_PACKAGES = ("parley", "simulations", "server", "client", "secure_agg", "privacy", "tests")


@pytest.fixture
def diagram(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(_ROOT / "docs")
    return importlib.import_module("make_import_graph")


def test_reference_pages_have_a_meaning_for_every_key_of_every_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(_ROOT / "docs")
    pages = importlib.import_module("reference_pages").build_reference_pages()
    entry = re.compile(
        r"^### `([a-z.-]+)` \{ (#[a-z-]+) \.entry \}\n\n(.+)\n\{: .facts \}\n\n(.+)$", re.M
    )
    for name, least in (("job", 100), ("party", 50), ("schema", 30), ("session", 10)):
        page = pages[f"reference-{name}.md"]
        found = entry.findall(page)
        assert page.count("### ") == len(found) >= least
        assert all(len(meaning.split()) >= 2 for *_, meaning in found), found
        assert len({anchor for _, anchor, *_ in found}) == len(found)
        assert not re.search(r"^## .*\n+(## |\Z)", page, re.M)  # a section without text
    assert (
        "### `dp-sgd.clip-norm` { #dp-sgd-clip-norm .entry }\n\nnumber" in pages["reference-job.md"]
    )
    assert "`gradient-perturbation`" in pages["reference-job.md"]
    assert (
        "`approval-above` { #data-approval-above .entry }\n\nnumber ≥ 0"
        in pages["reference-party.md"]
    )
    assert "## `budget-exhausted` { #budget-exhausted .entry }" in pages["reference-reasons.md"]
    assert "list of lists of texts" in pages["reference-job.md"]
    assert "list of numbers · required" in pages["reference-schema.md"]  # of a pair
    assert "### parley ledger raise" in pages["reference-cli.md"]
    command_line = pages["reference-cli.md"]
    assert "| `--set KEY=VALUE` |" in command_line  # an option has its value
    assert "not be secret; the same seed gives the same rows. Default: `0`." in command_line
    assert "| `SHELL:{bash|zsh|fish}` |" in command_line  # code shows a backslash as it is
    assert "\n\n- bash: `eval" in command_line  # what the help lists is a list
    assert "Without `--data`, the job uses" in command_line
    assert "`uniform`: every party counts the same. `size`: by" in pages["reference-job.md"]
    assert (
        "`reserved-delta` { #reserved-delta .entry }\n\nnumber ≥ 0 and < 1\n{"
        in (
            pages["reference-session.md"]  # its meaning names the default
        )
    )
    assert "| `RUN` | A run's folder. |" in pages["reference-cli.md"]  # arguments have their help
    for name in ("cli", "metrics"):
        assert "|  |" not in pages[f"reference-{name}.md"]
    assert (
        "| `parley_bytes_total`{ #parley_bytes_total } | counter |"
        in (pages["reference-metrics.md"])
    )


def test_diagram_and_table_of_imports_are_those_of_the_code(diagram: ModuleType) -> None:
    edges = diagram.build_edges()
    table = (_ROOT / "docs/import-table.csv").read_text(encoding="utf-8")
    again = "run `python docs/make_import_graph.py` and commit what it writes"
    assert diagram.draw_svg(edges) == (_ROOT / "docs/import-graph.svg").read_text(
        encoding="utf-8"
    ), again
    assert diagram.build_table(edges) == table, again


def test_the_diagram_has_folders_only_and_is_as_wide_as_a_page(diagram: ModuleType) -> None:
    drawn = diagram.draw_svg(diagram.build_edges())
    names = set(re.findall(r'class="node"[^>]*>([^<]+)<', drawn))
    assert {"commands", "contract", "accounting"} <= names
    assert all(any((_ROOT / package / name).is_dir() for package in _PACKAGES) for name in names)
    # A page's column has 750 pixels: in a wider picture, text is too small to read.
    assert int(re.findall(r'<svg [^>]*width="(\d+)"', drawn)[0]) <= 760
    # An import through a module counts: there is no folder `client/app`.
    edges = {"client.data": {"client.app"}, "client.app": {"client.models"}, "client.models": set()}
    folders = diagram.keep_folders(edges)
    assert folders == {"client.data": {"client.models"}, "client.models": set()}


def test_no_folders_import_each_other_even_for_types_alone(diagram: ModuleType) -> None:
    edges = diagram.build_edges()
    assert not any(diagram.lay_out(package, edges).circles for package in diagram.PACKAGES)


@pytest.mark.parametrize("types", [False, True])
def test_no_files_import_each_other_even_for_types_alone(diagram: ModuleType, types: bool) -> None:
    graph = diagram.build_import_graph(types=types)
    imports = {
        file: graph.find_modules_directly_imported_by(file) & graph.modules
        for file in graph.modules
    }
    if types:
        for form in _OF_A_JOB:
            imports[f"parley.server.jobs.{form}"].discard("parley.server.jobs.job")
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        raise AssertionError(" → ".join(error.args[1])) from None


def test_every_import_between_packages_goes_downward(diagram: ModuleType) -> None:
    floor = {name: at for at, name in enumerate(diagram.PACKAGES)}
    for node, imported in diagram.build_edges().items():
        for other in imported:
            assert floor[diagram.get_package(node)] <= floor[diagram.get_package(other)]


def test_every_section_of_the_privacy_page_that_code_cites_is_there() -> None:
    page = "".join((_ROOT / each).read_text(encoding="utf-8") for each in _PRIVACY)
    headings = set(re.findall(r"^## (\d+)\. ", page, re.MULTILINE))
    # A citation may be broken over two lines of a comment.
    text = r"(?:privacy\.md|privacy\s+(?:#\s*)?specification)[,\s#]*\(?(?:section\s+|§\s*)(\d+)"
    before = r"§(\d+)\s+of\s+the\s+privacy"
    cited = {
        (str(path.relative_to(_ROOT)), number)
        for package in _PACKAGES
        for path in (_ROOT / package).rglob("*.py")
        for pattern in (text, before)
        for number in re.findall(pattern, path.read_text(encoding="utf-8"))
    }
    assert cited, "no comment cites the page: has it another name?"
    assert {number for _, number in cited} <= headings, sorted(cited)


def test_sentences_that_code_quotes_from_the_privacy_page_stand_there() -> None:
    text = "\n".join((_ROOT / each).read_text(encoding="utf-8") for each in _PRIVACY)
    page = " ".join(text.split())
    code = (_ROOT / "client/contract/release_plan.py").read_text(encoding="utf-8")
    for quoted in re.findall(r'privacy\.md[^"]{0,40}"([^"]+)"', code):
        assert " ".join(quoted.split()) in page


def test_every_file_and_room_that_the_pages_name_is_there() -> None:
    pages = ["docs/architecture.md", *_PRIVACY, "CONTRIBUTING.md", "SECURITY.md"]
    packages = "|".join(_PACKAGES)
    missing = []
    for page in pages:
        text = (_ROOT / page).read_text(encoding="utf-8")
        named = re.findall(rf"`((?:{packages}|docs)/[\w./-]*)`", text)
        missing += [(page, path) for path in named if not (_ROOT / path).exists()]
    architecture = (_ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    for dotted in re.findall(rf"`((?:parley\.)?(?:{packages})(?:\.\w+)+)`", architecture):
        # A node, or a module of it.
        parts = dotted.split(".")
        path = _ROOT.joinpath(*(parts[1:] if parts[1] in _PACKAGES else parts))
        if not path.is_dir() and not path.with_suffix(".py").is_file():
            missing.append(("docs/architecture.md", dotted))
    assert not missing


def test_a_sweep_s_folder_becomes_its_part_of_the_page_and_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(_ROOT / "docs")
    maker = importlib.import_module("make_methods")
    source = (_ROOT / "docs/methods.md").read_text(encoding="utf-8")
    for name, shown in maker.PARTS.items():
        for figure in shown.figures:
            kept = f"methods-{name}-{figure.replace('_', '-')}.svg"
            assert kept in source
            assert (_ROOT / "docs" / kept).exists()
    page = tmp_path / "methods.md"
    page.write_text(source, encoding="utf-8")
    (tmp_path / "figures").mkdir()
    for figure in ("excess_loss", "accuracy"):
        spec = {"title": figure, "mark": "point", "data": {"values": [{}]}}
        (tmp_path / "figures" / f"{figure}.vl.json").write_text(json.dumps(spec))
    heads = ["method", "parties.count", "privacy.epsilon", "epsilon_charged", "metric", "mean"]
    rows = [",".join([*heads, "half_width_95", "runs", "failed", "status"])]
    for method, loss, cost in (("7 local", 4.0, 1), ("10 sum", 0.5, 2), ("4 Pathak", 80, 0.1)):
        for epsilon in (0.05, 0.2, 0.5):
            means = {"excess_loss": (loss / epsilon, 0.1), "accuracy": (0.75, 0.01)}
            means |= {"baseline_accuracy": (0.9, 0), "aggregated_accuracy": (0.8, 0)}
            means |= {"aggregated_excess_loss": (0.003, 0)}
            for metric, mean in means.items():
                told = [method, 10, epsilon, cost * epsilon, metric, *mean, 10, 0, "complete"]
                rows.append(",".join(map(str, told)))
    (tmp_path / "summary.csv").write_text("\n".join(rows))
    maker.make("kdd", tmp_path, docs=tmp_path)
    made = page.read_text(encoding="utf-8")
    assert "| 7 local | 80 ± 0.1 | 8 ± 0.1 | 0.7500 ± 0.0100 | 0.7500 ± 0.0100 | ε |" in made
    assert "| 0.7500 ± 0.0100 | 0.1, 0.4, 1 |" in made
    assert "| 4 Pathak | 1.6e3 ± 0.1 |" in made
    part = made[made.index("<!-- kdd") : made.index("<!-- end of kdd")]
    assert part.count("| at most ε/m |") == 1
    assert (
        "accuracy 0.9000 centralised, 0.8000 aggregated; the latter's excess loss is 3.0e−3."
        in made
    )
    assert "| 7 local over 10 sum | 8 to 8 |" in made
    adult = slice(source.index("<!-- adult"), source.index("<!-- end of adult"))
    assert source[adult] in made
    every = (tmp_path / "methods-kdd.csv").read_text(encoding="utf-8")
    assert every.startswith('parties,method,"excess loss, ε = 0.05","excess loss, ε = 0.2",')
    assert "\n10,7 local,80 ± 0.1,20 ± 0.1,8 ± 0.1,0.7500 ± 0.0100," in every
    assert ">accuracy</text>" in (tmp_path / "methods-kdd-accuracy.svg").read_text()
    (tmp_path / "summary.csv").write_text("\n".join(rows).replace("0,complete", "1,mixed", 1))
    with pytest.raises(SystemExit, match="1 faulty cells"):
        maker.make("kdd", tmp_path, docs=tmp_path)
    with pytest.raises(SystemExit, match="a name of kdd"):
        maker.make("mnist", tmp_path, docs=tmp_path)


def test_the_accuracy_figure_and_page_show_the_numbers_of_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(_ROOT / "docs")
    maker = importlib.import_module("make_accuracy_figure")
    with (_ROOT / "docs/accuracy-tables.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    points = maker.load_points(rows)
    # Three tables and five budgets; DP-EBM takes no table with ten classes.
    assert len(points) == 5 * (4 + 4 + 3)
    figure = (_ROOT / "docs/accuracy-epsilon-tables.svg").read_text(encoding="utf-8")
    for point in points:
        if "not private" not in point["system"]:
            label = f"ε: {point['epsilon']:g}; mean: {point['mean']:g}; system: {point['system']}"
            assert label in figure, label
    page = (_ROOT / "docs/benchmarks-accuracy.md").read_text(encoding="utf-8")
    for row in rows:
        if row["ε"] == "1":
            names = ("table", "ε", "Parley, m = 10", "DP-EBM", "DP-SGD", "diffprivlib", "logistic")
            assert f"| {' | '.join(row[name] for name in names)} |" in page
    with pytest.raises(ValueError, match="found none"):
        maker.load_points(row for row in rows if row["table"] != "Adult")


@pytest.mark.parametrize(
    "phrase",
    [
        "of its own",
        "that it failed was seen",
        "who steals",
        "will not have that",
        "the environment's word",
    ],
)
def test_no_text_has_a_phrase_that_one_reads_twice(phrase: str) -> None:
    files = [*_ROOT.glob("*.md"), *(_ROOT / "docs").glob("*.md")]
    for package in (*_PACKAGES[:-1], "examples"):
        files += [path for kind in ("py", "j2", "toml") for path in _texts(package, kind)]
    found = [
        str(path.relative_to(_ROOT))
        for path in files
        if re.search(rf"\b{phrase}\b(?! `)", " ".join(path.read_text(encoding="utf-8").split()))
    ]
    assert not found


def _texts(package: str, kind: str) -> list[Path]:
    return list((_ROOT / package).rglob(f"*.{kind}"))


ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/attacks.md").read_text(encoding="utf-8")


def test_every_attack_on_the_page_has_the_test_that_it_names():
    files = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/*.py")}
    table = (ROOT / "docs/attacks.csv").read_text(encoding="utf-8")
    named = re.findall(r"(test_\w+\.py)::(\w*)", table + PAGE)
    assert len(named) > 200
    missing = [
        f"{file}::{test}"
        for file, test in named
        if file not in files or not re.search(rf"def {test or 'test_'}", files[file])
    ]
    assert not missing


def test_every_attack_on_the_page_ends_with_a_test():
    attacks_only, _, _ = PAGE.partition("## NIST")
    rows = re.findall(r"^\| (?!attack|---)(.*) \|$", attacks_only, re.MULTILINE)
    assert all(re.search(r"`test_\w+\.py::\w*`$", row) for row in rows), rows
    with (ROOT / "docs/attacks.csv").open(encoding="utf-8", newline="") as file:
        attacks = list(csv.DictReader(file))
    assert all(re.match(r"test_\w+\.py::", attack["tests"]) for attack in attacks)
    assert {row.split(" | ")[0] for row in rows} <= {attack["attack"] for attack in attacks}
    assert f"the most telling of {len(attacks)} attacks" in PAGE


def _list_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    given = node.args
    several = [each for each in (given.vararg, given.kwarg) if each]
    return {each.arg for each in [*given.posonlyargs, *given.args, *given.kwonlyargs, *several]}


def _list_members(node: ast.ClassDef) -> set[str]:
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    found |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return found | {each.name for each in node.body if isinstance(each, ast.FunctionDef)}


def test_what_a_docstring_lists_is_a_parameter_or_a_member() -> None:
    """A renamed parameter leaves its old name in `Args`, where no other tool finds it."""
    entry = re.compile(r"^ {4}([a-z_][\w, *]*): ", re.MULTILINE)
    wrong = []
    for path in (each for package in _PACKAGES for each in (_ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                title, known = "Args", _list_parameters(node)
            elif isinstance(node, ast.ClassDef):
                title, known = "Attributes", _list_members(node)
            else:
                continue
            text = ast.get_docstring(node) or ""
            section = re.search(rf"^{title}:\n((?: {{4,}}.*\n?|\n)+)", text + "\n", re.MULTILINE)
            listed = entry.findall(section[1]) if section else []
            names = {name.strip("* ") for each in listed for name in each.split(",")}
            unknown = sorted(name for name in names - known if name.isidentifier())
            if unknown:
                wrong.append(f"{path.relative_to(_ROOT)}:{node.lineno} {node.name}: {unknown}")
    assert not wrong, "\n".join(wrong)


def test_the_recording_shows_what_a_terminal_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(_ROOT / "docs")
    recording = importlib.import_module("make_recording")
    screen = recording.Screen()
    screen.write("\x1b[1mreading\x1b[0m ━\r\n\x1b[2mε so far\x1b[0m\r\x1b[2K\x1b[1A\x1b[2K")
    screen.write("\x1b[32m11/11\x1b[0m done\r\nSaved  run")
    texts = ["".join(character for character, _ in line) for line in screen.lines]
    assert texts == ["11/11 done", "Saved  run"]
    assert [style for _, style in screen.lines[0]] == ["green"] * 5 + [""] * 5
    shown = recording.build_svg([(0.5, screen.copy_lines())])
    assert '<tspan x="14" class="green">11/11</tspan>' in shown
    lines = [(0.0, [[("a", "")]]), (0.01, [[("b", "")]]), (5.0, [[("c", "")]])]
    assert [at for at, _ in recording.thin_out(lines)] == [0.01, 5.0]


def test_the_figures_are_those_that_their_scripts_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(_ROOT / "docs")
    for script, figure in (
        ("make_adversaries", "adversaries.svg"),
        ("make_budget_figure", "budget.svg"),
        ("make_deployment_figure", "deployment.svg"),
        ("make_risk_figure", "risk.svg"),
    ):
        drawn = importlib.import_module(script).build_svg()
        assert drawn == (_ROOT / "docs" / figure).read_text(encoding="utf-8"), script


def test_a_page_keeps_numbers_with_their_signs_and_breaks_long_names_in_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(_ROOT / "docs")
    pages = importlib.import_module("site_pages")
    generated = SimpleNamespace(file=SimpleNamespace(generated_by="site_pages"))
    words = "ε = 1, 5 %, 3 CPU s, m = 10, [−1, 1] and 0.9 ± 0.1"
    text = f"{words}, `ε = 1`\n```\nε = 1\n```\n"
    shown = pages.on_page_markdown(text, page=generated, config=None, files=None)
    bound = words
    for pair in ("ε =", "= 1", "5 %", "3 CPU", "CPU s", "m =", "= 10", "−1, 1", "0.9 ±", "± 0.1"):
        bound = bound.replace(pair, pair.replace(" ", "\u00a0"))
    assert shown == text.replace(words, bound.replace("3\u00a0CPU", "3 CPU"))
    name = "tests/test_docs.py::test_that_is_very_long"
    html = pages.on_page_content(f"<code>{name}</code><pre><span></span><code>{name}</code></pre>")
    assert html.count(name) == 1  # code blocks stay as they are
    assert '<code class="long">tests/<wbr>test_docs.py::<wbr>test_<wbr>that_' in html
    html = pages.on_page_content(
        "<code>parley.secure_agg.pairwise_server</code> by DP-SGD, δ = 1e-5"
    )
    assert '<code class="long">parley.<wbr>secure_agg.<wbr>pairwise_server</code>' in html
    assert html.endswith('<span class="whole">DP-SGD</span>, δ = <span class="whole">1e-5</span>')
    html = pages.on_page_content("<code>parley run --print-job -v</code>")
    assert html == '<code class="long">parley run {}--print-job{} {}-v{}</code>'.format(
        *('<span class="whole">', "</span>") * 2
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("‖∇J_j(θ̂_j)‖ ≤ 2G/(n_jλ)", "‖∇J<sub>j</sub>(θ̂<sub>j</sub>)‖ ≤ 2G/(n<sub>j</sub>λ)"),
        ("Π_{j=1}^{k−1} PRG(k_ij)", "Π<sub>j=1</sub><sup>k−1</sup> PRG(k<sub>ij</sub>)"),
        ("2^(b−1), 2^-16, 2^−(4 + 16)", "2<sup>b−1</sup>, 2<sup>−16</sup>, 2<sup>−(4 + 16)</sup>"),
        ("e^ε·Q + e^0.1, 2^x-bits", "e<sup>ε</sup>·Q + e<sup>0.1</sup>, 2<sup>x-bits</sup>"),
        ("e^((α−1)·D_α(P‖Q))", "e<sup>(α−1)·D<sub>α</sub>(P‖Q)</sup>"),
        ("make_a_b, `x_j`, [x](a_b.md#c_d)", "make_a_b, `x_j`, [x](a_b.md#c_d)"),
        ("secure_agg\n::: parley.module_a", "secure_agg\n::: parley.module_a"),
    ],
)
def test_a_page_sets_indices_and_powers(
    text: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(_ROOT / "docs")
    pages = importlib.import_module("site_pages")
    generated = SimpleNamespace(file=SimpleNamespace(generated_by="site_pages"))
    assert pages.on_page_markdown(text, page=generated, config=None, files=None) == shown
