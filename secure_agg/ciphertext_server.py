"""The server's part in a hybrid run: it passes ciphertexts on and settles who lied about one.

What follows from a message is in `Delivery`; here bytes become messages, and parties are blamed.
"""

from __future__ import annotations

from collections.abc import Callable

from parley.secure_agg.codec import decode
from parley.secure_agg.delivery import Delivery
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.messages import AnyMessage, Bytes, Complaint, Encapsulated, Evidence
from parley.secure_agg.open_sum import ServerPhase
from parley.secure_agg.parameters import RunParameters


class CiphertextServer:
    """Ciphertexts and disputes of one run; `Server` adds rounds."""

    run: RunParameters
    phase: ServerPhase
    blamed: set[int]
    _delivery: Delivery | None

    @property
    def delivery(self) -> Delivery:
        """The ciphertexts, from READY on.

        Raises:
            RemoteProtocolError: no roster yet, or a run that has none.
        """
        if self._delivery is None:
            raise RemoteProtocolError(
                f"Expected ciphertexts in a hybrid run, once there is a roster, got them in "
                f"{self.run.key_exchange} while {self.phase.name}."
            )
        return self._delivery

    def on_encapsulated(self, data: Bytes) -> int:
        """READY, before the first round: keep a party's ciphertexts.

        Raises:
            RemoteProtocolError: another time, a second one, or not one for each neighbour.
        """
        message = decode(self.run, data, Encapsulated)
        self.delivery.take(message)
        return message.sender

    def ciphertexts(self, party: int) -> bytes:
        """Any phase after JOINING: what goes with whatever a party is sent until it answers with a
        vector, with shares of a later round, or with a complaint; empty afterwards."""
        return self._delivery.of(party) if self._delivery is not None else b""

    def on_complaint(self, data: Bytes) -> int:
        """Any phase after JOINING: a party says whose ciphertexts do not match.

        Raises:
            RemoteProtocolError: not about ciphertexts that it was given, or a second one.
        """
        return self._judged(self.delivery.accuse, decode(self.run, data, Complaint))

    @property
    def to_prove(self) -> tuple[int, ...]:
        """Whom to ask, with `Delivery.certificate`, for Evidence of what counting does not decide.

        Nobody before a list was confirmed, and nobody who could not answer by it.
        """
        return self._delivery.to_prove if self._delivery is not None else ()

    def on_evidence(self, data: Bytes) -> int:
        """Any phase after JOINING: who lied about a ciphertext is blamed.

        Raises:
            RemoteProtocolError: nothing to prove, or not the seed of the sender's key.
        """
        return self._judged(self.delivery.judge, decode(self.run, data, Evidence))

    def _judged(self, judge: Callable[[AnyMessage], None], message: AnyMessage) -> int:
        judge(message)
        self.blamed |= self.delivery.blamed
        return message.sender
