"""Call a Flower ClientApp for one round of training; the only module of the algorithm with Flower.

A `Message` is built as Flower's FedAvg strategy builds it: arrays under "arrays", settings and
"server-round" under "config". An app of the older API (`client_fn`) receives the same as `FitIns`.
Of a reply only its arrays are returned. Its metrics, numbers of examples, and other records are
dropped here. The app keeps no `Context.state` between rounds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.app.metadata import Metadata
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from parley.client.algorithms.flower.app_loading import FlowerAppError, get_place, load_namespace

_TTL_S: Final = 43_200.0
_SERVER_NODE: Final = 1
"""Number of the server's node in a message; a party has its position and 2."""


def load_client_app(name: str) -> ClientApp:
    """Load the ClientApp that a name refers to. Raises FlowerAppError."""
    place, attribute = get_place(name), name.rpartition(":")[2]
    found = load_namespace(name).get(attribute)
    if not isinstance(found, ClientApp):
        got = "none of that name" if found is None else f"an object of type {type(found).__name__}"
        raise FlowerAppError(f"Expected a Flower ClientApp {attribute!r} in {place}, got {got}.")
    if not _is_legacy(found) and "train.default" not in found._registered_funcs:
        expected = f"Expected {name} to have a function for training (@app.train() or client_fn)"
        raise FlowerAppError(f"{expected}, got none.")
    return found


def _is_legacy(app: ClientApp) -> bool:
    """Return whether an app was made from a `client_fn`. Flower has no public name for it."""
    return app._call is not None


def list_named_arrays(value: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ArrayRecord, a torch module, a dictionary or a list, by their names.

    Arrays of a list are named by their positions, as in an ArrayRecord. Raises TypeError.
    """
    if isinstance(value, ArrayRecord):
        return {name: array.numpy() for name, array in value.items()}
    if hasattr(value, "state_dict"):
        value = value.state_dict()
    if isinstance(value, np.ndarray):
        value = [value]
    if isinstance(value, list | tuple):
        value = {str(position): array for position, array in enumerate(value)}
    if not isinstance(value, Mapping):
        raise TypeError(f"no arrays, but an object of type {type(value).__name__}")
    return {str(name): _to_array(array) for name, array in value.items()}


def _to_array(value: Any) -> NDArray[Any]:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.array(value)


def train_client(
    app: ClientApp,
    arrays: Mapping[str, NDArray[Any]],
    *,
    settings: Mapping[str, bool | int | float | str],
    round_number: int,
    node_config: Mapping[str, int | str],
    position: int,
) -> Any:
    """Return an app's reply to a message with these arrays. Raises what the app raises."""
    node = position + 2
    record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    config = ConfigRecord({**settings, "server-round": round_number})
    names = ("fitins.parameters", "fitins.config") if _is_legacy(app) else ("arrays", "config")
    metadata = Metadata(
        run_id=1,
        message_id=f"round-{round_number}",
        src_node_id=_SERVER_NODE,
        dst_node_id=node,
        reply_to_message_id="",
        group_id=str(round_number),
        created_at=time.time(),
        ttl=_TTL_S,
        message_type="train",
    )
    context = Context(
        run_id=1,
        node_id=node,
        node_config=dict(node_config),
        state=RecordDict(),
        run_config=dict(settings),
    )
    content = RecordDict({names[0]: record, names[1]: config})
    # Flower's own way to state all metadata; the public one needs its process-wide identity.
    message = Message(content=content, metadata=metadata)  # type: ignore[call-overload]
    return app(message, context)


def read_reply(app: ClientApp, reply: Any, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a reply, by name; for an older app under `names`, in their order.

    Raises FlowerAppError, whose message has no text of the reply.
    """
    if not isinstance(reply, Message):
        raise FlowerAppError(f"an object of type {type(reply).__name__} instead of a Message")
    if reply.has_error():
        raise FlowerAppError("a Message with an error")
    records, legacy = reply.content.array_records, _is_legacy(app)
    wanted = "fitres.parameters" if legacy else "arrays"
    if wanted not in records and len(records) == 1:
        wanted = next(iter(records))
    if wanted not in records:
        raise FlowerAppError(f"a reply with {len(records)} array records, none named 'arrays'")
    try:
        found = {name: array.numpy() for name, array in records[wanted].items() if array.data}
    except (ValueError, TypeError, OSError, EOFError, MemoryError) as error:
        raise FlowerAppError(f"arrays that cannot be read ({type(error).__name__})") from None
    if legacy and len(found) == len(names):
        return dict(zip(names, found.values(), strict=True))
    return found
