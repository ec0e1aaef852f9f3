"""Form of `[algorithm]` for a Flower ClientApp that parties run unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, field_validator

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.flower.app_loading import FlowerAppError
from parley.client.algorithms.flower.flower_averaging import FlowerAveraging
from parley.privacy.accounting.threat_model import Neighbouring
from parley.safe_io.error_translation import translate_errors
from parley.server.jobs.algorithm_base import (
    PARTY_BUDGET_KEYS,
    ROUNDS_DESCRIPTION,
    AlgorithmSection,
    UnusedKeys,
)
from parley.server.jobs.external_references import CodeReference, TextSettings
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.section_base import JobError, check_unchanged, replace_auto

if TYPE_CHECKING:
    from parley.server.jobs.job import Job

_CLIP_NORM = 1.0


class FlowerSection(AlgorithmSection):
    """Federated averaging of the updates of the ClientApp that `model.kind` names."""

    models: ClassVar[tuple[str, ...]] = ("module:function",)
    learns: ClassVar[str] = "nothing"
    data_reading: ClassVar[str] = "app"
    unused_keys: ClassVar[UnusedKeys] = {
        "privacy": PARTY_BUDGET_KEYS,
        "run": ("device",),
        "model": ("class_weights",),
        "dp_sgd": (
            *("sampling_rate", "batch_size", "local_epochs", "local_steps", "clip_norm"),
            *("noise_multiplier", "clipped_fraction_share", "optimiser", "learning_rate"),
            *("momentum", "per_example_method", "precision", "micro_batch", "pad_batches"),
        ),
    }
    unused_needs: ClassVar[str] = "algorithm.kind = 'fedavg'; a Flower app trains by itself"

    rounds: int = Field(10, ge=1, le=1_000_000, description=ROUNDS_DESCRIPTION)
    average: bool = True
    """Report the mean of the later half of the iterates (post-processing, at no cost)."""

    settings: TextSettings = Field({})
    """Settings of your own algorithm, by the names in its class. flower: the app's
    context.run_config, and the config of its messages.
    """

    initial: CodeReference = "auto"
    """flower: a function or class without arguments that returns the model's initial arrays: a
    torch module, an ArrayRecord, or arrays. 'task.py:Net'. Only the server calls it. auto:
    initial_arrays or Net in the app's module.
    """

    @field_validator("settings")
    @classmethod
    def _check_settings(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for name, value in settings.items():
            if not isinstance(value, bool | int | float | str):
                raise ValueError(
                    f"Expected a text, a number, or true or false in settings.{name}, got "
                    f"{type(value).__name__}: Flower's configs have no other types."
                )
        return settings

    @classmethod
    def fill_defaults(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """Name the data that the app reads, and count one record per party: Parley reads none."""
        filled: dict[str, dict[str, Any]] = {
            "data": {"source": cls.data_reading},
            "parties": {"min-records": 1},
        }
        given = {name: tree.get(name, {}) for name in filled}
        if not all(isinstance(keys, Mapping) for keys in given.values()):
            return tree
        return {**tree, **{name: {**filled[name], **given[name]} for name in filled}}

    def check(self, job: Job) -> None:
        """Check what a ClientApp needs."""
        if job.privacy.unit != "party":
            raise ValueError(
                f"Expected privacy.unit = 'party' with {self.kind}, got {job.privacy.unit!r}: what "
                "a ClientApp returns is any function of its records, so that only a whole party "
                "can be hidden. Use --unit party. To protect each record, write the network as "
                "model.kind = 'file.py:function' with algorithm.kind = 'distributed-dp-sgd'."
            )
        super().check(job)
        if job.parties.min_records != 1:
            raise ValueError(
                f"Expected no parties.min-records with {self.kind}, which counts no records, got "
                f"{job.parties.min_records}."
            )
        needs = "an algorithm whose records Parley reads"
        check_unchanged(job, "parties", ("weights",), "privacy.unit = 'record'")
        check_unchanged(job, "evaluation", ("kind",), needs)
        used = {"source", "seed"}
        unused = tuple(name for name in type(job.data).model_fields if name not in used)
        check_unchanged(job, "data", unused, needs)
        if job.parties.count < 2:
            raise ValueError(
                f"Expected at least 2 parties with unit party, got {job.parties.count}."
            )
        if job.run.engine == "ray":
            raise ValueError("Expected run.engine = 'fast' or 'processes' with flower, got 'ray'.")

    def build_algorithm(self, job: Job, model: Any, parties: Federation) -> FederatedAlgorithm:
        """Build the algorithm. This runs the app's file, and its function of initial arrays."""
        settings = job.dp_sgd
        with translate_errors(FlowerAppError, JobError):
            return FlowerAveraging.from_app(
                job.model.kind,
                self.initial,
                seed=job.data.seed,
                settings=dict(self.settings),
                norm=float(replace_auto(settings.party_clip_norm, _CLIP_NORM)),
                parties=job.parties.count,
                server_step=settings.server_step,
                rounds=self.rounds,
                average=self.average,
                neighbouring=Neighbouring(job.privacy.neighbouring),
            )
