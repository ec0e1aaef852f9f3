"""Define `Job`: everything a run consists of, checked before the run touches anything.

A job has nine sections: `[parties]`, `[data]`, `[model]`, `[algorithm]`, `[dp-sgd]`, `[privacy]`,
`[evaluation]`, `[secure-aggregation]`, `[run]`. Every key is defined in its section's file with its
default, range and purpose. `parley.server.jobs.job_file` reads and writes jobs. `[model]` and
`[algorithm]` have another form for each kind (`parley.server.jobs.section_base`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from parley.client.algorithms.registry import has_class_settings
from parley.privacy.accounting.account_admission import compute_reserved_delta
from parley.privacy.accounting.rounding import format_exact
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.mechanisms.registry import MECHANISMS
from parley.safe_io.plurals import format_noun
from parley.secure_agg.protocol_parameters import choose_min_survivors, compute_assumed_corrupt
from parley.server.jobs.dp_sgd_section import DpSgdSection
from parley.server.jobs.evaluation_section import EvaluationSection
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.parties_and_data import DataSection, PartiesSection
from parley.server.jobs.privacy_section import PrivacySection, UnitBudget
from parley.server.jobs.run_section import RunSection
from parley.server.jobs.section_base import JobError, JobSection, SectionForms, replace_auto
from parley.server.jobs.section_registry import ALGORITHM_SECTIONS, MODELS
from parley.server.jobs.secure_aggregation_section import SecureAggregationSection
from parley.server.jobs.unused_keys import check_unused_keys

FORMS = {
    "model": SectionForms(
        section="model",
        purpose="What the parties learn: a linear model with a strongly convex objective, or a "
        "network (fedavg).",
        forms=MODELS,
        default="logistic",
        own_key="module:function",
    ),
    "algorithm": SectionForms(
        section="algorithm",
        purpose="How the parties learn.",
        forms=ALGORITHM_SECTIONS,
        default="gradient-perturbation",
        own_key="file.py:Class",
        is_own=has_class_settings,
    ),
}
"""Sections that have another form for each kind."""

if TYPE_CHECKING:
    from parley.server.jobs.algorithm_base import AlgorithmSection as AlgorithmForm
    from parley.server.jobs.model_base import ModelSection as ModelForm
else:
    ModelForm, AlgorithmForm = (FORMS[name].annotation() for name in ("model", "algorithm"))


class Job(JobSection):
    """A complete run. Build it with `load_job`; the sections describe their keys."""

    parties: PartiesSection = PartiesSection()
    data: DataSection = DataSection()
    model: ModelForm = Field(default_factory=FORMS["model"].build_default)
    algorithm: AlgorithmForm = Field(default_factory=FORMS["algorithm"].build_default)
    dp_sgd: DpSgdSection = DpSgdSection()
    privacy: PrivacySection = PrivacySection()
    evaluation: EvaluationSection = EvaluationSection()
    secure_aggregation: SecureAggregationSection = SecureAggregationSection()
    run: RunSection = RunSection()

    @model_validator(mode="before")
    @classmethod
    def _drop_other_forms(cls, tree: Any) -> Any:
        if not isinstance(tree, Mapping):
            return tree
        own = {
            name: forms.drop_other_forms(tree[name])
            for name, forms in FORMS.items()
            if name in tree
        }
        kind = FORMS["algorithm"].find_kind(own.get("algorithm", {}))
        # A form may set defaults for keys of other sections.
        return getattr(ALGORITHM_SECTIONS[str(kind)], "fill_defaults", dict)({**tree, **own})

    @model_validator(mode="after")
    def _check(self) -> Job:
        privacy, law = self.privacy, MECHANISMS.get(self.noise)
        if law is not None and law.calibrations:  # scaled by a σ
            if privacy.delta == 0:
                pure = (
                    "A pure guarantee (δ = 0) needs privacy.noise = 'laplace-l1' (or 'l2-laplace', "
                    "pure except for its sampler's distance, stated as δ = 2^-40)."
                )
                known = (MECHANISMS[each] for each in self.algorithm.laws if each in MECHANISMS)
                if all(each.calibrations for each in known):  # none is pure
                    pure = (
                        f"No noise of {self.algorithm.kind} gives a pure guarantee. Use `--set "
                        "privacy.delta=1e-05`."
                    )
                raise ValueError(
                    f"Expected privacy.delta > 0 with {self.noise} noise, got 0. {pure}"
                )
            if privacy.calibration not in law.calibrations:
                raise ValueError(
                    f"Expected privacy.calibration {' or '.join(law.calibrations)} with "
                    f"{self.noise} noise (no other is proved for it), got {privacy.calibration}."
                )
        survivors = self.secure_aggregation.min_survivors
        if isinstance(survivors, int) and not 1 <= survivors <= self.parties.count:
            raise ValueError(
                f"Expected 1 <= secure-aggregation.min-survivors <= parties.count = "
                f"{self.parties.count}, got {survivors}."
            )
        colluding = self.secure_aggregation.corrupt
        if isinstance(colluding, int) and not 0 <= colluding < self.parties.count:
            raise ValueError(
                f"Expected 0 <= secure-aggregation.corrupt < parties.count = "
                f"{self.parties.count}, got {colluding}."
            )
        if self.data.blocks and privacy.unit != "record":
            raise ValueError(
                f"Expected privacy.unit = 'record' with data.blocks, got {privacy.unit!r}: a "
                "party has records in every block, so that a job that hides a party is charged "
                "to all blocks."
            )
        if self.data.blocks and self.data.test_source and self.evaluation.is_requested:
            raise ValueError(
                "Expected data.test-fraction with data.blocks and evaluation.kind = "
                "'federated', got a test-source: its records are in no block."
            )
        reserved = privacy.reserved_delta
        if reserved != "auto" and not reserved < max(privacy.delta, 1e-300):
            raise ValueError(
                "Expected privacy.reserved-delta below privacy.delta = "
                f"{format_exact(privacy.delta)}, got {reserved:g}."
            )
        listed = len(self.data.files)
        if listed not in (0, self.parties.count):
            raise ValueError(
                f"Expected parties.count = {listed}, one party per file of data.files, got "
                f"{self.parties.count}. Use --set parties.count={listed}, or leave it out."
            )
        if self.data.partition == "sizes" and not self.data.has_several_files:
            self._check_stated_sizes()
        if not self.run.is_one_process:
            self._check_engine()
        self.algorithm.check(self)
        self.evaluation.check(self)
        check_unused_keys(self)
        return self

    def _check_stated_sizes(self) -> None:
        """Check that the number and the sizes of the parties match the job."""
        sizes, least = self.data.sizes, self.parties.min_records
        if len(sizes) != self.parties.count:
            raise ValueError(
                f"Expected data.sizes of parties.count = {self.parties.count} parties, got "
                f"{len(sizes)}. Use `--set parties.count={len(sizes)}`, or give each party a size."
            )
        if least != "auto" and min(sizes) < least and not self.privacy.has_private_sizes:
            raise ValueError(
                f"Expected data.sizes of at least parties.min-records = {least}, got {min(sizes)}. "
                f"Use `--set parties.min-records={min(sizes)}`, or larger sizes."
            )

    def _check_engine(self) -> None:
        """Refuse what only an engine of one process can do."""
        engine = self.run.engine
        if self.run.in_process:
            if self.secure_aggregation.backend != "ideal":
                raise ValueError(
                    f"Expected secure-aggregation.backend = 'ideal' with run.engine = {engine!r}, "
                    f"got {self.secure_aggregation.backend!r}."
                )
            return
        if self.parties.count < 2:
            raise ValueError(
                f"Expected at least 2 parties to mask with each other with run.engine = "
                f"{engine!r}, got {self.parties.count}: --set parties.count=2."
            )
        if self.data.blocks:
            raise ValueError(
                f"Expected no data.blocks with run.engine = {engine!r}, got some: its parties "
                "are created from prepared rows. Use `--set run.engine=fast`, or real parties "
                "with a block-column."
            )

    def __repr__(self) -> str:
        count = self.parties.count
        return (
            f"<Job {self.model.kind.rpartition(':')[2]}, {count} {format_noun(count, 'party')}, "
            f"epsilon={format_exact(self.privacy.epsilon)}>"
        )

    __str__ = __repr__

    @property
    def model_form(self) -> str:
        """The key of its model in `parley.server.jobs.section_registry.MODELS`."""
        return str(FORMS["model"].find_kind(self.model))

    @property
    def noise(self) -> str:
        """Requested noise distribution, with `default` resolved by the algorithm."""
        asked = self.privacy.noise
        return self.algorithm.noise if asked == "default" else asked

    def label_kind(self, classes: int) -> str:
        """Return how labels are read: as the linear model needs them; for a network, as classes."""
        return self.model.label_kind(classes)

    @property
    def rounds(self) -> int:
        """Number of releases; output perturbation has one."""
        own = self.algorithm
        if own.releases is None and getattr(own, "rounds", 1) == "auto":
            raise JobError("Expected a resolved job, got algorithm.rounds = 'auto'.")
        return own.releases or int(getattr(own, "rounds", 1))

    @property
    def is_resolved(self) -> bool:
        """Whether rounds and features are known; if not, a rule needs the parties' sizes."""
        own = self.algorithm
        counted = own.releases is not None or getattr(own, "rounds", 1) != "auto"
        return counted and not self.model.is_feature_map_open

    def resolve_auto(self, federation: Federation | None = None, classes: int = 0) -> Job:
        """Return the job with the choices of its rule filled in.

        Args:
            federation: if None, only choices that need none of its facts are made.
        """
        chosen = self.algorithm.resolve_auto(self, federation, classes)
        return self.model_copy(update=chosen.sections)

    def explain_auto(self, federation: Federation, classes: int) -> tuple[str, ...]:
        """Return what the rule chooses and why, one line each; empty if nothing is left to it."""
        return self.algorithm.resolve_auto(self, federation, classes).reasons

    @property
    def budgets(self) -> tuple[UnitBudget, ...]:
        """The job's budget for each of its units; first the unit of ε and δ.

        If a release measures the model too, its ε is added to the first unit's total.
        """
        own, *others = map(self._reserve_delta, self.privacy.budgets)
        if not self.evaluation.is_requested:
            return (own, *others)
        total = self.privacy.epsilon + self.evaluation.epsilon
        data = replace_auto(self.privacy.dataset_epsilon, total)
        return (replace(own, total=total, dataset_epsilon=data), *others)

    def _reserve_delta(self, budget: UnitBudget) -> UnitBudget:
        """Return the budget with more δ reserved for approximations if the job trains by sampled
        steps.
        """
        if self.privacy.reserved_delta != "auto" or not self.algorithm.samples:
            return budget
        return replace(budget, reserved_delta=compute_reserved_delta(budget.delta, sampled=True))

    def get_budget(self, unit: Unit) -> UnitBudget:
        """Return the job's budget for a unit. Raises JobError if it has none."""
        for each in self.budgets:
            if each.unit is unit:
                return each
        raise JobError(f"Expected a budget for unit {unit} (privacy.unit), got none.")

    @property
    def seed(self) -> int | None:
        """Seed of the noise; None for the operating system's entropy."""
        return None if self.run.seed == "none" else self.run.seed

    @property
    def min_survivors(self) -> int:
        """Minimum number of parties whose sum may be unmasked."""
        chosen = self.secure_aggregation.min_survivors
        return choose_min_survivors(
            self.parties.count, corrupt=self.corrupt, requested=None if chosen == "auto" else chosen
        )

    @property
    def corrupt(self) -> int:
        """Number of parties that are assumed to collude with the server."""
        chosen = self.secure_aggregation.corrupt
        return compute_assumed_corrupt(self.parties.count) if chosen == "auto" else chosen

    def to_values(self, *, every_form: bool = False) -> dict[str, dict[str, Any]]:
        """Return every key by section, as a file names them.

        Args:
            every_form: Include the keys of other forms, at their defaults. This imports all forms.
        """
        return {
            info.alias or name: FORMS[name].to_values(getattr(self, name))
            if every_form and name in FORMS
            else getattr(self, name).model_dump(by_alias=True)
            for name, info in type(self).model_fields.items()
        }
