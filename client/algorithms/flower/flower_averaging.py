"""Federated averaging of the updates of a Flower ClientApp (McMahan et al. 2018, arXiv:1710.06963).

In each round a party calls its own copy of the app with the model θ. The update is the reply's
arrays minus the arrays that the app was given. Parley clips it to S in L2, whatever it is: a party
moves the sum by at most 2S, or by S if it is added or removed. The reply is any function of the
party's data, so the unit of privacy is the party. Of a reply nothing but the clipped update is
used.

The task names the app, its digest, and the layout of its arrays. A party runs only its own copy,
after the digests were compared. If the app fails, a simulation stops with an error; a real party
sends zeros and its share of the noise, because a visible failure would depend on its records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.algorithm_spec import (
    AlgorithmSpec,
    PartyResources,
    check_keys,
    get_settings,
)
from parley.client.algorithms.base import Claim, Contribution, PublicFacts
from parley.client.algorithms.flower.app_loading import (
    FlowerAppError,
    call_initial,
    compute_app_digest,
    get_place,
    use_seed,
)
from parley.client.algorithms.flower.array_layout import ArrayLayout, ArrayLayoutError
from parley.client.algorithms.iterative_algorithm import IterativeAlgorithm
from parley.client.algorithms.noisy_sum_algorithms import NoModel
from parley.client.contract.model_state_encoding import Floats, State
from parley.client.contract.refusals import Declined, Reason, decline_errors
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.strict_decoding import (
    DecodingError,
    decode_dataclass,
    decode_value,
    format_received,
)
from parley.client.data.party_block import PartyBlock
from parley.client.dp_sgd.optimisers import ServerStep, build_server_state
from parley.client.models.contribution_clipping import build_ball, clip_rows
from parley.client.own_code.own_code_errors import list_code_failures
from parley.client.own_code.own_code_loading import describe_failure
from parley.client.own_code.own_code_names import get_public_name
from parley.module_loading.plugin_table import load_attribute
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sampling.random_stream import Randomness

_ADAPTER = "parley.client.algorithms.flower.client_app_adapter"
"""Imported only by a process that calls the app: it imports Flower."""

_MAX_SETTINGS = 256
Setting = bool | int | float | str


@dataclass(frozen=True, kw_only=True)
class FlowerAveraging(IterativeAlgorithm):
    """Federated averaging of a ClientApp's clipped updates; see the module.

    Attributes:
        app: name of the app on this machine, `file.py:app` or `module:app`.
        digest: SHA-256 of its code, in hex, which must be the same at server and parties.
        settings: the app's `context.run_config`, and the "config" of its messages.
        norm: S, the L2 norm to which a party's update is clipped.
        parties: number of parties, the app's "num-partitions".
        initial: `[d]` at the server; a party needs none.
    """

    kind: ClassVar[str] = "flower"
    assumption: ClassVar[str] = ""

    app: str
    digest: str
    layout: ArrayLayout
    settings: Mapping[str, Setting]
    norm: float
    parties: int
    server: ServerStep
    rounds: int
    average: bool
    neighbouring: Neighbouring
    initial: NDArray[np.float64] | None = field(default=None, compare=False)

    @classmethod
    def from_app(
        cls, app: str, initial: str, *, seed: int, server_step: Mapping[str, Any], **others: Any
    ) -> FlowerAveraging:
        """Load an app on this machine, and its initial arrays. Raises FlowerAppError."""
        load_attribute(f"{_ADAPTER}:load_client_app")(app)
        found = call_initial(app, initial, seed=seed)
        try:
            arrays = load_attribute(f"{_ADAPTER}:list_named_arrays")(found)
            layout = ArrayLayout.from_arrays(arrays)
        except (TypeError, ArrayLayoutError) as error:
            source = f"{get_place(app)}" if initial == "auto" else initial
            raise FlowerAppError(f"Initial arrays from {source}: {error}") from error
        return cls(
            app=app,
            digest=compute_app_digest(app),
            layout=layout,
            initial=layout.flatten(arrays),
            server=ServerStep(**server_step),
            **others,
        )

    @property
    def model(self) -> NoModel:
        """Placeholder: the app has the model, and reads records by itself."""
        return NoModel(features=1, classes=2)

    @property
    def dimension(self) -> int:
        """d, the number of entries of all arrays."""
        return self.layout.dimension

    def claim(self, facts: PublicFacts) -> Claim:
        """Claim a party's ball of radius S."""
        ball, bits = build_ball(self.dimension, self.norm)
        return Claim(
            dimension=self.dimension,
            features=1,
            bound=self.norm,
            lies_in=ball,
            grid_bits=bits,
            unit=Unit.PARTY,
            neighbouring=self.neighbouring,
            lipschitz=self.norm,
            clip_norm=self.norm,
        )

    def init(self) -> State:
        """Return the initial arrays as one vector; zeros at a party, which is sent the model."""
        theta = np.zeros(self.dimension) if self.initial is None else self.initial.copy()
        return build_server_state(theta)

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Call the app for each party, and clip its update.

        Raises:
            FlowerAppError: a call failed, or its reply does not fit the layout or is not finite. A
                real party sends zeros (`parley.client.party.round_contribution`).
        """
        values = np.empty((block.parties, self.dimension))
        for row, place in enumerate(block.get_positions().tolist()):
            party = place if randomness.party is None else randomness.party
            path = getattr(block, "paths", {}).get(place, "")
            values[row] = self._compute_update(state["theta"], plan, randomness, party, path)
        clip_rows(values, self.norm)
        return Contribution(values=values, failed=())

    def _compute_update(
        self, theta: Floats, plan: ReleasePlan, randomness: Randomness, party: int, path: str
    ) -> Floats:
        """Return `[d]` one party's update before it is clipped."""
        place = f"round {plan.round_number}, party {party}"
        if (found := compute_app_digest(self.app)) != self.digest:
            expected = f"{get_public_name(self.app)} with digest {self.digest[:12]}, as agreed"
            why = "the file changed during the run"
            raise FlowerAppError(f"Expected {expected}, got {found[:12]}: {why}.")
        app = load_attribute(f"{_ADAPTER}:load_client_app")(self.app)
        node_config: dict[str, int | str] = {"partition-id": party, "num-partitions": self.parties}
        given = {
            "settings": self.settings,
            "round_number": plan.round_number,
            "node_config": node_config | ({"data-path": path} if path else {}),
            "position": party,
        }
        train = load_attribute(f"{_ADAPTER}:train_client")
        arrays = self.layout.split(theta)
        try:
            if randomness.seeded:  # a simulation repeats
                stream = randomness.open_training_batches(plan.round_number, party)
                with use_seed(int(stream.draw_words(1)[0])):
                    reply = train(app, arrays, **given)
            else:
                reply = train(app, arrays, **given)
        except list_code_failures() as error:
            # The text of the exception is left out: it may contain a record's values.
            failure = describe_failure(error, get_place(self.app), values=False)
            expected = f"Expected an update from {get_public_name(self.app)} ({place})"
            raise FlowerAppError(f"{expected}, got {failure}.") from error
        names = [slot.name for slot in self.layout.slots]
        try:
            trained = load_attribute(f"{_ADAPTER}:read_reply")(app, reply, names)
            update = self.layout.flatten(trained) - self.layout.flatten(self.layout.split(theta))
        except ArrayLayoutError as error:
            raise FlowerAppError(f"{get_public_name(self.app)} ({place}): {error}") from error
        except FlowerAppError as error:
            expected = f"Expected arrays from {get_public_name(self.app)} ({place})"
            raise FlowerAppError(f"{expected}, got {error}.") from error
        if not np.isfinite(update).all():
            expected = f"Expected finite numbers from {get_public_name(self.app)} ({place})"
            remedy = "A smaller learning rate or dp-sgd.party-clip-norm may keep it from diverging."
            raise FlowerAppError(f"{expected}, got NaN or ∞. {remedy}")
        return update

    def name_arrays(self, theta: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Return the arrays of a model `[d]` as the app gets them: a torch state dictionary."""
        return self.layout.split(theta)

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """Make the server's step along the average update; update the mean of later iterates."""
        return self.with_mean(state, self.server(state, average))


def _to_task(algorithm: FlowerAveraging) -> dict[str, Any]:
    settings = get_settings(algorithm, "layout", "settings", "server", "initial")
    return {
        "settings": {**settings, "app": get_public_name(algorithm.app)},
        "layout": algorithm.layout.to_json(),
        "config": dict(algorithm.settings),
        "server": asdict(algorithm.server),
    }


def _from_task(task: Mapping[str, Any], party: PartyResources) -> FlowerAveraging:
    """Build the algorithm from the result of `_to_task`. No code of the app runs here."""
    check_keys(task, "settings", "layout", "config", "server")
    named = decode_dataclass(
        FlowerAveraging,
        task["settings"],
        layout=ArrayLayout.from_json(task["layout"]),
        settings=_parse_settings(task["config"]),
        server=decode_dataclass(ServerStep, task["server"]),
        initial=None,
    )
    if named.app not in party.own_models:  # its name would import and run it
        expected = "Expected a Flower app that the party's policy lists in models"
        raise DecodingError(f"{expected}, got {format_received(named.app)}.")
    if min(named.parties, named.rounds) < 1 or not 0 < named.norm < 2.0**60:
        raise DecodingError("Expected parties, rounds and norm above 0, got others.")
    return replace(named, app=party.own_models[named.app])


def _parse_settings(value: Any) -> dict[str, Setting]:
    if not isinstance(value, Mapping) or len(value) > _MAX_SETTINGS:
        raise DecodingError(f"Expected at most {_MAX_SETTINGS} settings of the app, got others.")
    for name, setting in value.items():
        decode_value(str, name, "config")
        kind = type(setting)
        if kind not in (bool, int, float, str):
            expected = "Expected texts, numbers and true or false as settings of the app"
            raise DecodingError(f"{expected}, got {format_received(setting)}.")
        decode_value(kind, setting, "config")
    return dict(value)


def _parse_size(task: Mapping[str, Any]) -> tuple[str, int]:
    settings = task.get("settings")
    app = settings.get("app") if isinstance(settings, Mapping) else None
    name = decode_value(str, app, "settings.app")
    return name, ArrayLayout.from_json(task.get("layout")).dimension


def _check(algorithm: FlowerAveraging, plan: ReleasePlan) -> None:
    """Refuse an app whose code is not the same here. It runs only once a round is charged.

    Raises Declined.
    """
    name = get_public_name(algorithm.app)
    with decline_errors(Reason.MODEL, FlowerAppError):
        found = compute_app_digest(algorithm.app)
    if found != algorithm.digest:
        expected = f"{name} with the server's digest {format_received(algorithm.digest[:12])}"
        remedy = "Server and parties need the same version of the app's code."
        raise Declined(Reason.MODEL, f"Expected {expected}, got {found[:12]!r} here. {remedy}")


SPEC = AlgorithmSpec(
    title="federated averaging of a Flower app",
    to_task=_to_task,
    from_task=_from_task,
    parse_size=_parse_size,
    check=_check,
)
