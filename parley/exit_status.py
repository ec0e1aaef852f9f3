"""Map errors that a user can correct to exit statuses of the command line."""

from __future__ import annotations

# By name, so that a command does not import a module only for its error class.
_STATUS = {
    "parley.server.jobs.section_base.JobError": 2,
    "parley.server.planning.budget_check.JobUnaffordable": 3,
    "parley.client.data.schema.SchemaError": 2,
    "parley.client.data.data_error.DataError": 2,
    "parley.client.queries.base.QueryError": 2,
    "parley.client.queries.filters.expressions.WhereError": 2,
    "parley.client.models.layer_checks.NetworkError": 2,
    "parley.client.own_code.own_code_errors.OwnCodeError": 2,
    "parley.simulations.data.partitions.PartitionError": 2,
    "parley.simulations.engine.fault_script.FaultScriptError": 2,
    "parley.privacy.calibration.noise_calibration.CalibrationError": 2,
    "parley.secure_agg.encoding.RingTooSmall": 2,
    "parley.secure_agg.encoding.EncodingError": 1,
    "parley.secure_agg.primitives.AlgorithmMissing": 2,
    "parley.server.records.run_folder.RunFolderError": 2,
    "parley.simulations.audit.audit_job_shrinking.AuditError": 2,
    "parley.server.model_file.ModelFileError": 2,
    "parley.server.synthetic.generation.GenerationError": 1,
    "parley.certificate.certificate_statement.CertificateError": 2,
    "parley.sweeps.sweep_runner.SweepStopped": 1,
    "parley.privacy.ledger.ledger_errors.BudgetExceeded": 3,
    "parley.privacy.ledger.ledger_errors.NotALedger": 2,
    "parley.privacy.ledger.ledger_errors.LedgerConflict": 2,
    "parley.privacy.ledger.ledger_errors.LedgerError": 1,
    "parley.simulations.engine.sharding.WrongAnswer": 1,
    "parley.simulations.engine.in_process_cohort.MaskedCheckFailed": 1,
    "parley.secure_agg.interface.TooFewSurvivors": 1,
    "parley.server.rounds.round_release.NotApproved": 1,
    "parley.server.rounds.cohort.PartyFailed": 1,
    "parley.client.contract.roster.RosterError": 2,
    "parley.client.party.owner_policy.PolicyError": 2,
    "parley.client.party.party_folder.PartyFolderError": 2,
    "parley.deploy.private_files.PkiError": 2,
    "parley.deploy.server_address.DeployError": 2,
    "parley.deploy.process_errors.ProcessError": 1,
    "parley.deploy.stream.grpc_client.CallError": 1,
    "sqlite3.OperationalError": 1,
}

INTERNAL_ERROR = 70
"""Exit code of an error that Parley does not expect (EX_SOFTWARE of sysexits.h)."""

EXIT_CODES = {
    0: "The command did what you asked.",
    1: "It could not continue: disk, network, ledger or parties; or you answered no.",
    2: "The input is wrong: an option, job, file or key. The message says what to change.",
    3: "The privacy budget refuses the job.",
    4: "An audit measured more than a claimed ε.",
    INTERNAL_ERROR: "An error in Parley. The message names a file with details to report.",
    130: "Interrupted. A run resumes with `parley run --resume RUN`.",
}
"""Exit code → meaning, for every command."""

KNOWN_ERRORS = frozenset(name for name in _STATUS if name.startswith("parley."))
"""Errors that a run in other processes may raise again here."""


def get_exit_status(error: BaseException) -> int | None:
    """Return 2 for wrong input, 3 for an exhausted budget, 1 for a stopped run; None for a bug."""
    for kind in type(error).__mro__:
        status = _STATUS.get(f"{kind.__module__}.{kind.__qualname__}")
        if status is not None:
            return status
    return 1 if isinstance(error, OSError | MemoryError) else None
