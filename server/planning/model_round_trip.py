"""Check, before anything is charged, that the model of a run can be written, read again and used.

A network of your own code is built once here, again by every party, and again by `predict`. A model
file holds its parameters, and a digest of its frozen layers and buffers. If the network differed
each time it is built, the run would be charged for a model that never predicts.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.task_codec import decode_task, describe_task
from parley.client.contract.strict_decoding import DecodingError, parse_strict_json
from parley.client.own_code.own_code_names import get_public_name, is_own_code
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError

_ROWS: Final = 16


def check_round_trip(job: Job, algorithm: FederatedAlgorithm) -> None:
    """Raise JobError if the network that the run starts with would not predict from a model file.

    Parley's networks and linear models are described only by numbers and are not tried.
    """
    kind = job.model.kind
    if not is_own_code(kind):
        return
    learned, known = algorithm.model, get_public_name(kind)
    theta = algorithm.model_of(algorithm.init())
    task = parse_strict_json(json.dumps(describe_task(algorithm), allow_nan=False))
    try:
        read: Any = decode_task(task, own_models={known: kind}).model
    except DecodingError as error:
        raise JobError(
            f"Expected {kind} to be the same network each time it is built, by parties and by "
            f"`parley predict`, got: {error}"
        ) from error
    if read.dimension != learned.dimension:
        raise JobError(
            f"Expected {kind} to have the same {learned.dimension} parameters each time it is "
            f"built, got {read.dimension}. Its layers must not depend on chance or on earlier "
            "calls."
        )
    if learned.draws_per_record:  # It has losses, but no scores.
        return
    rows = np.random.default_rng(0).random((_ROWS, learned.features)) / np.sqrt(learned.features)
    one, other = (model.compute_margins(theta, rows) for model in (learned, read))
    near = np.abs(one).max() * np.finfo(str(one.dtype)).eps ** 0.25
    if not (np.abs(one - other) <= near).all():
        raise JobError(
            f"Expected {kind} to give the same scores each time it is built with the same "
            "parameters, got others. It uses something that is neither a parameter nor a buffer "
            "(a tensor or array drawn at random, a file that changes). Register it with "
            "register_buffer."
        )
