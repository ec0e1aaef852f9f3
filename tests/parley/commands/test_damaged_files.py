"""Files that were emptied, cut off or saved in another encoding: one clear message each."""

import os
import shutil

import pytest
from command_line import run_main

import parley
from parley.client.data.schema import load_schema
from parley.safe_io.file_writing import write_file
from parley.server.jobs.job_file import load_job

DAMAGES = {
    "emptied": lambda content: b"",
    "cut off": lambda content: content[: len(content) // 2],
    "not UTF-8": lambda content: content[:40] + b"\xff\xfe" + content[40:],
    "UTF-16": lambda content: content.decode("utf-8", "replace").encode("utf-16"),
}
FILES = ("job.toml", "run-id", "rounds.jsonl", "summary.json", "schema.toml", "canaries.json")
COMMANDS = {
    "resume": ("run", "--resume", "{0}", "-q"),
    "report": ("report", "{0}"),
    "show": ("show", "{0}"),
    "ledger": ("ledger", "show", "{0}"),
    "predict": ("predict", "{0}", "{1}", "--out", "{1}.out"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    sets = ["algorithm.rounds=2", "run.baseline=false"]
    parley.run(load_job(overrides=sets), out=folder, canaries=10)
    return folder


@pytest.mark.parametrize(
    "damage", [DAMAGES["cut off"], DAMAGES["not UTF-8"]], ids=["cut", "encoding"]
)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_run_folder_gives_no_traceback_and_no_codecs_words(
    name, damage, finished, tmp_path
) -> None:
    content = (finished / name).read_bytes()
    schema = load_schema(finished / "schema.toml")
    rows = tmp_path / "rows.csv"
    rows.write_text(f"{','.join(schema.features)}\n{','.join('1' for _ in schema.features)}\n")
    for command, words in COMMANDS.items():
        run = tmp_path / command
        shutil.copytree(finished, run)
        (run / name).write_bytes(damage(content))
        status, _, shown = run_main(*(word.format(run, rows) for word in words))
        assert status in (0, 1, 2), shown
        assert "codec" not in shown
        assert "Errno" not in shown


@pytest.mark.parametrize(
    ("name", "damage"),
    [  # half of a run-id is a valid name, which the ledger does not have
        *(("job.toml", damage) for damage in ("emptied", "cut off", "not UTF-8", "UTF-16")),
        *(("run-id", damage) for damage in ("emptied", "not UTF-8", "UTF-16")),
    ],
)
def test_a_run_never_resumes_as_another_job_or_under_another_name(
    name, damage, finished, tmp_path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / name).write_bytes(DAMAGES[damage]((run / name).read_bytes()))
    status, _, shown = run_main("run", "--resume", str(run), "-q")
    assert status == 2
    assert str(run / name) in shown
    assert "copy" in shown or "UTF-8" in shown


def test_each_key_that_is_missing_in_a_runs_job_is_refused(finished, tmp_path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    lines = (run / "job.toml").read_text().splitlines(keepends=True)
    (run / "job.toml").write_text("".join(x for x in lines if not x.startswith("epsilon =")))
    status, _, shown = run_main("run", "--resume", str(run), "-q")
    assert status == 2
    assert "privacy.epsilon" in shown


def test_a_text_that_begins_with_a_byte_order_mark_is_read(tmp_path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(b"\xef\xbb\xbf[privacy]\r\nepsilon = 2\r\n")
    assert load_job(path).privacy.epsilon == 2


def test_a_place_that_is_no_run_is_not_named_as_one_to_resume(tmp_path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    status, _, shown = run_main("run", "--out", str(file), "-q")
    assert status == 2
    assert "got a file" in shown
    assert "resume" not in shown
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.tex").write_text("mine")
    status, _, shown = run_main("run", "--out", str(full), "-q")
    assert status == 2
    assert "not empty" in shown
    assert "resume" not in shown


@pytest.mark.parametrize("name", ["two\nlines", os.fsdecode(b"caf\xe9"), "right\u202eleft"])
def test_a_folder_whose_name_is_no_text_is_refused_before_a_run_begins(name, tmp_path) -> None:
    status, _, shown = run_main("run", "-q", "--out", tmp_path / name)
    assert status == 2
    assert "printable" in shown
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_named_not_its_draft(tmp_path) -> None:
    with pytest.raises(OSError, match=r"nosuch/page\.html") as refused:
        write_file(tmp_path / "nosuch" / "page.html", "text")
    assert ".part" not in str(refused.value)
