"""Which keys of a job go together: federated averaging's, and everyone else's.

A key that would do nothing is refused where it was changed from its default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parley.server.jobs.job import Job

__all__ = ["check_federated"]

_LINEAR_KEYS = {
    "model": ("lambda_", "intercept", "radius", "label_bound", "huber_width"),
    "algorithm": ("learning_rate", "momentum", "clip_norm", "relative_tolerance"),
}
_PCA_KEYS = ("pca", "pca_share", "pca_file")
_NETWORK_KEYS = {"model": ("hidden", "components", *_PCA_KEYS), "run": ("device",)}
_RECORD_KEYS = ("clip_norm", "noise_multiplier", "per_example_method")
_BOTH_KEYS = ("party_epsilon", "party_delta", "dataset_party_epsilon", "dataset_party_delta")


def check_federated(job: Job) -> None:
    """Raises ValueError where keys contradict each other or would have no effect."""
    from parley.server.jobs.job import LINEAR, NETWORKS

    kind, federated = job.model.kind, job.algorithm.kind == "fedavg"
    wanted = (*NETWORKS, "module:function") if federated else LINEAR
    if kind not in wanted and not (federated and _is_own(kind)):
        names = ", ".join(f"'{name}'" for name in wanted)
        raise ValueError(
            f"Expected model.kind to be one of {names} with algorithm.kind = "
            f"'{job.algorithm.kind}', got {kind!r}."
        )
    if not federated:
        _unchanged(job, _NETWORK_KEYS, "algorithm.kind = 'fedavg'")
        _unchanged(
            job, {"dp_sgd": tuple(type(job.dp_sgd).model_fields)}, "algorithm.kind = 'fedavg'"
        )
        _unchanged(
            job, {"privacy": ("unit", "neighbouring", *_BOTH_KEYS)}, "algorithm.kind = 'fedavg'"
        )
        return
    _unchanged(job, _LINEAR_KEYS, "gradient-perturbation or output-perturbation")
    if kind != "pca-mlp":
        _unchanged(job, {"model": ("components", *_PCA_KEYS)}, "model.kind = 'pca-mlp'")
    if job.model.pca == "private":
        _unchanged(job, {"model": ("pca_file",)}, "model.pca = 'public'")
    if kind not in {"mlp", "pca-mlp"}:
        _unchanged(job, {"model": ("hidden",)}, "model.kind = 'mlp' or 'pca-mlp'")
    _check_privacy(job)


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
