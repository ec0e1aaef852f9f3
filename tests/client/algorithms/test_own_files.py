"""Files of your own algorithms: they work with text annotations, or are refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

import parley
from parley.client.algorithms.own_algorithm import OwnAlgorithmError, build_own_spec
from parley.client.algorithms.task_codec import decode_task, describe_task
from parley.exit_status import get_exit_status
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.recorded_entries import EntryState
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job

COUNT = (*("model.kind=none", "privacy.neighbouring=add-or-remove-one", "parties.min-records=20"),)
EXAMPLE = Path(__file__).parents[3] / "examples" / "federated_count.py"
TEXT = EXAMPLE.read_text()
FUTURE = TEXT.replace("from dataclasses", "from __future__ import annotations\n\nfrom dataclasses")


def test_text_annotations_are_types_as_any(tmp_path: Path) -> None:
    file = tmp_path / "federated_count.py"
    file.write_text(FUTURE)
    name = f"{file}:FederatedCount"
    built = build_own_spec(name).build({"most": 7}, 3, 2)
    task = describe_task(built)
    again = decode_task(task, own_algorithms={"federated_count.py:FederatedCount": name})
    assert (again.most, again.features, again.dimension) == (7, 3, 1)  # type: ignore[attr-defined]
    with pytest.raises(OwnAlgorithmError, match="most"):
        build_own_spec(name).build({"most": "many"}, 3, 2)


REFUSED = {
    "syntax": (TEXT + "\ndef (:\n", r"SyntaxError.*federated_count\.py, line"),
    "missing package": ("import no_such_package_here\n" + TEXT, "No module named 'no_such_pack"),
    "raises": ("\n1 / 0\n" + TEXT.replace('"""A fed', '"""A fed'), r"ZeroDivisionError.*line 2\)"),
    "leaves": ("import sys\nsys.exit(3)\n", "SystemExit"),
    "no class": (TEXT.replace("class FederatedCount", "class Other"), "none of that name"),
    "no dataclass": ("FederatedCount = 5\n", "an object of type int"),
    "hidden type": (
        FUTURE.replace("    most: int =", "    most: Hidden ="),
        "Cannot read the types.*Hidden",
    ),
    "fails when built": (
        TEXT + "\n    def __post_init__(self):\n        {}['x']\n",
        r"KeyError.*federated_count\.py, line",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_fails_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    text, said = REFUSED[name]
    file = tmp_path / "federated_count.py"
    file.write_text(text)
    with pytest.raises(OwnAlgorithmError, match=said) as refused:
        build_own_spec(f"{file}:FederatedCount").build({}, 3, 2)
    assert "\n" not in str(refused.value)


PARTS = {
    "claim": ("def claim(self, facts: PublicFacts) -> Claim:", "return None"),
    "dimension": ("def dimension(self) -> int:", "return 'one'"),
    "local": ("randomness: Randomness\n    ) -> Contribution:", "return block.sizes"),
    "init": ("", "return [0.0]"),
    "update": ("", "return average"),
}


@pytest.mark.parametrize("fault", ["raises", "exits", "returns"])
@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_fails_is_named_with_its_line_before_a_run_begins(
    part: str, fault: str, tmp_path: Path
) -> None:
    head, returns = PARTS[part]
    lines = {"raises": "[][1]", "exits": "raise SystemExit(3)", "returns": returns}
    body = f"        {lines[fault]}\n"
    if head:
        assert head in TEXT
        text = TEXT.replace(head, f"{head}\n{body}")
    else:
        names = "self, state, average" if part == "update" else "self"
        text = f"{TEXT}\n    def {part}({names}):\n{body}"
    (tmp_path / "federated_count.py").write_text(text)
    with pytest.raises(ValueError, match=rf"FederatedCount\.{part}") as refused:
        parley.run(count_job(tmp_path), out=tmp_path / "run")
    said = str(refused.value)
    assert "\n" not in said
    assert get_exit_status(refused.value) == 2
    assert not (tmp_path / "run").exists()
    if fault != "returns":
        line = text.splitlines().index(body.rstrip()) + 1
        assert f"(federated_count.py, line {line})" in said


def test_values_of_a_shape_other_than_the_claims_are_refused_before_a_run_begins(
    tmp_path: Path,
) -> None:
    (tmp_path / "federated_count.py").write_text(
        TEXT.replace("values=counts[:, None]", "values=counts")
    )
    with pytest.raises(OwnAlgorithmError, match=r"shape \(1, 1\) for one party, got \(1,\)"):
        parley.run(count_job(tmp_path), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_part_that_fails_on_real_records_alone_is_not_charged_and_shows_no_value(
    tmp_path: Path,
) -> None:
    head = PARTS["local"][0]
    body = "        if len(block.sizes) > 1:\n            raise ValueError(str(block.features))\n"
    (tmp_path / "federated_count.py").write_text(TEXT.replace(head, f"{head}\n{body}"))
    with pytest.raises(OwnAlgorithmError, match=r"got ValueError \(federated_count\.py, line"):
        parley.run(count_job(tmp_path), out=tmp_path / "run")
    with Ledger.open(tmp_path / "run" / "ledger.sqlite", read_only=True) as ledger:
        (run,) = {each.entry.run_id for each in ledger.list_entries()}
        assert [each.state for each in ledger.list_entries(run)] == [EntryState.VOIDED]


def count_job(folder: Path) -> Job:
    """Return a job of the algorithm in a folder."""
    kind = f"algorithm.kind={folder / 'federated_count.py'}:FederatedCount"
    return load_job(overrides=[kind, *COUNT])


def test_a_relative_name_is_the_file_in_the_current_folder_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "federated_count.py:FederatedCount"
    titles = []
    for folder, title in (("a", "one"), ("b", "two"), ("a", "one, edited")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "federated_count.py").write_text(
            TEXT.replace('"federated count"', f'"{title}"')
        )
        monkeypatch.chdir(tmp_path / folder)
        titles.append(build_own_spec(name).build({}, 2, 2).title)
    assert titles == ["one", "two", "one, edited"]
    assert type(build_own_spec(name).build({}, 2, 2)) is type(build_own_spec(name).build({}, 3, 2))
