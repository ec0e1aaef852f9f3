"""Check a party's folder before the party takes part, and report each item separately.

Only the last two items depend on the server. Keys, roster, policy and data can be put right before
the server exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.refusals import Declined
from parley.client.contract.roster import load_deployment
from parley.client.data.schema import load_schema
from parley.client.party.dataset_config import APP_DATA, APP_KNOWS, DatasetConfig
from parley.client.party.dataset_loader import RAW_COLUMNS, load_dataset
from parley.client.party.ledger_cache import has_ledger
from parley.client.party.owner_policy import OwnerPolicy, load_policy
from parley.client.party.party_folder import PartyFolder
from parley.client.party.party_service import derive_records_secret
from parley.deploy.certificate_checks import check_client_pair, check_dates
from parley.deploy.deployment_folder_checks import find_own_party
from parley.deploy.private_files import check_private
from parley.deploy.process_errors import ProcessError
from parley.deploy.server_address import DeployError
from parley.deploy.stream.grpc_client import check_known, check_reachable
from parley.exit_status import get_exit_status
from parley.module_loading.plugin_table import load_attribute
from parley.privacy.accounting.rounding import format_exact
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerError
from parley.privacy.ledger.row_registration import format_moved_rows
from parley.safe_io.os_errors import describe_error
from parley.safe_io.plurals import format_noun

_RowDigests = dict[str, NDArray[np.uint64] | None]
_PRIVATE_KEYS = ("identity.key", "party.key")


@dataclass(frozen=True, kw_only=True)
class CheckItem:
    """One item of a check: its subject, the finding, and the exit status if the item is wrong.

    An item with `waits` may come right by itself; a party that starts waits for it.
    """

    what: str
    said: str
    status: int = 0
    waits: bool = False

    @property
    def line(self) -> str:
        """The item as a printed line."""
        return f"{'ok ' if not self.status else 'NOT'} {self.what}: {self.said}"


def check_items(folder: Path, *, server: str | None = None) -> Iterator[CheckItem]:
    """Check a party's folder and yield the items. A wrong item does not stop the other checks.

    `server` is a `host:port` to use instead of the roster's.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        yield CheckItem(what="folder", said=f"Expected a folder at {folder}, got none.", status=2)
        return
    yield _run_check("keys", _check_keys, folder)
    yield _run_check("certificate and clock", _check_certificate, folder)
    yield _run_check("roster", _check_roster, folder)
    yield from _check_records(folder)
    yield _run_check("contributions", _check_contributions, folder)
    try:
        deployment = load_deployment(folder / "deployment.toml")
    except ValueError:
        said = "not checked, because the roster is missing or invalid"
        yield CheckItem(what="server", said=said, status=2)
        return
    address = server or deployment.server_address
    reached = _run_check("server", _check_server, address, folder / "ca.crt")
    yield reached
    if not reached.status:
        known = partial(check_known, folder, address, deployment)
        yield _run_check("this party at the server", lambda: f"known as {known()}")


def check_accounts(folder: Path) -> None:
    """Raise DeployError if a record would be charged to two accounts, or to a new one."""
    for item in _check_records(folder):
        if item.what == "accounts" and item.status:
            raise DeployError(item.said)


def _check_records(folder: Path) -> Iterator[CheckItem]:
    """Check the policy, data sets and ledger, and that each record is charged to one account."""
    policy = _run_check("policy", _check_policy, folder)
    yield policy
    if not policy.status:
        consent = load_policy(folder / "party.toml")
        if not consent.data:
            said = (
                "Expected a data set ([data.NAME]) in party.toml, got none. The party declines "
                "every job."
            )
            yield CheckItem(what="data", said=said, status=2)
        rows: _RowDigests = {}
        if any(dataset.app_data for dataset in consent.data.values()):
            for public_name, place in consent.get_own_code("models").items():
                yield _run_check(f"own code {public_name}", _check_app, place)
        for name, dataset in consent.data.items():
            yield _run_check(f"data set {name}", _check_dataset, folder, name, dataset, rows)
    own = PartyFolder(path=folder).ledger_path
    ledger = _run_check("ledger", _check_ledger, folder)
    yield ledger
    if not policy.status and not ledger.status and rows.keys() == consent.data.keys():
        yield _run_check("accounts", _check_no_overlap, own, consent, rows)


def _run_check(what: str, check: Callable[..., str], *given: object) -> CheckItem:
    try:
        return CheckItem(what=what, said=check(*given))
    except Exception as error:
        status = get_exit_status(error)
        if status is None:
            raise
        # Wait only if the server does not answer. A server that refuses, or another one, has its
        # own error.
        waits = isinstance(error, ProcessError)
        return CheckItem(what=what, said=describe_error(error), status=status, waits=waits)


def _check_keys(folder: Path) -> str:
    for name in _PRIVATE_KEYS:
        if not (folder / name).exists():
            raise DeployError(
                f"{folder} is not a party's folder: it has no {name}. The server administrator "
                "creates it with `parley deploy init` and sends it to you."
            )
        check_private(folder / name)
    return f"{' and '.join(_PRIVATE_KEYS)}, readable only by their owner"


def _check_certificate(folder: Path) -> str:
    check_dates(folder / "ca.crt")
    check_client_pair(folder, "party")
    days = check_dates(folder / "party.pem")
    return f"ca.crt and party.pem are valid today; party.pem for {days:.0f} more days"


def _check_roster(folder: Path) -> str:
    deployment = load_deployment(folder / "deployment.toml")
    own = find_own_party(folder, deployment)
    return (
        f"{own.name}, one of {len(deployment.parties)} parties. Compare the roster's id by "
        f"telephone:\n      {deployment.spoken}"
    )


def _check_policy(folder: Path) -> str:
    consent = load_policy(folder / "party.toml")
    datasets = f"{len(consent.data)} {format_noun(len(consent.data), 'data set')}"
    return f"party.toml, {datasets}; accepts {', '.join(consent.algorithms)}"


def _check_dataset(folder: Path, name: str, dataset: DatasetConfig, rows: _RowDigests) -> str:
    """Check that a data set's files exist and are valid. Store its rows' digests in `rows`."""
    held_out = "" if dataset.source else dataset.held_out
    app_data = "" if dataset.app_data == APP_KNOWS else dataset.app_data
    for given in (dataset.path, dataset.data_schema, dataset.prepared, app_data, held_out):
        if given and not (folder / given).exists():
            raise DeployError(f"Expected a file at {folder / given}, got none.")
    label = "network"
    if dataset.is_raw:
        schema = load_schema(folder / dataset.data_schema)
        ranges = [label.range is not None for label in schema.labels.values()]
        # A data set without a label answers only queries.
        label = RAW_COLUMNS if not ranges else "ridge" if ranges[0] else "network"
    if dataset.unit is Unit.PERSON:
        label = RAW_COLUMNS
    if dataset.app_data:
        label = APP_DATA
    secret = _derive_records_secret(folder)
    read = partial(load_dataset, folder=folder, label=label, intercept=False, secret=secret)
    try:
        holding = read(dataset)
        rows[name] = holding.row_digests
        held = ""
        if dataset.held_out:
            others = read(dataset.to_held_out())
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
    epsilon, delta = format_exact(dataset.epsilon), format_exact(dataset.delta)
    budget = f"budget epsilon = {epsilon}, delta = {delta}"
    if dataset.app_data:
        return f"read only by your own app ({dataset.app_data}); {budget}"
    records = f"{len(holding.labels)} {format_noun(len(holding.labels), 'record')}"
    return f"{records} of {holding.features} features{held}; {budget}"


def _check_app(name: str) -> str:
    """Check that an app's file can be imported, before a round that is charged needs it."""
    loading = "parley.client.algorithms.flower.app_loading"
    load_attribute(f"{loading}:load_namespace")(name)
    digest = load_attribute(f"{loading}:compute_app_digest")(name)
    return f"can be imported; the digest of its code begins with {digest[:12]}"


def _derive_records_secret(folder: Path) -> bytes:
    """Return the party's records secret. If its key is missing, return a dummy: another item
    reports it.
    """
    try:
        return derive_records_secret(bytes.fromhex((folder / "identity.key").read_text().strip()))
    except (OSError, ValueError):
        return b"checked"


def _check_no_overlap(path: Path, consent: OwnerPolicy, rows: _RowDigests) -> str:
    """Check that no record is charged to two accounts, and that each is in the block that paid for
    it.

    Records are compared between these data sets and with the rows in the ledger.
    """
    known = {name: found for name, found in rows.items() if found is not None}
    account = {name: consent.data[name].account or name for name in known}
    with ExitStack() as stack:
        ledger = None
        if has_ledger(path):
            ledger = stack.enter_context(Ledger.open(path, read_only=True))
        for name, own in known.items():
            shared = {} if ledger is None else ledger.count_shared_rows(own)
            count = 0 if ledger is None else ledger.count_moved_rows(account[name], own)
            if count > consent.data[name].deleted_records:
                raise DeployError(
                    f"{format_moved_rows(account[name], count)}. If none was moved, and all "
                    f"{count} were deleted while another block has an equal one, set "
                    f"deleted-records = {count} in [data.{name}] of party.toml."
                )
            for other, theirs in known.items():
                # The first half of a digest is enough to distinguish rows.
                if count := len(np.intersect1d(own[:, 0], theirs[:, 0])):
                    shared[account[other]] = max(count, shared.get(account[other], 0))
            shared.pop(account[name], None)
            if shared:
                found = ", ".join(f"{count} in {each!r}" for each, count in shared.items())
                raise DeployError(
                    f"Expected records of {name!r} in no other account than {account[name]!r}, got "
                    f"{found}. Each would be released twice. Set account = {next(iter(shared))!r} "
                    f"in [data.{name}] to charge both to one budget, or remove those records from "
                    "one of them."
                )
    return "no record is in two accounts"


def _check_ledger(folder: Path) -> str:
    """Check that the ledger was not edited, damaged or replaced since its entries were written."""
    party_folder = PartyFolder(path=folder)
    path = party_folder.ledger_path
    head = party_folder.find_newest_ledger_head()
    if not has_ledger(path):
        if head is None:
            return f"none yet; the first charge creates {path}"
        raise LedgerError(
            f"Expected the ledger at {path}, which had {head.records} records, got none. Restore "
            "it. If you remove state/ledger-head instead, you accept a new ledger that contains "
            "none of these releases."
        )
    with Ledger.open(path, read_only=True) as ledger:
        wrong, entries = ledger.verify(anchor=head), ledger.list_entries()
    if wrong:
        raise LedgerError(
            f"{path} was edited, damaged or replaced, and can pay for no release: "
            f"{wrong[0].message} Restore it as it was. If you remove state/ledger-head instead, "
            "you accept an older copy as the record of all releases."
        )
    releases = f"{len(entries)} {format_noun(len(entries), 'release')}"
    return f"{path.name}, {releases}, unchanged since they were written"


def _check_contributions(folder: Path) -> str:
    failures = PartyFolder(path=folder).list_failures()
    if failures:
        said = "; ".join(f"state/{name}: {what}" for name, what in failures.items())
        raise DeployError(
            "The last contribution failed. The party sent zeros or an uncertified result for "
            f"{said}. Only this check shows it. Fix the cause; the next run computes a new "
            "contribution."
        )
    return "none of the last failed"


def _check_server(address: str, ca: Path) -> str:
    check_reachable(address, ca)
    return f"{address} answers, and its certificate is from the authority"
