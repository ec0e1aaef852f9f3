"""Rows that are kept: where, when, and that a run over them has the same bits."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from parley.planning.plan_job import plan
from parley.server.jobs.job_file import load_job, render_job
from parley.server.jobs.section_base import JobError
from parley.simulations.data import experiment_loading, row_cache
from parley.simulations.data.experiment_loading import (
    load_cached_data,
    load_experiment,
    prepare_data,
)
from parley.simulations.data.row_cache import get_cache_path
from parley.simulations.engine.fast_engine import simulate

SCHEMA = """
scaling = "record"
[columns]
x = { kind = "array", shape = [80], range = [-1, 1] }
y = { kind = "label", positive = [1], negative = [-1] }
"""


@pytest.fixture
def job_of(tmp_path):
    rng = np.random.default_rng(3)
    x = rng.uniform(-0.3, 0.3, (6000, 80))
    np.savez(tmp_path / "data.npz", x=x, y=np.where(x[:, 0] > 0, 1, -1))
    (tmp_path / "schema.toml").write_text(SCHEMA)

    def make(*overrides):
        return load_job(
            overrides=[
                "parties.count=100",
                f"data.source={tmp_path / 'data.npz'}",
                f"data.schema={tmp_path / 'schema.toml'}",
                "algorithm.rounds=3",
                "run.seed=3",
                f"run.out={tmp_path / 'runs'}",
                *overrides,
            ]
        )

    return make


def test_records_beyond_the_memory_they_may_take_are_read_from_a_file_to_the_same_bits(
    job_of, tmp_path, monkeypatch
) -> None:
    plain, small = job_of(), job_of("run.memory=2")
    whole = simulate(plain, out=tmp_path / "whole")
    assert not get_cache_path(plain).exists()
    mapped = simulate(small, out=tmp_path / "mapped")
    assert get_cache_path(small).stat().st_mode & 0o777 == 0o700
    assert not load_experiment(small).block.features.flags.owndata
    assert np.array_equal(whole.theta, mapped.theta)
    assert whole.summary.loss == mapped.summary.loss
    told = json.loads((whole.folder / "summary.json").read_text())
    assert told["peak_mib"] > told["data_mib"] == 4800 * 82 * 8 / 2**20
    # What is kept is not prepared again, by a run that names the folder; other bytes are others.
    again = "prepared again"
    monkeypatch.setattr(experiment_loading, "prepare_data", lambda *_: pytest.fail(again))
    again = job_of(f"run.prepared={tmp_path / 'runs' / 'prepared'}")
    assert np.array_equal(
        load_experiment(again).block.features, load_experiment(small).block.features
    )
    data = np.load(tmp_path / "data.npz")
    np.savez(tmp_path / "data.npz", x=data["x"][::-1], y=data["y"][::-1])
    assert not get_cache_path(again).exists()


PREPARING = """
import os, sys, time
from pathlib import Path
import numpy as np
from parley.server.jobs.job_file import load_job, render_job
from parley.simulations.data.experiment_loading import prepare_data
from parley.simulations.data.row_cache import cache_rows_at, get_cache_path

job, own, other = load_job(Path(sys.argv[1])), *map(Path, sys.argv[2:])
save = np.save

def half(*given, **named):
    save(*given, **named)
    os.kill(os.getpid(), 9)

def preparing():
    data = prepare_data(job)
    own.touch()
    while not other.exists():  # so that neither sees the other's place
        time.sleep(0.005)
    return data

if own == other:
    np.save = half
kept = cache_rows_at(get_cache_path(job), preparing)
print(kept.rows.sum(), kept.labels.sum(), kept.rows.shape)
"""


def test_two_processes_at_once_keep_one_place_whole_and_a_killed_one_none(job_of, tmp_path):
    job = job_of(f"run.prepared={tmp_path / 'kept'}")
    (tmp_path / "job.toml").write_text(render_job(job))

    def begun(own, other):
        names = [str(tmp_path / name) for name in ("job.toml", own, other)]
        command = [sys.executable, "-c", PREPARING, *names]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    killed = begun("dying", "dying")
    assert killed.wait(timeout=120) == -9
    (half,) = (tmp_path / "kept").iterdir()
    somebodys = tmp_path / "kept" / f"{half.name}0"
    (somebodys / "keys").mkdir(parents=True)
    (draft,) = half.iterdir()
    assert draft.suffix == ".part"
    assert not get_cache_path(job).exists()
    both = [begun("one", "two"), begun("two", "one")]
    told = [each.communicate(timeout=120)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0]
    assert told[0] == told[1] != ""
    # What the killed one left is gone.
    assert set((tmp_path / "kept").iterdir()) == {somebodys, get_cache_path(job)}
    kept, fresh = load_cached_data(job, lambda: pytest.fail("prepared again")), prepare_data(job)
    assert np.array_equal(kept.rows, fresh.rows)
    assert np.array_equal(kept.labels, fresh.labels)


def test_memory_that_holds_no_party_is_refused_with_what_would(job_of, tmp_path) -> None:
    with pytest.raises(JobError, match=r"run.memory of at least 3 MiB.*holds 4800\), got 2 MiB"):
        simulate(job_of("run.memory=2", "parties.count=1", "privacy.noise-point=server"))
    assert [each.name for each in (tmp_path / "runs").iterdir()] == ["prepared"]


def test_a_new_folder_that_another_process_took_for_one_that_is_left_is_made_again(
    tmp_path, monkeypatch
):
    made, taken = tempfile.mkdtemp, []

    def mkdtemp(**named):
        own = made(**named)
        if not taken:
            taken.append(Path(own))
            os.rmdir(own)
        return own

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    with row_cache._create_temporary_folder(tmp_path) as own:
        assert own.is_dir()
        assert own != taken[0]
    assert list(tmp_path.iterdir()) == []


def test_a_plan_says_memory_and_seconds_before_anything_starts(job_of) -> None:
    wanted = job_of("parties.min-records=48", "run.memory=2")
    told = plan(wanted).simulation
    assert told.mapped
    assert told.data_mib == pytest.approx(4800 * 82 * 8 / 2**20)
    assert told.seconds_a_round > 0
    masked = job_of("parties.min-records=48", "secure-aggregation.backend=masked")
    assert plan(masked).simulation.seconds_a_round is None
    assert plan(job_of("parties.min-records=48", "run.engine=processes")).simulation is None


@pytest.mark.parametrize(
    "harm", ["open", "part", "file", "link", "cut", "flip", "rows", "renamed", "facts", "other"]
)
def test_a_place_that_is_damaged_or_somebody_elses_is_refused_by_its_path(
    job_of, tmp_path, harm, monkeypatch
):
    """Drill: rows that somebody else put there were learned from, under a budget of their own."""
    job = job_of(f"run.prepared={tmp_path / 'kept'}")
    load_experiment(job)
    (place,) = (tmp_path / "kept").iterdir()
    if harm == "open":
        place.chmod(0o777)
    elif harm == "part":
        (place / "facts.json").unlink()
    elif harm == "file":
        (place / "rows.npy").chmod(0o666)
    elif harm == "flip":
        with (place / "rows.npy").open("r+b") as file:
            file.seek(200_003)
            file.write(bytes([file.read(1)[0] ^ 1]))
    elif harm == "renamed":  # they are whole, and another job's
        other = job_of(f"run.prepared={tmp_path / 'kept'}", "data.seed=1")
        load_experiment(other)
        get_cache_path(other).rename(tmp_path / "theirs")
        place.rename(get_cache_path(other))
        (tmp_path / "theirs").rename(place)
    elif harm == "link":
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "elsewhere")
    elif harm == "cut":
        os.truncate(place / "rows.npy", 200)
    elif harm == "rows":
        np.save(place / "sizes.npy", np.array([1, 2, 3]))
    elif harm == "facts":
        (place / "facts.json").write_text("[]")
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(JobError, match=f"{place.name}.*Remove that folder, or name another"):
        load_experiment(job)


def test_files_that_change_while_they_are_read_are_not_kept_as_what_they_were(job_of, tmp_path):
    """The rows would lie where other bytes' belong, for every later run."""
    job = job_of(f"run.prepared={tmp_path / 'kept'}")
    (tmp_path / "kept").mkdir()

    def prepare():
        data = prepare_data(job)
        np.savez(tmp_path / "data.npz", x=np.zeros((6000, 80)), y=np.ones(6000))
        return data

    with pytest.raises(JobError, match="stay the same while they are read"):
        load_cached_data(job, prepare)
    assert not list((tmp_path / "kept").iterdir())
