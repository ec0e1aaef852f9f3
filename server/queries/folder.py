"""A session's folder: what was agreed on at its start, every answer, and the ledger.

`session.json` holds the settings that a session goes on with, `schema.toml` the columns,
`answers.jsonl` one line a release. An answer is committed to the ledger, with its line as the
checkpoint, before that is written here: a session that is killed between the two finds it there.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from parley.client.contract.file_reading import LARGEST_LOG, bytes_of, text_of
from parley.client.contract.protocol import strict_json
from parley.server.records.plain_json import json_text
from parley.server.records.run_folder import RunFolderError


class SessionFolder:
    """One session's folder.

    Attributes:
        path: the folder.
        run_id: the session's name in the ledgers.
        settings: what it was begun with, plain JSON values.
    """

    def __init__(self, path: Path, run_id: str, settings: Mapping[str, Any]) -> None:
        self.path, self.run_id, self.settings = path, run_id, settings

    @classmethod
    def create(cls, out: Path | None, settings: Mapping[str, Any], *, schema: str) -> SessionFolder:
        """Makes the folder: `out` itself where given, else a new one under `runs`.

        Raises:
            RunFolderError: it exists and is not empty, or cannot be written.
        """
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        path = out or Path("runs") / f"{stamp}-queries-{secrets.token_hex(2)}"
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunFolderError(
                f"Session folder {path} exists and is not empty. Choose another, or go on with "
                f"that session: Session(resume={str(path)!r}), parley query --resume {path}."
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            run_id = f"{path.resolve().name[:64]}-{secrets.token_hex(8)}"
            (path / "schema.toml").write_text(schema, encoding="utf-8")
            text = json_text({"run": run_id, **settings}, indent=2) + "\n"
            (path / "session.json").write_text(text, encoding="utf-8")
        except OSError as error:
            raise RunFolderError(f"Cannot make session folder {path}: {error.strerror}.") from error
        return cls(path, run_id, settings)

    @classmethod
    def open(cls, path: Path) -> SessionFolder:
        """A session that was begun.

        Raises:
            RunFolderError: it is none.
        """
        try:
            settings = strict_json(text_of(path / "session.json"))
            run_id = str(settings.pop("run"))
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise RunFolderError(
                f"Expected the folder of a session at {path}, got none."
            ) from error
        return cls(path, run_id, settings)

    @property
    def ledger(self) -> Path:
        """Its own ledger, unless another was named."""
        return self.path / "ledger.sqlite"

    @property
    def schema(self) -> str:
        """The columns, as a schema file."""
        return text_of(self.path / "schema.toml")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes out of the session.

        Raises:
            RunFolderError: another one is in it.
        """
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunFolderError(
                    f"Session {self.path} is open in another process. End that one first."
                ) from None
            yield

    def lines(self) -> list[dict[str, Any]]:
        """Every answer that was written, in order; a line that a kill cut off is left out."""
        path = self.path / "answers.jsonl"
        found: list[dict[str, Any]] = []
        if not path.exists():
            return found
        text = bytes_of(path, largest=LARGEST_LOG).decode("utf-8", "replace")
        for line in text.split("\n")[:-1]:
            try:
                found.append(strict_json(line))
            except ValueError:
                break
        return found

    def append(self, line: str) -> None:
        """Writes one more answer, to the disk."""
        with (self.path / "answers.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def rewrite(self, lines: list[str]) -> None:
        """Writes all answers anew, whole or not at all."""
        draft = self.path / ".answers.jsonl.part"
        with draft.open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path / "answers.jsonl")
