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
    Frame,
    Reason,
    WireError,
    decode_frame,
    encode_frame,
)
from parley.client.party.last_uses import LastUses, Uptime, read_uptime
from parley.client.party.unmasking_log import Openings, sync_folder
from parley.privacy.ledger.hash_chain import Head
from parley.safe_io.file_writing import append_to_file
from parley.safe_io.os_errors import describe_cause
from parley.safe_io.printable_text import one_line

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
class Keeper:
    """The files of one party; `open` checks them."""

    folder: Path
    uptime: Callable[[], Uptime] = read_uptime

    @classmethod
    def open(cls, folder: Path, *, uptime: Callable[[], Uptime] = read_uptime) -> Keeper:
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
        with _explained(state):
            state.mkdir(mode=0o700, exist_ok=True)
        _private(state)
        return cls(folder=folder, uptime=uptime)

    def identity(self) -> bytes:
        """The party's Ed25519 private key, 32 bytes."""
        path = self.folder / "identity.key"
        with _explained(path):
            _private(path)
            text = path.read_text(encoding="ascii", errors="replace").strip()
        try:
            key = bytes.fromhex(text)
        except ValueError:
            key = b""
        if len(key) != 32:
            raise PartyFolderError(f"Expected 64 hex digits in {path}, got {len(text)} characters.")
        return key

    def tidy(self) -> None:
        """Erases what a killed process left half-written, and sessions that had no message."""
        for draft in (*self._state.glob("*.part"), *(self.folder / "features").glob(".*.part")):
            _erase(draft)
        noted = [file.name for kind in _NOTED for file in self._by_mtime(kind)]
        self._uses.keep(noted)
        for name, age in self._uses.ages().items():
            if name.startswith("session-") and age >= _IDLE_S:
                _erase(self._state / name)

    @property
    def ledger(self) -> Path:
        """The party's own ledger: where a link leads, which folders on the same records share."""
        return (self.folder / "ledger.sqlite").resolve()

    def ledger_head(self) -> Head | None:
        """A head that the ledger had, and still contains unless an older copy was put back."""
        with suppress(FileNotFoundError):
            text = (self._state / "ledger-head").read_text(encoding="ascii", errors="replace")
            records, _, end = text.partition(" ")
            if not records.isdecimal():
                raise PartyFolderError(
                    f"Expected the end of the ledger in {self._state / 'ledger-head'}, got "
                    "something else. Put it back from a backup that is as new as the ledger."
                )
            return Head(records=int(records), hash=end)
        return None

    def newest_ledger_head(self) -> Head | None:
        """Return the newest end that the ledger had, also of what is kept with contributions.

        It reads them all, so it is for the beginning and the end of a run. None if an owner
        removed `state/ledger-head`: they then take an older copy for all that was released.
        """
        kept = self.ledger_head()
        if kept is None:
            return None
        found = [kept, *filter(None, [self.openings.marked()])]
        for file in self._state.glob("release-*[0-9a-f]"):
            with suppress(FileNotFoundError, WireError):
                found += contribution_head(decode_frame(file.read_bytes()))
        return max(found, key=lambda head: head.records)

    def keep_ledger_head(self, head: Head) -> None:
        """Keep what the ledger has to contain from now on."""
        before = self.ledger_head()
        if before is None:
            self._forget_heads()
        if before is None or head.records > before.records:
            self._write(self._state / "ledger-head", f"{head.records} {head.hash}".encode("ascii"))
            self.openings.mark(head)

    def _forget_heads(self) -> None:
        """Forget what contributions know of an earlier ledger: its owner began with another."""
        for file in self._state.glob("release-*[0-9a-f]"):
            with suppress(FileNotFoundError, WireError):
                kept = decode_frame(file.read_bytes())
                head = {key: value for key, value in kept.head.items() if key != "ledger"}
                self._write(file, encode_frame(replace(kept, head=head)))

    @property
    def openings(self) -> Openings:
        """What the party's contributions were opened in."""
        return Openings(path=self.folder / "openings")

    @property
    def _state(self) -> Path:
        return self.folder / "state"

    def session(self, session: str) -> Frame:
        """The session's join request, with its bookkeeping; the blob is the protocol's state."""
        try:
            return decode_frame(self._session(session).read_bytes())
        except (FileNotFoundError, WireError):
            raise Declined(Reason.UNKNOWN_SESSION, f"No session {session}.") from None

    def keep_session(self, session: str, content: Frame) -> None:
        """Replaces the session's file."""
        self._write(self._session(session), encode_frame(content))

    def end_session(self, session: str) -> None:
        """Erases the session's secrets; nothing if there is none."""
        _erase(self._session(session))

    def sessions(self) -> list[str]:
        """Open sessions, the longest idle first."""
        return [file.name.removeprefix("session-") for file in self._oldest_first("session-*")]

    def contribution(self, run_id: str, dataset: str) -> Frame | None:
        """The last contribution to a run, or None."""
        with suppress(FileNotFoundError, WireError):
            return decode_frame(self._release(run_id, dataset).read_bytes())
        return None

    def keep_contribution(self, run_id: str, dataset: str, content: Frame, *, most: int) -> None:
        """Replaces it; of other runs' the newest are kept, `most` in all."""
        path = self._release(run_id, dataset)
        self._write(path, encode_frame(content))
        files = [file for file in self._oldest_first("release-*") if file != path]
        for file in files[: max(0, len(files) - most + 1)]:
            _erase(file)

    def failures(self) -> dict[str, str]:
        """Of the last contributions: file → what went wrong with one, for the owner alone."""
        found: dict[str, str] = {}
        for file in sorted(self._state.glob("release-*")):
            with suppress(WireError):
                note = b"".join(decode_frame(file.read_bytes()).blobs[:-1]).decode("ascii").strip()
                found |= {file.name: note} if note else {}
        return found

    def proposals(self) -> dict[str, Frame]:
        """What was proposed to the owner, by its digest in hex, the longest known first."""
        found: dict[str, Frame] = {}
        for file in self._oldest_first("proposal-*[0-9a-f]"):
            with suppress(FileNotFoundError, WireError):
                found[file.name.removeprefix("proposal-")] = decode_frame(file.read_bytes())
        return found

    def keep_proposal(self, proposal: str, content: Frame) -> None:
        """Keeps what was proposed."""
        self._write(self._state / f"proposal-{proposal}", encode_frame(content))

    def proposal_age_s(self, proposal: str) -> float:
        """Return the seconds since it was kept, without those in which the machine was off."""
        return self._uses.ages().get(f"proposal-{proposal}", 0.0)

    def end_proposal(self, proposal: str) -> None:
        """Forgets what was proposed."""
        _erase(self._state / f"proposal-{proposal}")

    def setups(self, roster: bytes) -> int:
        """How many set-ups with a beacon this party went through with a roster."""
        try:
            return int(self._setups(roster).read_text(encoding="ascii"))
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise PartyFolderError(
                f"Expected a number in {self._setups(roster)}, got something else."
            ) from error

    def count_setup(self, roster: bytes) -> None:
        """Counts one more, on disk when this returns: its nonce is never used again."""
        self._write(self._setups(roster), str(self.setups(roster) + 1).encode("ascii"))

    def log(self, line: str) -> None:
        """Appends one line to the party's own log."""
        path = self.folder / "party.log"
        if path.exists() and path.stat().st_size > _LARGEST_LOG:
            os.replace(path, path.with_name("party.log.1"))
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        # A server's words may be in it: no new lines, nothing that a terminal would obey.
        text = f"{stamp} {one_line(' '.join(line.split()))}\n".encode("utf-8", errors="replace")
        append_to_file(path, text, mode=0o600)

    @property
    def _uses(self) -> LastUses:
        return LastUses(path=self._state / "last-uses", uptime=self.uptime)

    def _by_mtime(self, pattern: str) -> list[Path]:
        # Only among files that were never noted, of a version before this one.
        return sorted(self._state.glob(pattern), key=lambda file: file.stat().st_mtime_ns)

    def _oldest_first(self, pattern: str) -> list[Path]:
        ages = self._uses.ages()
        return sorted(self._by_mtime(pattern), key=lambda file: -ages.get(file.name, 0.0))

    def _setups(self, roster: bytes) -> Path:
        return self._state / f"setups-{roster.hex()[:32]}"

    def _session(self, session: str) -> Path:
        return self._state / f"session-{session}"

    def _release(self, run_id: str, dataset: str) -> Path:
        name = hashlib.sha256(f"{len(run_id)}:{run_id}{dataset}".encode()).hexdigest()[:32]
        return self._state / f"release-{name}"

    def _write(self, path: Path, content: bytes) -> None:
        draft = path.with_name(path.name + ".part")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        before = _opened_to_erase(path)
        os.replace(draft, path)
        sync_folder(path.parent)
        if path.name.startswith(tuple(kind.rstrip("*") for kind in _NOTED)):
            self._uses.note(path.name)
        if before is not None:  # the file that has no name any more
            _overwrite(before)


def contribution_head(kept: Frame | None) -> list[Head]:
    """Return the end of the ledger when a contribution was charged, if it was kept with it."""
    said = None if kept is None else kept.head.get("ledger")
    return [] if said is None else [Head(records=said["records"], hash=said["hash"])]


def end_sessions(folder: Path) -> None:
    """Erase the sessions of a party's folder."""
    for path in (folder / "state").glob("session-*"):
        _erase(path)


def _overwrite(handle: int) -> None:
    # Best effort: on a disk that writes in place the old bytes are gone. On flash, on a file system
    # that copies on write, or in a backup they are not: what protects secrets there is that pair
    # secrets are ratcheted forward and a run's keys are worth nothing without its traffic.
    try:
        left = os.fstat(handle).st_size
        while left > 0:
            left -= os.write(handle, _ZEROS[:left])
        os.fsync(handle)
    finally:
        os.close(handle)


def _erase(path: Path) -> None:
    handle = _opened_to_erase(path)
    if handle is not None:
        _overwrite(handle)
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def _opened_to_erase(path: Path) -> int | None:
    """Open a file to overwrite it; None if there is none, or a link to a file elsewhere."""
    try:
        return os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return None


def _private(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        right = 700 if path.is_dir() else 600
        raise PartyFolderError(
            f"Expected {path} to be readable by its owner alone, got mode {mode:o}: "
            f"chmod {right} {path}"
        )


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PartyFolderError(f"Expected to use {path}: {describe_cause(error)}.") from error
