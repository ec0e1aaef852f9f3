"""The keeper of a party's folder: secrets written before they are used.

    party.toml  deployment.toml  identity.key  ledger.sqlite  party.log  party.lock
    state/setups-<roster>        how many set-ups this party went through with a roster
    state/session-<session>      a run's join request, and the protocol's secrets with it
    state/release-<run, data>    the contribution to that run's last round
    state/proposal-<proposal>    what was proposed, where the owner is asked
    state/last-uses              when each of these was last written, by the machine's uptime
    state/ledger-head            the end of the ledger after the last charge
    openings                     which sum each release was opened in

A process may be killed at any point and another one serve the next message: what an answer relies
on is on disk, whole and fsynced, before the answer is returned. Files are replaced atomically,
readable by their owner alone, and erased when they end: a session when its run says so, when the
run is joined anew, or after a week without a message; a contribution when the next round's replaces
it. It says no more about the records than the data file beside it.

No ε of a release's noise rests on what is found here: a file says itself what it is of, and where
one is lost, or another's, the round it is asked for was charged, and is over.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from parley.client.contract.party_protocol import (
    Declined,
    MessageFrame,
    Reason,
    WireError,
    decode_frame,
    encode_frame,
)
from parley.client.party.last_uses import LastUses, Uptime, read_uptime
from parley.client.party.unmasking_log import UnmaskingLog, sync_folder
from parley.privacy.ledger.hash_chain import ChainHead
from parley.safe_io.file_writing import append_to_file
from parley.safe_io.os_errors import describe_cause
from parley.safe_io.printable_text import to_one_line

_IDLE_S = 7 * 24 * 3600.0
"""How long a session outlives its last message: a run whose server never came back has ended.

In seconds of the machine's uptime, never of a clock that can be set.
"""
_NOTED = ("session-*", "release-*", "proposal-*")
"""Files of `state` whose age or order counts."""

_LARGEST_LOG = 8 << 20
_ZEROS = bytes(1 << 16)


class PartyFolderError(Exception):
    """A party's folder that cannot be used, for its owner to mend: the path and what to do."""


@dataclass(frozen=True, kw_only=True)
class PartyFolder:
    """The files of one party; `open` checks them."""

    path: Path
    uptime: Callable[[], Uptime] = read_uptime

    @classmethod
    def open(cls, folder: Path, *, uptime: Callable[[], Uptime] = read_uptime) -> PartyFolder:
        """The keeper of a folder that only its owner can write to."""
        try:
            mode = folder.stat().st_mode
        except OSError as error:
            raise PartyFolderError(
                f"Expected a party's folder at {folder}: {describe_cause(error)}."
            ) from error
        if not stat.S_ISDIR(mode) or mode & 0o022:
            raise PartyFolderError(
                f"Expected {folder} to be a folder that nobody else may write to, got mode "
                f"{stat.S_IMODE(mode):o}: chmod 700 {folder}"
            )
        state = folder / "state"
        with _convert_os_errors(state):
            state.mkdir(mode=0o700, exist_ok=True)
        _check_private(state)
        return cls(path=folder, uptime=uptime)

    def load_identity(self) -> bytes:
        """The party's Ed25519 private key, 32 bytes."""
        key_path = self.path / "identity.key"
        with _convert_os_errors(key_path):
            _check_private(key_path)
            text = key_path.read_text(encoding="ascii", errors="replace").strip()
        try:
            key = bytes.fromhex(text)
        except ValueError:
            key = b""
        if len(key) != 32:
            raise PartyFolderError(
                f"Expected 64 hex digits in {key_path}, got {len(text)} characters."
            )
        return key

    def remove_stale_files(self) -> None:
        """Erases what a killed process left half-written, and sessions that had no message."""
        for draft in (*self._state_path.glob("*.part"), *(self.path / "features").glob(".*.part")):
            _erase(draft)
        noted = [file.name for kind in _NOTED for file in self._list_by_mtime(kind)]
        self._uses.keep_only(noted)
        for name, age in self._uses.compute_ages().items():
            if name.startswith("session-") and age >= _IDLE_S:
                _erase(self._state_path / name)

    @property
    def ledger_path(self) -> Path:
        """The party's own ledger: where a link leads, which folders on the same records share."""
        return (self.path / "ledger.sqlite").resolve()

    def load_ledger_head(self) -> ChainHead | None:
        """A head that the ledger had, and still contains unless an older copy was put back."""
        with suppress(FileNotFoundError):
            text = (self._state_path / "ledger-head").read_text(encoding="ascii", errors="replace")
            records, _, end = text.partition(" ")
            if not records.isdecimal():
                raise PartyFolderError(
                    f"Expected the end of the ledger in {self._state_path / 'ledger-head'}, got "
                    "something else. Put it back from a backup that is as new as the ledger."
                )
            return ChainHead(records=int(records), hash=end)
        return None

    def find_newest_ledger_head(self) -> ChainHead | None:
        """Return the newest end that the ledger had, also of what is kept with contributions.

        It reads them all, so it is for the beginning and the end of a run. None if an owner
        removed `state/ledger-head`: they then take an older copy for all that was released.
        """
        kept = self.load_ledger_head()
        if kept is None:
            return None
        found = [kept, *filter(None, [self.unmasking_log.load_ledger_head()])]
        for file in self._state_path.glob("release-*[0-9a-f]"):
            with suppress(FileNotFoundError, WireError):
                found += get_contribution_head(decode_frame(file.read_bytes()))
        return max(found, key=lambda head: head.records)

    def save_ledger_head(self, head: ChainHead) -> None:
        """Keep what the ledger has to contain from now on."""
        saved = self.load_ledger_head()
        if saved is None:
            self._forget_heads()
        if saved is None or head.records > saved.records:
            self._write_atomically(
                self._state_path / "ledger-head", f"{head.records} {head.hash}".encode("ascii")
            )
            self.unmasking_log.record_ledger_head(head)

    def _forget_heads(self) -> None:
        """Forget what contributions know of an earlier ledger: its owner began with another."""
        for file in self._state_path.glob("release-*[0-9a-f]"):
            with suppress(FileNotFoundError, WireError):
                kept = decode_frame(file.read_bytes())
                head = {key: value for key, value in kept.head.items() if key != "ledger"}
                self._write_atomically(file, encode_frame(replace(kept, head=head)))

    @property
    def unmasking_log(self) -> UnmaskingLog:
        """What the party's contributions were opened in."""
        return UnmaskingLog(path=self.path / "openings")

    @property
    def _state_path(self) -> Path:
        return self.path / "state"

    def load_session(self, session: str) -> MessageFrame:
        """The session's join request, with its bookkeeping; the blob is the protocol's state."""
        try:
            return decode_frame(self._get_session_path(session).read_bytes())
        except (FileNotFoundError, WireError):
            raise Declined(Reason.UNKNOWN_SESSION, f"No session {session}.") from None

    def save_session(self, session: str, content: MessageFrame) -> None:
        """Replaces the session's file."""
        self._write_atomically(self._get_session_path(session), encode_frame(content))

    def erase_session(self, session: str) -> None:
        """Erases the session's secrets; nothing if there is none."""
        _erase(self._get_session_path(session))

    def list_sessions(self) -> list[str]:
        """Open sessions, the longest idle first."""
        return [file.name.removeprefix("session-") for file in self._list_oldest_first("session-*")]

    def load_contribution(self, run_id: str, dataset: str) -> MessageFrame | None:
        """The last contribution to a run, or None."""
        with suppress(FileNotFoundError, WireError):
            return decode_frame(self._get_contribution_path(run_id, dataset).read_bytes())
        return None

    def save_contribution(
        self, run_id: str, dataset: str, content: MessageFrame, *, max_files: int
    ) -> None:
        """Replaces it; of other runs' the newest are kept, `max_files` in all."""
        path = self._get_contribution_path(run_id, dataset)
        self._write_atomically(path, encode_frame(content))
        files = [file for file in self._list_oldest_first("release-*") if file != path]
        for file in files[: max(0, len(files) - max_files + 1)]:
            _erase(file)

    def list_failures(self) -> dict[str, str]:
        """Of the last contributions: file → what went wrong with one, for the owner alone."""
        failures: dict[str, str] = {}
        for file in sorted(self._state_path.glob("release-*")):
            with suppress(WireError):
                note = b"".join(decode_frame(file.read_bytes()).blobs[:-1]).decode("ascii").strip()
                failures |= {file.name: note} if note else {}
        return failures

    def load_proposals(self) -> dict[str, MessageFrame]:
        """What was proposed to the owner, by its digest in hex, the longest known first."""
        proposals: dict[str, MessageFrame] = {}
        for file in self._list_oldest_first("proposal-*[0-9a-f]"):
            with suppress(FileNotFoundError, WireError):
                proposals[file.name.removeprefix("proposal-")] = decode_frame(file.read_bytes())
        return proposals

    def save_proposal(self, proposal: str, content: MessageFrame) -> None:
        """Keeps what was proposed."""
        self._write_atomically(self._state_path / f"proposal-{proposal}", encode_frame(content))

    def compute_proposal_age_s(self, proposal: str) -> float:
        """Return the seconds since it was kept, without those in which the machine was off."""
        return self._uses.compute_ages().get(f"proposal-{proposal}", 0.0)

    def erase_proposal(self, proposal: str) -> None:
        """Forgets what was proposed."""
        _erase(self._state_path / f"proposal-{proposal}")

    def count_setups(self, roster: bytes) -> int:
        """How many set-ups with a beacon this party went through with a roster."""
        try:
            return int(self._get_setups_path(roster).read_text(encoding="ascii"))
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise PartyFolderError(
                f"Expected a number in {self._get_setups_path(roster)}, got something else."
            ) from error

    def increment_setups(self, roster: bytes) -> None:
        """Counts one more, on disk when this returns: its nonce is never used again."""
        self._write_atomically(
            self._get_setups_path(roster), str(self.count_setups(roster) + 1).encode("ascii")
        )

    def append_log(self, line: str) -> None:
        """Appends one line to the party's own log."""
        path = self.path / "party.log"
        if path.exists() and path.stat().st_size > _LARGEST_LOG:
            os.replace(path, path.with_name("party.log.1"))
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        # A server's words may be in it: no new lines, nothing that a terminal would obey.
        text = f"{stamp} {to_one_line(' '.join(line.split()))}\n".encode("utf-8", errors="replace")
        append_to_file(path, text, mode=0o600)

    @property
    def _uses(self) -> LastUses:
        return LastUses(path=self._state_path / "last-uses", uptime=self.uptime)

    def _list_by_mtime(self, pattern: str) -> list[Path]:
        # Only among files that were never noted, of a version before this one.
        return sorted(self._state_path.glob(pattern), key=lambda file: file.stat().st_mtime_ns)

    def _list_oldest_first(self, pattern: str) -> list[Path]:
        ages = self._uses.compute_ages()
        return sorted(self._list_by_mtime(pattern), key=lambda file: -ages.get(file.name, 0.0))

    def _get_setups_path(self, roster: bytes) -> Path:
        return self._state_path / f"setups-{roster.hex()[:32]}"

    def _get_session_path(self, session: str) -> Path:
        return self._state_path / f"session-{session}"

    def _get_contribution_path(self, run_id: str, dataset: str) -> Path:
        name = hashlib.sha256(f"{len(run_id)}:{run_id}{dataset}".encode()).hexdigest()[:32]
        return self._state_path / f"release-{name}"

    def _write_atomically(self, path: Path, content: bytes) -> None:
        draft = path.with_name(path.name + ".part")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        replaced = _open_to_erase(path)
        os.replace(draft, path)
        sync_folder(path.parent)
        if path.name.startswith(tuple(kind.rstrip("*") for kind in _NOTED)):
            self._uses.note(path.name)
        if replaced is not None:  # the file that has no name any more
            _overwrite(replaced)


def get_contribution_head(contribution: MessageFrame | None) -> list[ChainHead]:
    """Return the end of the ledger when a contribution was charged, if it was kept with it."""
    head = None if contribution is None else contribution.head.get("ledger")
    return [] if head is None else [ChainHead(records=head["records"], hash=head["hash"])]


def erase_sessions(folder: Path) -> None:
    """Erase the sessions of a party's folder."""
    for path in (folder / "state").glob("session-*"):
        _erase(path)


def _overwrite(handle: int) -> None:
    # Best effort: on a disk that writes in place the old bytes are gone. On flash, on a file system
    # that copies on write, or in a backup they are not: what protects secrets there is that pair
    # secrets are ratcheted forward and a run's keys are worth nothing without its traffic.
    try:
        remaining = os.fstat(handle).st_size
        while remaining > 0:
            remaining -= os.write(handle, _ZEROS[:remaining])
        os.fsync(handle)
    finally:
        os.close(handle)


def _erase(path: Path) -> None:
    handle = _open_to_erase(path)
    if handle is not None:
        _overwrite(handle)
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def _open_to_erase(path: Path) -> int | None:
    """Open a file to overwrite it; None if there is none, or a link to a file elsewhere."""
    try:
        return os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return None


def _check_private(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        expected_mode = 700 if path.is_dir() else 600
        raise PartyFolderError(
            f"Expected {path} to be readable by its owner alone, got mode {mode:o}: "
            f"chmod {expected_mode} {path}"
        )


@contextmanager
def _convert_os_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PartyFolderError(f"Expected to use {path}: {describe_cause(error)}.") from error
