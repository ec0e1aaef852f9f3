"""The state that goes from round to round, and its bytes: the model and other named arrays.

>>> import numpy as np
>>> state = {"theta": np.array([0.5, -1.0])}
>>> load_state(save_state(state))["theta"].tolist()
[0.5, -1.0]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

Floats = NDArray[np.float64]
State = dict[str, Floats]
"""Named float64 arrays. `theta` is the model, `[d]`."""


def select_components(state: State) -> State:
    """Return only the components that rows are projected on; empty if there are none."""
    return {name: state[name] for name in ("components",) if name in state}


def save_state(state: State) -> bytes:
    """Return the state as a safetensors file."""
    return save({name: np.ascontiguousarray(array) for name, array in state.items()})


def load_state(blob: bytes) -> State:
    """Load a state that `save_state` wrote here; `party.joined_session` reads those of others."""
    return dict(load(blob))
