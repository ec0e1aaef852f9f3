"""Open the folder of a run that began: load its stored job and find its ledger."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from parley.safe_io.file_reading import read_text
from parley.safe_io.os_errors import describe_error
from parley.safe_io.toml_reading import load_toml
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job
from parley.server.records.run_folder import RunFolder, RunFolderError

_COUNT = re.compile(r"# A run's job, with all (\d+) keys of the Parley that wrote it\.\n")


def open_run_folder(path: Path) -> tuple[RunFolder, Job]:
    """Open the folder of a run to continue the run or report on it; return it with its job."""
    try:
        run_id = read_text(path / "run-id").strip()
    except FileNotFoundError as error:
        raise RunFolderError(f"{path} is not a run folder: it has no run-id file.") from error
    except OSError as error:
        raise RunFolderError(describe_error(error)) from error
    if not run_id:
        raise RunFolderError(
            f"Expected the run's name in {path / 'run-id'}, got an empty file. Restore it from "
            "a copy."
        )
    return RunFolder(path, run_id), load_run_job(path)


def load_run_job(folder: Path) -> Job:
    """Return the job of a run's folder, in which every key is written.

    A file that was emptied or cut off would otherwise be another job, with defaults. Its first line
    has the number of its keys. A key that a later version added is absent and has its default,
    which is what the run did.

    Raises:
        RunFolderError: a key is missing, or the text is cut off within one.
        JobError: the file is no job.
    """
    path = folder / RunFolder.main_file
    try:
        written = load_toml(path)
    except tomllib.TOMLDecodeError as error:
        raise RunFolderError(
            f"Expected the job in {path} as Parley wrote it, got no TOML ({error}): the file was "
            "cut off or edited. Restore it from a copy."
        ) from error
    except OSError:
        written = {}  # the next line names the file and the cause
    job = load_job(path, stored=True)
    counted = _COUNT.match(read_text(path))
    found = sum(len(keys) for keys in written.values() if isinstance(keys, dict))
    if counted is None or int(counted[1]) != found:
        missing = [
            f"{section}.{key}"
            for section, keys in job.to_values().items()
            for key in keys
            if key not in written.get(section, {})
        ]
        lacking = f" without {', '.join(missing[:3])}" if missing else ""
        expected = "a first line with the number of keys" if counted is None else counted[1]
        raise RunFolderError(
            f"Expected {expected}{' keys' if counted else ''} in {path}, as Parley wrote it, got "
            f"{found} keys{lacking}: the file was emptied, cut off or edited, or a Parley before "
            "1.0 wrote it. Restore it from a copy."
        )
    return job


def locate_ledger(folder: Path, job: Job, *, given: str | None = None) -> str | Path:
    """Return the ledger of a run's folder: `given`, or a file.

    Raises:
        RunFolderError: the job names a URL. A folder must not decide to which host this machine
            connects and sends its password.
    """
    if given is not None:
        return given
    if "://" in job.privacy.ledger:
        raise RunFolderError(
            f"Expected a ledger in a file, the job of {folder} names one at a URL. Parley does "
            "not connect to a URL because a folder names it. If you know that it is yours, name "
            "it: --ledger URL, or `parley ledger` with the URL instead of the folder."
        )
    return Path(job.privacy.ledger) if job.privacy.ledger else folder / "ledger.sqlite"
