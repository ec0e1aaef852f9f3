"""User-defined algorithms: a frozen dataclass in your own file, `file.py:Class` or `module:Class`.

A job names it (`algorithm.kind`), and `algorithm.settings` sets its fields. Each participating
party has the file next to its `party.toml` and lists it in `algorithms`. The name and the values
travel, never the code. `examples/federated_count.py` is an example.

`features` and `classes` come from the data. Subclass `Statistic` and add three parts: `dimension`,
`claim` and `local`. `ClippedSum` has these, too, for a sum of numbers per record. It clips them, so
you need not claim a sensitivity.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import partial
from itertools import pairwise
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parley.client.algorithms.algorithm_spec import (
    AlgorithmSpec,
    PartyResources,
    check_keys,
    compute_min_parameters,
)
from parley.client.algorithms.base import Claim, Contribution, PublicFacts
from parley.client.algorithms.noisy_sum_algorithms import NoModel, ReleasedAggregate
from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.strict_decoding import DecodingError, decode_dataclass
from parley.client.data.party_block import PartyBlock
from parley.client.models.contribution_clipping import build_ball, clip_rows
from parley.client.models.linear_model_codec import MAX_MODEL_SIZE
from parley.client.own_code.own_code_errors import OwnCodeError, list_code_failures
from parley.client.own_code.own_code_loading import (
    compute_own_file_digest,
    describe_failure,
    load_code,
)
from parley.client.own_code.own_code_names import get_public_name
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sampling.random_stream import Randomness
from parley.privacy.sensitivity.exact_row_arithmetic import sum_rows
from parley.safe_io.error_translation import translate_errors

_PARTS = ("kind", "title", "claim", "init", "local", "update", "model_of", "released")
_FROM_DATA = {"features", "classes"}


class OwnAlgorithmError(OwnCodeError):
    """A file, class or setting of a user-defined algorithm is unusable; the message shows where and
    why.
    """


@dataclass(frozen=True, kw_only=True)
class Statistic(ReleasedAggregate):
    """Sum over the parties, averaged and released as it is; `theta` stores it.

    Subclasses add `kind`, `title`, `dimension`, `claim` and `local`
    (`parley.client.algorithms.base.FederatedAlgorithm`), and settings as fields with defaults.

    Attributes:
        classes: K of the labels, which are class numbers 0 to K − 1.
    """

    kind: ClassVar[str]
    title: ClassVar[str]

    features: int
    classes: int

    @property
    def model(self) -> NoModel:
        """Placeholder: no model is learned."""
        return NoModel(features=self.features, classes=self.classes)


@dataclass(frozen=True, kw_only=True)
class ClippedSum(Statistic, ABC):
    """Sum of a vector per record, clipped to an L2 norm.

    Subclasses add `kind`, `title`, `neighbouring`, `dimension` and `numbers`. The result of
    `numbers` becomes a vector of whole numbers in a ball, one record at a time. A vector that is
    not finite becomes zeros.

    Attributes:
        norm: L2 norm to which a record's numbers are clipped.
        most: number of a party's records beyond which its sum may be clamped.
    """

    neighbouring: ClassVar[Neighbouring]

    norm: float = 1.0
    most: int = 1_000_000

    @abstractmethod
    def numbers(self, row: NDArray[np.float64], label: Any) -> ArrayLike:
        """Return `[d]` numbers of one record, from its row `[p]` and its label."""

    def claim(self, facts: PublicFacts) -> Claim:
        """Claim the ball of `norm`."""
        ball, bits = build_ball(self.dimension, self.norm)
        return Claim(
            dimension=self.dimension,
            features=self.features,
            bound=self.most * self.norm,
            lies_in=ball,
            grid_bits=bits,
            unit=Unit.RECORD,
            neighbouring=self.neighbouring,
        )

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Compute each party's own sum."""
        ball, bits = build_ball(self.dimension, self.norm)
        largest, sums = ball.largest, []
        for begin, end in pairwise(block.offsets):
            values = np.zeros((end - begin, self.dimension))
            for record_values, record in zip(values, range(begin, end), strict=True):
                row = block.features[record].astype(np.float64)
                record_values[:] = self.numbers(row, block.labels[record])
            clip_rows(values, self.norm)
            total = sum_rows(np.ldexp(values, bits), largest)
            sums.append(np.clip(total, -self.most * largest, self.most * largest))
        return Contribution(values=np.ldexp(np.array(sums, np.float64), -bits), failed=())


def _load_class(name: str) -> type[Any]:
    """Return the class of that name; its file is run once for each of its contents.

    A relative name is another file in another folder, and a file may be edited between two runs of
    one process.
    """
    place = name.rpartition(":")[0]
    return _load_class_once(name, str(Path(place).absolute()), compute_own_file_digest(name))


@functools.lru_cache(maxsize=16)
def _load_class_once(name: str, path: str, digest: str | None) -> type[Any]:
    del path, digest  # parts of the cache's key
    file, _, attribute = name.rpartition(":")
    with translate_errors(OwnCodeError, OwnAlgorithmError):
        found = load_code(name, what="algorithm")
    if not isinstance(found, type) or not is_dataclass(found):
        got = "none of that name" if found is None else f"an object of type {type(found).__name__}"
        raise OwnAlgorithmError(f"Expected a dataclass {attribute!r} in {file}, got {got}.")
    missing = [part for part in _PARTS if not hasattr(found, part)]
    if missing or not {field.name for field in fields(found)} >= _FROM_DATA:
        raise OwnAlgorithmError(
            f"Expected {name} to have features, classes and all parts of an algorithm "
            f"(parley.client.algorithms.base), got one without {', '.join(missing) or 'fields'}."
        )
    try:
        get_type_hints(found)
    except list_code_failures() as error:
        raise OwnAlgorithmError(
            f"Cannot read the types of the fields of {name}: {describe_failure(error, file)}. "
            "Import these types outside of `if TYPE_CHECKING`."
        ) from error
    algorithm_class: Any = found
    if algorithm_class.kind != get_public_name(name):
        raise OwnAlgorithmError(
            f"Expected {name} to have kind = {get_public_name(name)!r}, its name for server and "
            f"parties, got {algorithm_class.kind!r}."
        )
    _guard_parts(found, file)
    return found


_RESULTS: Mapping[str, type] = {
    "dimension": Integral,
    "claim": Claim,
    "init": Mapping,
    "local": Contribution,
    "update": Mapping,
    "model_of": np.ndarray,
    "released": Mapping,
}
"""Result type of each part of an algorithm."""


def _guard_parts(found: type[Any], place: str) -> None:
    """Make each part of a class raise OwnAlgorithmError for its exceptions and wrong results.

    The text of an exception of `local` is left out, because it may contain values of records.
    """
    for part, kind in _RESULTS.items():
        own = inspect.getattr_static(found, part)
        if isinstance(own, property):
            setattr(found, part, property(_guarded(own.fget, found, part, kind, place)))
        elif inspect.isfunction(own):
            setattr(found, part, _guarded(own, found, part, kind, place))


def _guarded(own: Any, found: type[Any], part: str, kind: type, place: str) -> Any:
    name = f"{found.__name__}.{part}"

    @functools.wraps(own)
    def guarded(*args: Any, **values: Any) -> Any:
        try:
            result = own(*args, **values)
        except list_code_failures() as error:
            if type(error).__module__.startswith("parley."):
                raise
            failure = describe_failure(error, place, values=part != "local")
            raise OwnAlgorithmError(f"Expected a result of {name}, got {failure}.") from error
        if not isinstance(result, kind):
            expected = f"Expected {name} to return an object of type {kind.__name__}"
            raise OwnAlgorithmError(f"{expected}, got one of type {type(result).__name__}.")
        return result

    return guarded


_MOST_TRIED = 64


def check_parts(algorithm: Any, plan: ReleasePlan) -> None:
    """Run each part of your own algorithm on made-up records, before anything is charged.

    Raises OwnAlgorithmError.
    """
    name, count = type(algorithm).__name__, min(plan.min_records, _MOST_TRIED)
    rows = np.random.default_rng(0).random((count, algorithm.features))
    block = PartyBlock(
        features=rows / np.sqrt(max(algorithm.features, 1)),
        labels=np.arange(count) % max(algorithm.classes, 1),
        offsets=np.array([0, count]),
    )
    state = algorithm.init()
    _check_theta(state, f"{name}.init")
    found = algorithm.local(state, block, plan, Randomness(seed=None, party=None))
    shape = np.shape(found.values)
    if shape != (1, plan.dimension):
        expected = f"{name}.local to return values of shape {(1, plan.dimension)} for one party"
        raise OwnAlgorithmError(f"Expected {expected}, got {shape}.")
    state = algorithm.update(state, np.zeros(plan.dimension))
    _check_theta(state, f"{name}.update")
    algorithm.model_of(state)
    algorithm.released(state)


def _check_theta(state: Mapping[str, Any], part: str) -> None:
    if not isinstance(state.get("theta"), np.ndarray):
        raise OwnAlgorithmError(f"Expected {part} to return an array 'theta' in its state.")


def _build_from_settings(
    found: type[Any], name: str, settings: Mapping[str, Any], features: int, classes: int
) -> Any:
    """Build an algorithm: the class's defaults, changed by a job's settings.

    Raises OwnAlgorithmError.
    """
    known = {field.name.replace("_", "-"): field.name for field in fields(found)}
    for key in _FROM_DATA:
        del known[key]
    if unknown := sorted(set(settings) - set(known)):
        keys, got = ", ".join(known), f"Unknown key algorithm.settings.{unknown[0]}"
        raise OwnAlgorithmError(f"{got}. Expected one of: {keys}.")
    try:
        values = {known[key]: value for key, value in settings.items()}
        plain = asdict(found(features=features, classes=classes, **values))
        return decode_dataclass(found, plain)  # refuses a value of another type here already
    except list_code_failures() as error:
        is_unexpected = not isinstance(error, ValueError | TypeError)
        message = describe_failure(error, name.rpartition(":")[0]) if is_unexpected else str(error)
        public = get_public_name(name)
        raise OwnAlgorithmError(f"algorithm.settings of {public}: {message}") from error


def describe_own_task(algorithm: Any) -> dict[str, Any]:
    """Return the values of its fields."""
    return {"settings": asdict(algorithm)}


def build_own_spec(name: str) -> AlgorithmSpec:
    """Build the row of your own algorithm. Raises OwnAlgorithmError."""
    return build_class_spec(_load_class(name), name, summed=False)


def build_class_spec(algorithm: type[Any], name: str, *, summed: bool) -> AlgorithmSpec:
    """Build the row of an algorithm whose settings are the fields of its class.

    Args:
        name: Name of the algorithm in a job.
        summed: Whether its `update` takes the noisy sum instead of the average.
    """

    def of_task(task: Mapping[str, Any], party: PartyResources) -> Any:
        check_keys(task, "settings")
        return decode_dataclass(algorithm, task["settings"])

    def size(task: Mapping[str, Any]) -> tuple[str, int]:
        settings = task.get("settings")
        if not isinstance(settings, Mapping):
            raise DecodingError("Expected settings in the task of an own algorithm, got none.")
        widths = [settings.get("features"), settings.get("classes")]
        if compute_min_parameters(widths, layered=False) > MAX_MODEL_SIZE:
            limit = MAX_MODEL_SIZE
            raise DecodingError(f"Expected at most {limit} features and classes, got more.")
        return "", 1  # its dimension is known, and checked against the policy, once it is built

    return AlgorithmSpec(
        title=algorithm.title,
        to_task=describe_own_task,
        from_task=of_task,
        parse_size=size,
        build=partial(_build_from_settings, algorithm, name),
        summed=summed,
    )
