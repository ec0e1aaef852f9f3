"""`OwnerPolicy`: a party's policy, `party.toml`. The owner sets what may be computed, at what cost.

The file is on the party's own disk, and only its owner can change it. It names the data sets that
are served, each with the total (ε, δ) of all releases from it. It also sets what the party requires
of any run. Every proposal of a server is checked against it (`parley.client.party.run_validation`)
before anything is computed. A proposal that fails is `Declined` with one reason class.

    >>> from parley.privacy.accounting.threat_model import Unit
    >>> consent = OwnerPolicy.model_validate(
    ...     {"data": {"ward": {"prepared": "ward.npz", "epsilon": 2.0, "delta": 1e-5}}}
    ... )
    >>> consent.data["ward"].totals[Unit.RECORD].epsilon_per_job, consent.min_survivors
    (2.0, 2)

A policy only refuses. An accepted release is charged its cost, and no ε rests on the policy.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from parley.client.algorithms.algorithm_spec import NETWORKS
from parley.client.algorithms.registry import ALGORITHMS
from parley.client.contract.refusals import Declined, Reason
from parley.client.contract.removed_options import ConfirmSurvivors, KeyExchange
from parley.client.features.registry import FEATURES
from parley.client.models.loss_registry import LOSSES
from parley.client.own_code.own_code_names import get_public_name, is_own_code, resolve_path
from parley.client.party.dataset_config import DatasetConfig, PolicySection, SectionName
from parley.client.queries.registry import QUERIES
from parley.module_loading.plugin_table import load_attribute
from parley.privacy.accounting.threat_model import NOISE_POINTS
from parley.privacy.mechanisms.registry import MECHANISM_CLASSES
from parley.safe_io.deprecations import rename_keys
from parley.safe_io.file_reading import read_text
from parley.safe_io.os_errors import describe_cause
from parley.safe_io.toml_reading import parse_toml

if TYPE_CHECKING:
    LawName = str
    PointName = str
else:
    PointName = Literal[tuple(NOISE_POINTS)]
    LawName = Literal[tuple(MECHANISM_CLASSES)]


class OwnerPolicy(PolicySection):
    """All of the owner's decisions. The defaults are those of a real party, not of a simulation."""

    version: Literal[1] = 1
    """Version of this file's format."""

    min_survivors: int = Field(2, ge=1)
    """Minimum number of parties in a sum that is unmasked."""

    min_degree: int = Field(1, ge=0)
    """Minimum number of parties with which this one shares masks, in a run and in each round."""

    colluders_at_least: int | None = Field(None, ge=0)
    """Number of parties that may collude with the server. A run must assume at least as many, for
    its masks and for noise in shares. Default: a tenth of the parties, and at least one of three or
    more. From it and the number of parties follow the number of mask partners, the minimum number
    of survivors, and how many shares rebuild a secret. No server can propose them.
    """

    confirm_survivors: ConfirmSurvivors = True
    """Always true: the parties confirm the survivors' list to each other. This protects against a
    server that lies about dropouts.
    """

    key_exchange: KeyExchange = "hybrid"
    """Always hybrid: masks stay secret as long as X25519 or ML-KEM-768 is unbroken."""

    insist_on_inner: bool = True
    """With privacy.unit = 'both': charge records by the noise of this party's own training, which
    also protects against the server. Never charge them by the server's noise on the sum, which a
    lying server can leave out.
    """

    insist_on_one_list: bool = True
    """Help to unmask a release (the noisy sum of a round) with only one list of parties, over all
    attempts and sessions, unless this party's own noise covers it. Two lists would reveal the
    difference to the server. false trusts the server not to subtract.
    """

    insist_on_fine_grid: bool = True
    """Contributions are rounded to a grid before they are masked. Accept only the finest grid that
    fits, on which rounding adds at most a tenth to what one record can change. On a coarser grid,
    small contributions round to 0 and expose the large ones. A job that sets
    secure-aggregation.scale-bits needs false.
    """

    noise_points: tuple[PointName, ...] = ("server", "share", "party")
    """Where noise may be added. share: every party adds a share before it masks. party: all of it
    is inside the party. server: the server adds it, and is trusted with the sum before the noise.
    """

    laws: tuple[LawName, ...] = (
        "gaussian",
        "discrete-gaussian",
        "l2-laplace",
        "laplace-l1",
        "laplace",
        "dp-sgd",
        "sampled-gaussian",
        "objective-perturbation",
        "randomised-response",
    )
    """Accepted noise distributions. laplace: for queries. randomised-response: every record answers
    a query for itself. dp-sgd: noise inside this party's own training. sampled-gaussian: noise on
    the sums of batches that parties draw.
    """

    calibrations: tuple[Literal["exact", "zcdp", "cks20", "as-printed", "pld"], ...] = (
        "exact",
        "zcdp",
        "cks20",
        "pld",
    )
    """Accepted calibrations of the noise. This party recomputes what is charged."""

    algorithms: tuple[str, ...] = tuple(ALGORITHMS)
    """Accepted algorithms (second-moments: the release for a pca-mlp's private components). List
    your own as 'count.py:Count' for a file in this folder, or as 'module:Class' for code installed
    on this machine. A listed algorithm may be run.
    """

    queries: tuple[str, ...] = tuple(QUERIES)
    """Accepted queries, if algorithms contains query."""

    query_columns: tuple[str, ...] | None = None
    """Columns that queries may read. Default: every column of the schema."""

    most_cells: int = Field(100_000, ge=1)
    """Maximum number of cells of a batch of queries. It limits this machine's work."""

    by_party: bool = False
    """Whether to accept queries by party, which show this party's own answer next to the others.
    false: only answers of all parties together.
    """

    models: tuple[str, ...] = (*LOSSES, *NETWORKS, "table")
    """Accepted models. A party never runs a server's code. List your own as 'tumour.py:net' for a
    function of a file in this folder, or as 'module:function' for code installed on this machine.
    Listing it lets a server have it run.
    """

    features: tuple[str, ...] = tuple(FEATURES)
    """Accepted public maps of features. List your own as 'backbone.py:net' for a file in this
    folder, or as 'module:function' for code installed on this machine. A listed map may be run.
    """

    feature_ms_at_most: float = Field(100.0, gt=0, allow_inf_nan=False)
    """Maximum milliseconds of one core that a map of features may take per record, measured on
    made-up records. It limits this machine's work.
    """

    largest_model: int = Field(20_000_000, ge=1)
    """Maximum number of parameters of a model. It limits this machine's memory."""

    most_steps: int = Field(100_000, ge=1)
    """Maximum number of training steps of one round. It limits this machine's work."""

    allow_seeded_noise: bool = False
    """Accept noise from a seed, which protects no one. For simulations only."""

    seed: int | None = Field(None, ge=0)
    """Seed of this party's own draws if a run's noise is seeded, never of other draws. Default: the
    operating system's entropy.
    """

    disclose_size: bool = True
    """Send the number of records to the server if a job needs it. false declines such jobs. A
    number that the data set's budgets hide is never sent.
    """

    clock_skew_s: float = Field(300.0, gt=0, allow_inf_nan=False)
    """Maximum difference to the server's clock, in seconds."""

    approval_days: float = Field(7.0, gt=0, le=3650)
    """With approval-above: days that a job waits for your approval, and days that an approval stays
    valid for a run that has not begun. After that the job is declined, or needs approval again.
    """

    max_sessions: int = Field(8, ge=1, le=1000)
    """Maximum number of open runs. One more ends the run that was idle the longest."""

    lock_wait_s: float = Field(30.0, ge=0, le=3600)
    """Maximum seconds that a request waits for another one to end."""

    device: str = "cpu"
    """Where networks train: cpu, or a torch device."""

    data: dict[SectionName, DatasetConfig] = Field({})
    """Data sets, by name."""

    def is_size_disclosed(self, dataset: DatasetConfig) -> bool:
        """Return whether the server may learn the number of records."""
        return self.disclose_size and not dataset.has_private_size

    def get_accepted(self, kinds: Literal["models", "features", "algorithms"]) -> dict[str, str]:
        """Return the accepted names of a kind: the name in a request → what is built here."""
        return {get_public_name(name): name for name in getattr(self, kinds)}

    def get_own_code(self, kinds: Literal["models", "algorithms"]) -> dict[str, str]:
        """Return those accepted names that are the party's own code."""
        return {name: place for name, place in self.get_accepted(kinds).items() if ":" in name}

    @model_validator(mode="after")
    def _check(self) -> OwnerPolicy:
        if self.seed is not None and not self.allow_seeded_noise:
            raise ValueError("Expected allow-seeded-noise = true with a seed, got false.")
        for name, dataset in self.data.items():
            if dataset.account not in ("", name) and dataset.block_column:
                raise ValueError(
                    f"Expected no block-column for data set {name!r}, which is charged to "
                    "another one's account: a record of both would be in two of its blocks."
                )
            account = self.data.get(dataset.account) if dataset.account else dataset
            account_limits = account and (account.totals, account.approval_above)
            limits = dataset.totals, dataset.approval_above
            if account is None or account.account not in ("", name) or account_limits != limits:
                raise ValueError(
                    f"Expected account of data set {name!r} to name a data set with the same "
                    f"totals and approval-above that pays for itself, got {dataset.account!r}."
                )
        if len(self.get_accepted("models")) != len(set(self.models)):
            raise ValueError("Expected models of different names, got two files of one name.")
        return self

    @field_validator("algorithms", "features")
    @classmethod
    def _check_names(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        registry: Collection[str] = ALGORITHMS if info.field_name == "algorithms" else FEATURES
        for name in names:
            if name not in registry and not is_own_code(name):
                known = ", ".join(registry)
                expected = f"Expected {known}, or your own code as file.py:NAME"
                raise ValueError(f"{expected}, got {name!r}.")
        if len({get_public_name(name) for name in names}) != len(names):
            raise ValueError(f"Expected {info.field_name} of different names, got two of one name.")
        return names

    def get_dataset(self, name: object) -> DatasetConfig:
        """Return the data set of that name.

        Raises:
            Declined: unknown-dataset.
        """
        dataset = self.data.get(name) if isinstance(name, str) else None
        if dataset is None:
            raise Declined(Reason.UNKNOWN_DATASET, f"Expected one of {sorted(self.data)}.")
        return dataset


class PolicyError(ValueError):
    """Error in a `party.toml`: the key, what was expected, what came."""


def load_policy(path: Path) -> OwnerPolicy:
    """Load the policy in the file at `path`.

    Raises:
        PolicyError: the file is missing or not TOML, a key is unknown (the nearest is named), or a
            value is wrong.
    """
    try:
        text = read_text(path)
    except OSError as error:
        cause = describe_cause(error)
        raise PolicyError(f"Expected the party's policy at {path}, got: {cause}.") from error
    policy = parse_policy(text, source=str(path))
    # Files of models and algorithms are in the policy's folder, wherever the party was started.
    folder = path.resolve().parent
    resolved = {
        "models": tuple(resolve_path(name, folder) for name in policy.models),
        "algorithms": tuple(resolve_path(name, folder) for name in policy.algorithms),
        "features": tuple(resolve_path(name, folder) for name in policy.features),
    }
    return policy.model_copy(update=resolved)


@functools.lru_cache(maxsize=16)
def parse_policy(text: str, *, source: str) -> OwnerPolicy:
    """Parse the policy in `text`; see `load_policy`. A party reads its file for each request."""
    try:
        tree = parse_toml(text)
        rename_keys("policy", tree)
        return OwnerPolicy.model_validate(tree)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{source}: Expected TOML, got an error: {error}.") from error
    except ValidationError as error:
        format_fault = load_attribute("parley.client.party.policy_writing:format_fault")
        lines = [f"{source}: {format_fault(fault['loc'], fault)}" for fault in error.errors()]
        raise PolicyError("\n".join(dict.fromkeys(lines))) from None
    except ValueError as error:
        raise PolicyError(f"{source}: {error}") from error
