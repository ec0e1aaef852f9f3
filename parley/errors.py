"""Which errors are a user's to mend, and with which exit status the command line says so."""

from __future__ import annotations

import sqlite3

__all__ = ["KNOWN_ERRORS", "exit_status"]

# By name, so that a command that never touches a module does not import it for its error class.
_STATUS = {
    "server.job.JobError": 2,
    "client.schema.SchemaError": 2,
    "client.table.DataError": 2,
    "client.networks.NetworkError": 2,
    "simulations.partitions.PartitionError": 2,
    "simulations.faults.FaultScriptError": 2,
    "privacy.gaussian_calibration.CalibrationError": 2,
    "secure_agg.encoding.RingTooSmall": 2,
    "secure_agg.encoding.EncodingError": 1,
    "server.run_folder.RunFolderError": 2,
    "parley.report.ReportError": 2,
    "privacy.ledger_errors.BudgetExceeded": 3,
    "privacy.ledger_errors.NotALedger": 2,
    "privacy.ledger_errors.LedgerConflict": 2,
    "privacy.ledger_errors.LedgerError": 1,
    "simulations.masked_check.MaskedCheckFailed": 1,
    "secure_agg.interface.TooFewSurvivors": 1,
    "server.cohort.PartyFailed": 1,
    "client.roster.RosterError": 2,
    "client.consent.ConsentError": 2,
    "parley.deploy.pki.PkiError": 2,
    "parley.deploy.folders.DeployError": 2,
    "parley.deploy.processes.ProcessError": 1,
}

KNOWN_ERRORS = frozenset(_STATUS)
"""Errors that a run in other processes is allowed to raise again here."""


def exit_status(error: BaseException) -> int | None:
    """2 for wrong input, 3 for an exhausted budget, 1 for what stopped a run; None for a bug."""
    for kind in type(error).__mro__:
        status = _STATUS.get(f"{kind.__module__}.{kind.__qualname__}")
        if status is not None:
            return status
    return 1 if isinstance(error, OSError | sqlite3.OperationalError | MemoryError) else None
