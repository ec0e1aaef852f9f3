"""Which keys of a job go together, by the algorithm's kind.

A key that would do nothing is refused where it was changed from its default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parley.server.jobs.job import Job

__all__ = ["JOB_KINDS", "JobKind", "check_kind", "job_kind"]

_PCA_KEYS = ("pca", "pca_share", "pca_file")
_RECORD_KEYS = ("clip_norm", "noise_multiplier", "per_example_method")
_BOTH_KEYS = ("party_epsilon", "party_delta", "dataset_party_epsilon", "dataset_party_delta")


@dataclass(frozen=True, kw_only=True)
class JobKind:
    """What a job may say of one kind of algorithm.

    Attributes:
        models: of `model.kind`.
        own_models: whether a model of one's own, module:function, is another.
        unused: keys that do nothing, by section; None stands for all of a section's.
        needs: what they need instead.
        noise: the law that `privacy.noise = 'default'` means.
        one_release: it has one round, whatever `algorithm.rounds` says.
        check: refuses keys that contradict each other. Raises ValueError.
    """

    models: tuple[str, ...]
    own_models: bool = False
    unused: Mapping[str, tuple[str, ...] | None]
    needs: str
    noise: str = "gaussian"
    one_release: bool = False
    check: Callable[[Job], None] = lambda _: None


def _check_networks(job: Job) -> None:
    kind = job.model.kind
    if kind != "pca-mlp":
        _unchanged(job, {"model": ("components", *_PCA_KEYS)}, "model.kind = 'pca-mlp'")
    if job.model.pca == "private":
        _unchanged(job, {"model": ("pca_file",)}, "model.pca = 'public'")
    if kind not in {"mlp", "pca-mlp"}:
        _unchanged(job, {"model": ("hidden",)}, "model.kind = 'mlp' or 'pca-mlp'")
    _check_privacy(job)


def _check_bounded_everywhere(job: Job) -> None:
    if job.model.kind == "ridge":
        raise ValueError(
            "Expected model.kind logistic, softmax or huber-svm with output-perturbation, got "
            "ridge: its gradient is only bounded on the ball ‖θ‖ ≤ radius. Use "
            "gradient-perturbation."
        )


_LINEAR_MODELS = ("logistic", "softmax", "ridge", "huber-svm")
_ONLY_NETWORKS: Mapping[str, tuple[str, ...] | None] = {
    "model": ("hidden", "components", *_PCA_KEYS),
    "run": ("device",),
    "dp_sgd": None,
    "privacy": ("unit", "neighbouring", *_BOTH_KEYS),
    "algorithm": ("settings",),
}
_ONLY_LINEAR = ("learning_rate", "momentum", "clip_norm", "relative_tolerance")

JOB_KINDS: dict[str, JobKind] = {
    "gradient-perturbation": JobKind(
        models=_LINEAR_MODELS, unused=_ONLY_NETWORKS, needs="algorithm.kind = 'fedavg'"
    ),
    "output-perturbation": JobKind(
        models=_LINEAR_MODELS,
        unused=_ONLY_NETWORKS,
        needs="algorithm.kind = 'fedavg'",
        noise="l2-laplace",
        one_release=True,
        check=_check_bounded_everywhere,
    ),
    "fedavg": JobKind(
        models=("mlp", "pca-mlp", "cnn"),
        own_models=True,
        unused={
            "model": ("lambda_", "intercept", "radius", "label_bound", "huber_width"),
            "algorithm": (*_ONLY_LINEAR, "settings"),
        },
        needs="gradient-perturbation or output-perturbation",
        check=_check_networks,
    ),
}

_OWN = JobKind(
    models=("none",),
    unused={
        "model": (
            "lambda_",
            "intercept",
            "radius",
            "label_bound",
            "huber_width",
            "hidden",
            "components",
            *_PCA_KEYS,
        ),
        "algorithm": (*_ONLY_LINEAR, "average"),
        "dp_sgd": None,
        "privacy": _BOTH_KEYS,
        "run": ("device",),
    },
    needs="an algorithm of Parley's; your own has algorithm.settings",
)


def job_kind(name: str) -> JobKind:
    """The row of `algorithm.kind`.

    Raises:
        ValueError: no such algorithm.
    """
    if _is_own(name):
        return _OWN
    if name not in JOB_KINDS:
        raise ValueError(
            f"Expected algorithm.kind to be {', '.join(JOB_KINDS)}, or your own, file.py:Class or "
            f"module:Class, got {name!r}."
        )
    return JOB_KINDS[name]


def check_kind(job: Job) -> None:
    """Raises ValueError where keys contradict each other or would have no effect."""
    row, kind = job_kind(job.algorithm.kind), job.model.kind
    wanted = (*row.models, "module:function") if row.own_models else row.models
    if kind not in row.models and not (row.own_models and _is_own(kind)):
        names = ", ".join(f"'{name}'" for name in wanted)
        raise ValueError(
            f"Expected model.kind to be one of {names} with algorithm.kind = "
            f"'{job.algorithm.kind}', got {kind!r}."
        )
    for section, keys in row.unused.items():
        every = keys if keys is not None else tuple(type(getattr(job, section)).model_fields)
        _unchanged(job, {section: every}, row.needs)
    row.check(job)


def _check_privacy(job: Job) -> None:
    privacy = job.privacy
    if privacy.delta == 0:
        raise ValueError("Expected privacy.delta > 0 with fedavg: its noise is Gaussian, got 0.")
    if job.noise != "gaussian":
        raise ValueError(f"Expected privacy.noise = 'gaussian' with fedavg, got {job.noise}.")
    if privacy.unit != "record":
        _unchanged(job, {"dp_sgd": ("clipped_fraction_share",)}, "privacy.unit = 'record'")
    if privacy.unit != "both":
        _unchanged(job, {"privacy": _BOTH_KEYS}, "privacy.unit = 'both'")
    if privacy.unit != "party":
        _check_records(job)
    if privacy.unit != "record":
        _check_parties(job)


def _check_records(job: Job) -> None:
    """What a record-level guarantee needs, alone or beside a party-level one."""
    privacy = job.privacy
    if privacy.unit == "record":
        _unchanged(job, {"dp_sgd": ("party_clip_norm",)}, "privacy.unit = 'party' or 'both'")
        _unchanged(
            job, {"privacy": ("calibration",)}, "another algorithm (DP-SGD is accounted by PLD)"
        )
    if privacy.neighbouring == "replace-one":
        return
    if job.parties.min_records == "auto":
        raise ValueError(
            "Expected parties.min-records, a public number that batches' sums are divided "
            "by, with add-or-remove-one neighbours, got 'auto': every party's own size is "
            "private then."
        )
    if job.parties.weights == "size":
        raise ValueError(
            "Expected parties.weights = 'uniform' with add-or-remove-one neighbours, got "
            "'size': a weight would tell a party's number of records, which is then private."
        )


def _check_parties(job: Job) -> None:
    """What a party-level guarantee needs, alone or beside a record-level one."""
    privacy = job.privacy
    unit = f"privacy.unit = '{privacy.unit}'"
    if privacy.unit == "party":
        _unchanged(job, {"dp_sgd": _RECORD_KEYS}, "privacy.unit = 'record' or 'both'")
        if privacy.neighbouring != "replace-one":
            raise ValueError(
                f"Expected replace-one neighbours with {unit}, got {privacy.neighbouring}."
            )
    if job.parties.weights != "uniform":
        raise ValueError(
            f"Expected parties.weights = 'uniform' with {unit}, got {job.parties.weights!r}."
        )
    if job.model.kind == "pca-mlp" and job.model.pca == "private":
        raise ValueError(
            f"Expected model.pca = 'public' with {unit}, got 'private': the components' noise "
            "hides one record, not a party."
        )
    if job.parties.count < 2:
        raise ValueError(f"Expected at least 2 parties with {unit}, got {job.parties.count}.")


def _is_own(kind: str) -> bool:
    place, colon, function = kind.rpartition(":")
    return bool(colon and place) and function.isidentifier()


def _unchanged(job: Job, keys: dict[str, tuple[str, ...]], needs: str) -> None:
    for section, names in keys.items():
        part: Any = getattr(job, section)
        for name in names:
            field = type(part).model_fields[name]
            value = getattr(part, name)
            if value != field.default:
                key = f"{section.replace('_', '-')}.{field.alias or name}"
                raise ValueError(
                    f"Expected {key} = {field.default!r} (it needs {needs}), got {value!r}."
                )
