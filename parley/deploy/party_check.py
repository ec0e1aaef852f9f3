"""What must be right before a party takes part, each item checked and reported by itself.

Nothing here depends on the server but the last two items: keys, roster, policy and data can be put
right before there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.party_protocol import Declined
from parley.client.contract.roster import load_deployment
from parley.client.data.schema import load_schema
from parley.client.party.dataset_config import DataSet
from parley.client.party.dataset_loader import RAW_COLUMNS, load_holding
from parley.client.party.ledger_cache import is_made
from parley.client.party.owner_policy import Consent, load_consent
from parley.client.party.party_folder import Keeper
from parley.client.party.party_service import records_secret
from parley.deploy.child_processes import ProcessError
from parley.deploy.deployment_folders import DeployError, own_entry
from parley.deploy.pki import check_client_pair, check_dates, check_private
from parley.deploy.stream.grpc_client import check_known, check_reachable
from parley.exit_status import exit_status
from parley.privacy.accounting.rounding import as_written
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerError
from parley.privacy.ledger.registration import moved_text
from parley.safe_io.os_errors import describe_error
from parley.safe_io.plurals import noun

_PRIVATE_KEYS = ("identity.key", "party.key")


@dataclass(frozen=True, kw_only=True)
class Item:
    """One item of a check: what was checked, what was found, and the exit status if it is wrong.

    One that `waits` may come right by itself, and a party that starts waits for that.
    """

    what: str
    said: str
    status: int = 0
    waits: bool = False

    @property
    def line(self) -> str:
        """As it is printed."""
        return f"{'ok ' if not self.status else 'NOT'} {self.what}: {self.said}"


def check_items(folder: Path, *, server: str | None = None) -> Iterator[Item]:
    """Checks a party's folder, item by item; a wrong one keeps no other from being checked.

    `server` is `host:port` in place of the roster's.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        yield Item(what="folder", said=f"Expected a folder at {folder}, got none.", status=2)
        return
    yield _item("keys", _keys, folder)
    yield _item("certificate and clock", _certificate, folder)
    yield _item("roster", _roster, folder)
    yield from _records(folder)
    yield _item("contributions", _contributions, folder)
    try:
        deployment = load_deployment(folder / "deployment.toml")
    except ValueError:
        yield Item(what="server", said="not asked, for want of a roster", status=2)
        return
    address = server or deployment.server_address
    reached = _item("server", _reach, address, folder / "ca.crt")
    yield reached
    if not reached.status:
        known = partial(check_known, folder, address, deployment)
        yield _item("this party at the server", lambda: f"known as {known()}")


def check_accounts(folder: Path) -> None:
    """Raises DeployError where a record would be charged to two accounts, or to a fresh one."""
    for item in _records(folder):
        if item.what == "accounts" and item.status:
            raise DeployError(item.said)


def _records(folder: Path) -> Iterator[Item]:
    """Policy, data sets, ledger, and which records are charged where."""
    policy = _item("policy", _policy, folder)
    yield policy
    if not policy.status:
        consent = load_consent(folder / "party.toml")
        if not consent.data:
            said = (
                "Expected a data set ([data.NAME]) in party.toml, got none: every job is declined."
            )
            yield Item(what="data", said=said, status=2)
        rows: dict[str, NDArray[np.uint64] | None] = {}
        for name, dataset in consent.data.items():
            yield _item(f"data set {name}", _data, folder, name, dataset, rows)
    own = Keeper(folder=folder).ledger
    ledger = _item("ledger", _ledger, folder)
    yield ledger
    if not policy.status and not ledger.status and rows.keys() == consent.data.keys():
        yield _item("accounts", _accounts, own, consent, rows)


def _item(what: str, check: Callable[..., str], *given: object) -> Item:
    try:
        return Item(what=what, said=check(*given))
    except Exception as error:
        status = exit_status(error)
        if status is None:
            raise
        # No answer of a server; one that refuses, or is another's, is told apart from that.
        waits = isinstance(error, ProcessError)
        return Item(what=what, said=describe_error(error), status=status, waits=waits)


def _keys(folder: Path) -> str:
    for name in _PRIVATE_KEYS:
        if not (folder / name).exists():
            raise DeployError(
                f"{folder} is not a party's folder: it has no {name}. The operator makes it with "
                "`parley deploy init` and sends it to you."
            )
        check_private(folder / name)
    return f"{' and '.join(_PRIVATE_KEYS)}, for their owner alone"


def _certificate(folder: Path) -> str:
    check_dates(folder / "ca.crt")
    check_client_pair(folder, "party")
    days = check_dates(folder / "party.pem")
    return f"ca.crt and party.pem are valid today, party.pem for {days:.0f} days more"


def _roster(folder: Path) -> str:
    deployment = load_deployment(folder / "deployment.toml")
    own = own_entry(folder, deployment)
    return (
        f"{own.name}, one of {len(deployment.parties)} parties; compare its id by telephone:\n"
        f"      {deployment.spoken}"
    )


def _policy(folder: Path) -> str:
    consent = load_consent(folder / "party.toml")
    accepted = ", ".join(consent.algorithms)
    return f"party.toml, {len(consent.data)} data sets; accepts {accepted}"


def _data(
    folder: Path, name: str, dataset: DataSet, rows: dict[str, NDArray[np.uint64] | None]
) -> str:
    """That its files are there and hold what they should; its rows are noted in `rows`."""
    held_out = "" if dataset.source else dataset.held_out
    for given in (dataset.path, dataset.data_schema, dataset.prepared, held_out):
        if given and not (folder / given).exists():
            raise DeployError(f"Expected {folder / given}, there is no such file.")
    label = "network"
    if dataset.raw:
        schema = load_schema(folder / dataset.data_schema)
        ranges = [label.range is not None for label in schema.labels.values()]
        # Without a label it answers queries only.
        label = RAW_COLUMNS if not ranges else "ridge" if ranges[0] else "network"
    if dataset.unit is Unit.PERSON:
        label = RAW_COLUMNS
    read = partial(
        load_holding, folder=folder, label=label, intercept=False, secret=_records_secret(folder)
    )
    try:
        holding = read(dataset)
        rows[name] = holding.row_digests
        held = ""
        if dataset.held_out:
            others = read(dataset.of_held_out())
            held = f" and {len(others.labels)} held out"
            both = (each.row_digests for each in (holding, others))
            rows[name] = np.concatenate([each for each in both if each is not None])
            if others.features != holding.features:
                raise DeployError(
                    f"Expected held-out records of {holding.features} features in "
                    f"{dataset.held_out}, got {others.features}."
                )
    except Declined as error:
        raise DeployError(error.detail) from error
    return (
        f"{len(holding.labels)} {noun(len(holding.labels), 'record')} "
        f"of {holding.features} features{held}; budget epsilon = "
        f"{as_written(dataset.epsilon)}, delta = {as_written(dataset.delta)}"
    )


def _records_secret(folder: Path) -> bytes:
    """As the party has it; any, where its key is not there: another item says so."""
    try:
        return records_secret(bytes.fromhex((folder / "identity.key").read_text().strip()))
    except (OSError, ValueError):
        return b"checked"


def _accounts(path: Path, consent: Consent, rows: dict[str, NDArray[np.uint64] | None]) -> str:
    """That no record is charged to two accounts, of these data sets or of what is charged, and
    that each is in the block that it was charged in."""
    known = {name: found for name, found in rows.items() if found is not None}
    account = {name: consent.data[name].account or name for name in known}
    with ExitStack() as stack:
        ledger = None
        if is_made(path):
            ledger = stack.enter_context(Ledger.open(path, read_only=True))
        for name, own in known.items():
            shared = {} if ledger is None else ledger.sharing(own)
            allowed = consent.data[name].deleted_records
            if ledger is not None and (count := ledger.moved(account[name], own)) > allowed:
                raise DeployError(
                    f"{moved_text(account[name], count)}. If none was moved, and all {count} were "
                    "deleted while another block has an equal one, say so: "
                    f"deleted-records = {count} in [data.{name}] of party.toml."
                )
            for other, theirs in known.items():
                # The first half of a digest tells rows apart as well as need be.
                if count := len(np.intersect1d(own[:, 0], theirs[:, 0])):
                    shared[account[other]] = max(count, shared.get(account[other], 0))
            shared.pop(account[name], None)
            if shared:
                found = ", ".join(f"{count} in {each!r}" for each, count in shared.items())
                raise DeployError(
                    f"Expected records of {name!r} that are in no other account than "
                    f"{account[name]!r}, got {found}: each would be released from twice. "
                    f"account = {next(iter(shared))!r} in [data.{name}] charges both to one "
                    "budget; or leave those records out of one of them."
                )
    return "no record is in two"


def _ledger(folder: Path) -> str:
    """That what was spent is still what was written down."""
    keeper = Keeper(folder=folder)
    path = keeper.ledger
    if not is_made(path):
        return f"none yet; the first charge makes {path}"
    with Ledger.open(path, read_only=True) as ledger:
        wrong, entries = ledger.verify(anchor=keeper.newest_ledger_head()), ledger.entries()
    if wrong:
        raise LedgerError(
            f"{path} was edited, damaged or replaced, and pays for nothing: {wrong[0].message} Put "
            "it back as it was. Whoever removes state/ledger-head takes an older copy for all that "
            "was released."
        )
    return f"{path.name}, {len(entries)} {noun(len(entries), 'release')}, as they were written"


def _contributions(folder: Path) -> str:
    failures = Keeper(folder=folder).failures()
    if failures:
        said = "; ".join(f"state/{name}: {what}" for name, what in failures.items())
        raise DeployError(
            f"Expected what was contributed last to have been computed, got zeros, or what is not "
            f"certified, of {said}. Nobody else is told: another run contributes again."
        )
    return "none of the last went wrong"


def _reach(address: str, ca: Path) -> str:
    check_reachable(address, ca)
    return f"{address} answers, and the authority vouches for it"
