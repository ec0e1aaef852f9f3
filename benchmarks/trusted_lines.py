"""Count the lines in which a mistake would make an ε false, by kind of release.

`python benchmarks/trusted_lines.py [--list KIND]` only reads files.

A module is trusted if a mistake in it could make a stated ε smaller than the true one, for a
release with the kind's usual noise. Such a module is between a record on disk and the released
noisy number, or computes the cost of that number. A mistake in another module can make a run end,
be refused or not be refused, be worse, or be described wrongly. Decisions:

- Losses, networks and feature maps count, although integers bound a record's contribution for any
  of their results. They work on whole arrays, and must keep one record's numbers out of another's
  row. A module that only ever sees one record would not count.
- CSV text counts, because a quotation mark could join rows. So do its alternatives, a database's
  rows and in-memory data (`INSTEAD_OF_CSV`).
- Of networks, chains of linear layers and convolutions count, as the built-in ones are. The modules
  for other networks by torch (`BY_TORCH`) are an assumption stated with their ε, and a separate
  kind.
- The ledger counts, because an ε covers all releases. So do the files of a party that prevent it
  from answering twice.
- Decoding from the network does not count. Charge, noise, computation and the keys of the masks all
  come from the one decoded agreement. A party that decoded another one only adds noise to a sum.
  Tables that turn it into an algorithm or a model do not count either
  (`client.algorithms.task_codec`, `client.models.linear_model_codec`), because the one
  object that they create both states the claim and computes.
- Calibration of noise to a budget (`privacy.calibration`) does not count, because the charge is
  computed from the noise.
- Acceptance rules of an owner or a server do not count. A release is charged what it costs in any
  case.

Secure sums are counted separately. With noise by the server, a mask that fails reveals only what
the server would learn anyway. With noise in shares, the ε against the server depends on them. Not
counted: Python, numpy and its BLAS, torch, cryptography, SQLite, polars.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

PACKAGES = ("server", "client", "secure_agg", "privacy")

EVERY = {
    "kernel": ("privacy.sensitivity.*",),
    "noise": (
        *(
            "privacy.sampling.random_stream",
            "privacy.sampling.inversion",
            "privacy.sampling.rounded_gaussian",
        ),
        *("privacy.special_functions", "privacy.mechanisms.base", "privacy.mechanisms.gaussian"),
        *(
            "privacy.mechanisms.noise_shares",
            "privacy.mechanisms.share_laws",
            "server.rounds.round_release",
        ),
    ),
    "accounting": (
        *("privacy.accounting.accountants", "privacy.accounting.composition"),
        *("privacy.accounting.privacy_events", "privacy.accounting.gaussian_curve"),
        *("privacy.accounting.threat_model", "privacy.accounting.rounding"),
    ),
    "ledger": ("privacy.ledger.*",),
    "contract": (
        *("client.contract.release_plan", "client.contract.guarantee", "client.contract.agreement"),
        "client.contract.canonical_encoding",
    ),
    "party": ("client.party.*",),
    "reading": (
        *(
            "client.data.party_block",
            "client.data.block_selection",
            "client.data.threaded_chunks",
            "client.data.cell_parsing",
            "client.data.text_numbers",
        ),
        *("client.data.parquet_table_format", "client.data.column_types"),
        *("client.data.multiset_digest", "client.data.csv_reader", "client.data.table_reading"),
        *("client.data.schema", "client.data.raw_table"),
    ),
    "encoding": ("secure_agg.encoding",),
    "claim": ("client.algorithms.base",),
}
"""Role → modules that every release trusts."""

_OTHER_LAWS = (
    *("privacy.mechanisms.laplace", "privacy.mechanisms.laplace_shares"),
    *("privacy.sampling.l2_laplace", "privacy.sampling.gamma", "privacy.sampling.discrete_noise"),
)
_ROWS = (
    *("client.data.training_records", "client.data.record_concatenation"),
    *("client.features.base", "client.features.row_preparation", "client.models.row_quantization"),
    "client.models.contribution_clipping",
)
_LINEAR = (
    *_ROWS,
    *("client.models.linear_models", "client.models.loss_base", "client.models.logistic_loss"),
    *("client.models.softmax_loss", "client.models.squared_loss", "client.models.huber_svm"),
    *("client.models.tabulated_losses", "client.models.class_weights"),
    *("client.models.integer_gradients", "client.models.exact_math"),
)
_NETWORK = (
    *_ROWS,
    *("client.models.networks", "client.models.exact_*", "client.dp_sgd.*"),
    *("client.algorithms.party_sampling", "privacy.mechanisms.subsampled_gaussian"),
    *("privacy.accounting.subsampled_gaussian", "privacy.accounting.dp_accounting_adapter"),
)

KINDS: dict[str, tuple[str, ...]] = {
    "gradient perturbation": (*_LINEAR, "client.algorithms.gradient_perturbation"),
    "output perturbation": (
        *_LINEAR,
        *("client.algorithms.output_perturbation", "client.algorithms.noisy_sum_algorithms"),
        *("client.solvers.local_optima", "client.solvers.batched_optima"),
        *("client.solvers.constrained_ridge", "client.solvers.optimum_certificate"),
        "privacy.calibration.optimum_sensitivity",
    ),
    "fedavg": (*_NETWORK, "client.algorithms.federated_averaging"),
    "distributed DP-SGD": (*_NETWORK, "client.algorithms.distributed_dp_sgd"),
    "queries": (
        *("client.queries.*", "client.queries.filters.*", "client.algorithms.query_release"),
        *("client.algorithms.noisy_sum_algorithms", "privacy.mechanisms.private_selection"),
        *("privacy.mechanisms.randomised_response", "client.data.query_party_block", *_OTHER_LAWS),
    ),
    "tables and moments": (
        *(*_ROWS, "client.data.record_discretization"),
        *("client.algorithms.noisy_sum_algorithms", "client.algorithms.pair_tables"),
        *("client.algorithms.second_moments", "client.algorithms.kernel_mean_embedding"),
    ),
}
"""Kind of release → further modules that it trusts. Noise is Gaussian, except that queries choose
it.
"""

BY_TORCH = (
    *(
        "client.dp_sgd.invariant_pass_layout",
        "client.dp_sgd.torch_clipping",
        "client.dp_sgd.torch_batch_sums",
    ),
    *("client.models.layer_checks", "client.models.record_losses"),
)
KINDS["fedavg of other modules"] = (*KINDS["fedavg"], *BY_TORCH)
"""Only for networks that are not chains."""

INSTEAD_OF_CSV = {
    "a database's rows": ("client.data.sql_source",),
    "data in memory": ("client.data.data_sources",),
}

HARMLESS = {
    "client.dp_sgd.optimisers": "post-processing of noisy gradients",
    "client.party.owner_approval": "asks the owner, and waits: what is wanted is charged, too",
    "client.party.refusal_rules": "refuses a plan, by public facts; changes no number of a release",
    "client.party.owner_policy": "what the owner wants, which only refuses; sizes are private by "
    "Facts, and insist-on-one-list counts with secure sums",
    "client.party.record_cache": "hands records out, which say what they are and are charged so",
    "client.party.budget_checks": "refuses a job that would spend too much; charges nothing",
    "client.party.run_validation": "refuses what its owner does not want; that would be charged, "
    "too; what it tells the masks counts with secure sums",
    "client.party.open_session_limit": "room, and nonces of the masks",
    "client.party.party_folder": "keeps files that say what they are of: one lost or old is "
    "refused",
    "client.party.tensor_decoding": "decodes a model: a record's share is bounded whatever that is",
    "privacy.ledger.database_url": "one text names one place, whichever: its releases stay "
    "together",
    "privacy.ledger.postgresql_url": "as database_url",
    "privacy.ledger.budget_excess": "words of refusals",
    "privacy.ledger.approvals": "an owner's yes or no, which no charge depends on",
    "privacy.ledger.ledger_errors": "words of refusals",
    "privacy.ledger.release_facts": "what is kept beside an event, to be read: the event is "
    "charged",
    "privacy.ledger.database_errors": "words of what a database reports",
    "privacy.ledger.untrusted_file": "refuses a file that is not a ledger",
    "privacy.ledger.read_limits": "interrupts the reading of a file that is too costly",
    "privacy.ledger.owner_actions": "what an owner says and is told: what was spent is what it was",
    "privacy.ledger.replay": "adds up again, and refuses or tells what does not agree",
    "privacy.ledger.reservations": "says what is recorded next, and refuses: totals are folded "
    "(fold), and leave to release is read off the chain (leave)",
}
"""Modules that match a pattern above but are not trusted, with the reason."""

SECURE_SUM = ("secure_agg.*", "client.party.owner_policy", "client.party.run_validation")


def sources() -> dict[str, str]:
    """Return module → text."""
    root = Path(__file__).resolve().parents[1]
    paths = [path for package in PACKAGES for path in (root / package).rglob("*.py")]
    files = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in paths}
    return {name.removesuffix(".py").replace("/", "."): text for name, text in files.items()}


def named(known: dict[str, str], patterns: Iterable[str]) -> set[str]:
    """Return the modules that match the patterns."""
    return {name for name in known if any(fnmatchcase(name, each) for each in patterns)}


def trusted(known: dict[str, str], kind: str) -> set[str]:
    """Return the modules that a kind of release trusts."""
    found = named(known, (*chain.from_iterable(EVERY.values()), *KINDS[kind])) - set(HARMLESS)
    return found if set(BY_TORCH) <= set(KINDS[kind]) else found - set(BY_TORCH)


def counted(text: str) -> tuple[int, int]:
    """Return the number of lines, and of lines with code: no docstring, comment, import or
    blank.
    """
    lines = text.splitlines()
    plain = {at for at, line in enumerate(lines, 1) if not line.strip()}
    plain |= {at for at, line in enumerate(lines, 1) if line.strip().startswith("#")}
    for node in ast.walk(ast.parse(text)):
        said = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if said or isinstance(node, ast.Import | ast.ImportFrom):
            plain |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines), len(lines) - len(plain)


def total(known: dict[str, str], modules: set[str]) -> str:
    """Return lines and lines of code in words."""
    each = [counted(known[name]) for name in modules]
    return f"{sum(a for a, _ in each):6,} lines, {sum(b for _, b in each):6,} of code"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", choices=KINDS, help="the modules of one kind")
    asked = parser.parse_args()
    known = sources()
    if asked.list:
        for name in sorted(trusted(known, asked.list)):
            lines, code = counted(known[name])
            print(f"{lines:5} {code:5} {name}")
        return
    for kind in KINDS:
        modules = trusted(known, kind)
        print(f"{kind:26}{total(known, modules)}, {len(modules)} modules")
    for role, patterns in EVERY.items():
        print(f"  of these {role:17}{total(known, named(known, patterns) - set(HARMLESS))}")
    for source, patterns in INSTEAD_OF_CSV.items():
        print(f"  not CSV: {source:18}{total(known, named(known, patterns) - set(HARMLESS))}")
    print(f"secure sums, beside       {total(known, named(known, SECURE_SUM))}")


if __name__ == "__main__":
    main()
