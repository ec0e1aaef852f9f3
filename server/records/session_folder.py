"""Define a session's folder: the terms agreed at its start, every answer, and the ledger.

`session.json` has the settings for resuming the session, `schema.toml` the columns, and
`answers.jsonl` one line per release. An answer is committed to the ledger, with its line as the
checkpoint, before it is written here. A session that is killed between the two finds it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from parley.client.contract.strict_decoding import parse_strict_json
from parley.safe_io.file_reading import MAX_LOG_BYTES, read_bytes, read_text
from parley.safe_io.file_writing import append_to_file, write_file
from parley.safe_io.json_writing import format_json
from parley.safe_io.os_errors import describe_cause, describe_error
from parley.server.records.run_folder import RunFolderError, WorkFolder, create_folder

_ANSWERS = "answers.jsonl"


class SessionFolder(WorkFolder):
    """The folder of one session.

    Attributes:
        settings: the settings it began with, plain JSON values.
    """

    main_file = "session.json"

    def __init__(self, path: Path, run_id: str, settings: Mapping[str, Any]) -> None:
        super().__init__(path, run_id)
        self.settings = settings

    @classmethod
    def create(cls, out: Path | None, settings: Mapping[str, Any], *, schema: str) -> SessionFolder:
        """Create the folder: `out` if given, else a new one under `runs`.

        Raises:
            RunFolderError: it exists and is not empty, or cannot be written.
        """
        instead = (
            "Choose another, or resume that session: Session(resume={0!r}), parley query "
            "--resume {0}."
        )
        path, run_id = create_folder(
            out, Path("runs"), "queries", main_file=cls.main_file, remedy=instead
        )
        folder = cls(path, run_id, settings)
        try:
            folder.save_schema(schema)
            folder._write(cls.main_file, format_json({"run": run_id, **settings}, indent=2) + "\n")
        except OSError as error:
            raise RunFolderError(f"Cannot write to {path}: {describe_cause(error)}.") from error
        return folder

    @classmethod
    def open(cls, path: Path) -> SessionFolder:
        """Open the folder of an existing session.

        Raises:
            RunFolderError: it is not a session's folder.
        """
        try:
            settings = parse_strict_json(read_text(path / cls.main_file))
            run_id = str(settings.pop("run"))
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise RunFolderError(f"Expected a session's folder at {path}, got none.") from error
            raise RunFolderError(describe_error(error)) from error
        except (ValueError, KeyError, AttributeError) as error:
            raise RunFolderError(f"Expected a session's folder at {path}, got none.") from error
        return cls(path, run_id, settings)

    def load_answers(self) -> list[dict[str, Any]]:
        """Return every complete answer, in order, without a line that a kill cut off."""
        path = self.path / _ANSWERS
        found: list[dict[str, Any]] = []
        if not path.exists():
            return found
        text = read_bytes(path, max_bytes=MAX_LOG_BYTES).decode("utf-8", "replace")
        for line in text.split("\n")[:-1]:
            try:
                found.append(parse_strict_json(line))
            except ValueError:
                break
        return found

    def append(self, line: str) -> None:
        """Append one answer, durably."""
        append_to_file(self.path / _ANSWERS, f"{line}\n".encode(), durable=True)

    def rewrite(self, lines: Iterable[str]) -> None:
        """Rewrite all answers, atomically."""
        text = "".join(f"{line}\n" for line in lines)
        write_file(self.path / _ANSWERS, text, durable=True)
