"""`PartyFolder`: a party's files. Secrets are written before they are used.

    party.toml  deployment.toml  identity.key  ledger.sqlite  party.log  party.lock
    state/setups-<roster>        number of set-ups of this party with a roster
    state/session-<session>      a run's join request, and the protocol's secrets with it
    state/release-<run, data>    the contribution to that run's last round
    state/proposal-<proposal>    what was proposed, if the owner is asked
    state/last-uses              time of the last write of each of these, by the machine's uptime
    state/ledger-head            the end of the ledger after the last charge
    openings                     the sum in which each release was unmasked

A process may be killed at any point, and another one may serve the next message. Everything that an
answer relies on is on disk, complete and fsynced, before the answer is returned. Files are replaced
atomically, are readable only by their owner, and are erased when they expire. A session expires
when its run reports its end, when the run is joined again, or after a week without a message. A
contribution expires when the next round's replaces it. It discloses no more about the records than
the data file in the same folder.

No ε of a release's noise rests on these files. Each file names what it belongs to. If one is lost
or replaced, the round that needs it was charged and is over.
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

from parley.client.contract.message_frames import (
    MessageFrame,
    WireError,
    decode_frame,
    encode_frame,
)
from parley.client.contract.refusals import Declined, Reason
from parley.client.party.last_write_times import LastUses, Uptime, read_uptime
from parley.client.party.unmasking_log import UnmaskingLog, sync_folder
from parley.privacy.ledger.hash_chain import ChainHead
from parley.safe_io.file_writing import append_to_file
from parley.safe_io.os_errors import describe_cause
from parley.safe_io.printable_text import to_one_line

_IDLE_S = 7 * 24 * 3600.0
"""Lifetime of a session after its last message. Its server is then taken to be gone.

In seconds of the machine's uptime, never of a clock that can be set.
"""
_NOTED = ("session-*", "release-*", "proposal-*")
"""Files of `state` whose age or order matters."""

_LARGEST_LOG = 8 << 20
_ZEROS = bytes(1 << 16)


class PartyFolderError(Exception):
    """Error for a folder that its owner must repair. It names the path and what to do."""


@dataclass(frozen=True, kw_only=True)
class PartyFolder:
    """The files of one party. `open` checks them."""

    path: Path
    uptime: Callable[[], Uptime] = read_uptime

    @classmethod
    def open(cls, folder: Path, *, uptime: Callable[[], Uptime] = read_uptime) -> PartyFolder:
        """Open a folder that only its owner can write to.

        Raises:
            PartyFolderError: the folder is missing, or others may write to it.
        """
        try:
            mode = folder.stat().st_mode
        except OSError as error:
            cause = describe_cause(error)
            raise PartyFolderError(f"Expected a party's folder at {folder}: {cause}.") from error
        if not stat.S_ISDIR(mode) or mode & 0o022:
            expected = f"Expected {folder} to be a folder that only its owner can write to"
            remedy = f"Run: chmod 700 {folder}"
            raise PartyFolderError(f"{expected}, got mode {stat.S_IMODE(mode):o}. {remedy}")
        state = folder / "state"
        with _convert_os_errors(state):
            state.mkdir(mode=0o700, exist_ok=True)
        _check_private(state)
        return cls(path=folder, uptime=uptime)

    def load_identity(self) -> bytes:
        """Return the party's Ed25519 private key, 32 bytes."""
        key_path = self.path / "identity.key"
        with _convert_os_errors(key_path):
            _check_private(key_path)
            text = key_path.read_text(encoding="ascii", errors="replace").strip()
        try:
            key = bytes.fromhex(text)
        except ValueError:
            key = b""
        if len(key) != 32:
            got = f"got {len(text)} characters"
            raise PartyFolderError(f"Expected 64 hex digits in {key_path}, {got}.")
        return key

    def remove_stale_files(self) -> None:
        """Erase half-written files of a killed process, and sessions without a recent message."""
        for draft in (*self._state_path.glob("*.part"), *(self.path / "features").glob(".*.part")):
            _erase(draft)
        noted = [file.name for kind in _NOTED for file in self._list_by_mtime(kind)]
        self._uses.keep_only(noted)
        for name, age in self._uses.compute_ages().items():
            if name.startswith("session-") and age >= _IDLE_S:
                _erase(self._state_path / name)

    @property
    def ledger_path(self) -> Path:
        """The party's ledger, with links resolved.

        Folders on the same records share one ledger by a link.
        """
        return (self.path / "ledger.sqlite").resolve()

    def load_ledger_head(self) -> ChainHead | None:
        """Return an earlier head of the ledger; None if there is none.

        The ledger still contains it unless an older copy was restored.
        """
        with suppress(FileNotFoundError):
            text = (self._state_path / "ledger-head").read_text(encoding="ascii", errors="replace")
            records, _, end = text.partition(" ")
            if not records.isdecimal():
                expected = f"Expected the end of the ledger in {self._state_path / 'ledger-head'}"
                remedy = "Restore it from a backup that is as new as the ledger."
                raise PartyFolderError(f"{expected}, got something else. {remedy}")
            return ChainHead(records=int(records), hash=end)
        return None

    def find_newest_ledger_head(self) -> ChainHead | None:
        """Return the newest known end of the ledger, including those stored with contributions.

        It reads all contributions, so it is for the beginning and the end of a run. None if an
        owner removed `state/ledger-head`. The owner then accepts an older copy as the record of all
        that was released.
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
        """Save the head that the ledger must contain from now on."""
        saved = self.load_ledger_head()
        if saved is None:
            self._forget_heads()
        if saved is None or head.records > saved.records:
            content = f"{head.records} {head.hash}".encode("ascii")
            self._write_atomically(self._state_path / "ledger-head", content)
            self.unmasking_log.record_ledger_head(head)

    def _forget_heads(self) -> None:
        """Remove an earlier ledger's heads from contributions: the owner began another one."""
        for file in self._state_path.glob("release-*[0-9a-f]"):
            with suppress(FileNotFoundError, WireError):
                kept = decode_frame(file.read_bytes())
                head = {key: value for key, value in kept.head.items() if key != "ledger"}
                self._write_atomically(file, encode_frame(replace(kept, head=head)))

    @property
    def unmasking_log(self) -> UnmaskingLog:
        """The record of the sums in which the party's contributions were unmasked."""
        return UnmaskingLog(path=self.path / "openings")

    @property
    def _state_path(self) -> Path:
        return self.path / "state"

    def load_session(self, session: str) -> MessageFrame:
        """Return the session's join request and bookkeeping, with the protocol's state as blob.

        Raises:
            Declined: unknown-session.
        """
        try:
            return decode_frame(self._get_session_path(session).read_bytes())
        except (FileNotFoundError, WireError):
            raise Declined(Reason.UNKNOWN_SESSION, f"No session {session}.") from None

    def save_session(self, session: str, content: MessageFrame) -> None:
        """Replace the session's file."""
        self._write_atomically(self._get_session_path(session), encode_frame(content))

    def erase_session(self, session: str) -> None:
        """Erase the session's secrets, if it exists."""
        _erase(self._get_session_path(session))

    def list_sessions(self) -> list[str]:
        """Return the open sessions, the longest idle first."""
        return [file.name.removeprefix("session-") for file in self._list_oldest_first("session-*")]

    def load_contribution(self, run_id: str, dataset: str) -> MessageFrame | None:
        """Return the last contribution to a run, or None."""
        with suppress(FileNotFoundError, WireError):
            return decode_frame(self._get_contribution_path(run_id, dataset).read_bytes())
        return None

    def save_contribution(
        self, run_id: str, dataset: str, content: MessageFrame, *, max_files: int
    ) -> None:
        """Replace a run's contribution. Of other runs the newest are kept, `max_files` in total."""
        path = self._get_contribution_path(run_id, dataset)
        self._write_atomically(path, encode_frame(content))
        files = [file for file in self._list_oldest_first("release-*") if file != path]
        for file in files[: max(0, len(files) - max_files + 1)]:
            _erase(file)

    def list_failures(self) -> dict[str, str]:
        """Return, of the last contributions, file → what went wrong; only for the owner."""
        failures: dict[str, str] = {}
        for file in sorted(self._state_path.glob("release-*")):
            with suppress(WireError):
                note = b"".join(decode_frame(file.read_bytes()).blobs[:-1]).decode("ascii").strip()
                failures |= {file.name: note} if note else {}
        return failures

    def load_proposals(self) -> dict[str, MessageFrame]:
        """Return the stored proposals by their digest in hex, the oldest first."""
        proposals: dict[str, MessageFrame] = {}
        for file in self._list_oldest_first("proposal-*[0-9a-f]"):
            with suppress(FileNotFoundError, WireError):
                proposals[file.name.removeprefix("proposal-")] = decode_frame(file.read_bytes())
        return proposals

    def save_proposal(self, proposal: str, content: MessageFrame) -> None:
        """Store a proposal."""
        self._write_atomically(self._state_path / f"proposal-{proposal}", encode_frame(content))

    def compute_proposal_age_s(self, proposal: str) -> float:
        """Return the seconds since it was stored, without those while the machine was off."""
        return self._uses.compute_ages().get(f"proposal-{proposal}", 0.0)

    def erase_proposal(self, proposal: str) -> None:
        """Erase a proposal."""
        _erase(self._state_path / f"proposal-{proposal}")

    def count_setups(self, roster: bytes) -> int:
        """Return the number of this party's set-ups with a beacon and this roster."""
        try:
            return int(self._get_setups_path(roster).read_text(encoding="ascii"))
        except FileNotFoundError:
            return 0
        except ValueError as error:
            expected = f"Expected a number in {self._get_setups_path(roster)}"
            raise PartyFolderError(f"{expected}, got something else.") from error

    def increment_setups(self, roster: bytes) -> None:
        """Count one more set-up, on disk on return: its nonce is never used again."""
        count = self.count_setups(roster) + 1
        self._write_atomically(self._get_setups_path(roster), str(count).encode("ascii"))

    def append_log(self, line: str) -> None:
        """Append one line to the party's own log."""
        path = self.path / "party.log"
        if path.exists() and path.stat().st_size > _LARGEST_LOG:
            os.replace(path, path.with_name("party.log.1"))
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        # It may contain a server's words, so it must have no line breaks and no control characters
        # for a terminal.
        text = f"{stamp} {to_one_line(' '.join(line.split()))}\n".encode("utf-8", errors="replace")
        append_to_file(path, text, mode=0o600)

    @property
    def _uses(self) -> LastUses:
        return LastUses(path=self._state_path / "last-uses", uptime=self.uptime)

    def _list_by_mtime(self, pattern: str) -> list[Path]:
        # The modification time decides only among files of an older version, which were never
        # noted.
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
        if replaced is not None:  # the file that no longer has a name
            _overwrite(replaced)


def get_contribution_head(contribution: MessageFrame | None) -> list[ChainHead]:
    """Return the end of the ledger stored with a contribution when it was charged, if any."""
    head = None if contribution is None else contribution.head.get("ledger")
    return [] if head is None else [ChainHead(records=head["records"], hash=head["hash"])]


def erase_sessions(folder: Path) -> None:
    """Erase the sessions of a party's folder."""
    for path in (folder / "state").glob("session-*"):
        _erase(path)


def _overwrite(handle: int) -> None:
    # Best effort: on a disk that writes in place, the old bytes are gone. On flash, on a
    # copy-on-write file system, or in a backup, they are not. There, secrets are protected because
    # pair secrets are ratcheted forward, and a run's keys are worthless without its traffic.
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
    """Open a file to overwrite it; None if it is missing or a link to a file elsewhere."""
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
        expected = f"Expected {path} to be readable only by its owner"
        raise PartyFolderError(f"{expected}, got mode {mode:o}. Run: chmod {expected_mode} {path}")


@contextmanager
def _convert_os_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PartyFolderError(f"Expected to use {path}: {describe_cause(error)}.") from error
