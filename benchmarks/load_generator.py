"""Answer a server's requests as many parties at once, at a small part of their cost.

`benchmarks/real_parties.py server` starts it to measure only a server. Each stream has its own
certificate and keys, and each message passes all of the server's checks. Three things make a
message cheap. A share is a digest of its dealer and holder, because the server combines no shares
as long as no party drops out. Pair masks are left out, because they cancel. Envelopes and
ciphertexts are random bytes, because only a party could open them.
"""

from __future__ import annotations

import asyncio
import os
from functools import cache
from hashlib import sha256
from pathlib import Path

import grpc
import numpy as np

from parley.client.contract.message_frames import (
    MAX_REQUEST_BYTES,
    MessageFrame,
    build_response,
    decode_frame,
    encode_frame,
)
from parley.client.contract.roster import Deployment, load_deployment
from parley.client.party.party_service import PartyService
from parley.deploy.stream.grpc_client import build_call_metadata
from parley.deploy.stream.grpc_options import (
    ATTEND,
    build_channel_options,
    load_channel_credentials,
)
from parley.deploy.stream.stream_framing import HEARTBEAT, PROBE, FrameReader, split_into_chunks
from parley.secure_agg.encoding import get_ring_dtype
from parley.secure_agg.mask_graph import compute_nonce_commitment, compute_roster_digest
from parley.secure_agg.messages import (
    Advertise,
    Confirm,
    Encapsulated,
    Nonces,
    Reveal,
    RoundShares,
    RoundStart,
    Survivors,
    Vector,
    decode,
    encode,
    encode_header,
)
from parley.secure_agg.pair_keys import with_revealed_beacon
from parley.secure_agg.party_masking import MaskJob
from parley.secure_agg.predicted_outcome import (
    ENVELOPE_BYTES,
    KEM_ITEM_BYTES,
    SECRET_BYTES,
    TAG_BYTES,
    pack_mask,
    unpack_mask,
)
from parley.secure_agg.primitives import (
    KEM_SEED_BYTES,
    compute_share_digest,
    derive_kem_public_key,
    derive_public_key,
    sign,
)
from parley.secure_agg.protocol_digests import (
    compute_commitment,
    compute_plan_digest,
    digest_advertisement,
    digest_survivors,
)
from parley.secure_agg.protocol_parameters import RunParameters, is_before_pairing


@cache
def _load_run(parameters: bytes) -> RunParameters:
    return RunParameters.from_bytes(parameters)


@cache
def _load_graph(run: RunParameters, nonces: bytes) -> tuple[RunParameters, list[list[int]]]:
    """Return the run with its beacon, and each party's neighbours."""
    if nonces:
        message = decode(run, nonces, Nonces)
        run = with_revealed_beacon(run, message.committed, message.nonces)
    return run, run.neighbours.tolist()


def _deal(number: int, kind: bytes, dealer: int, holder: int) -> bytes:
    """Return a share that dealer and holder compute alike, in any process."""
    return sha256(b"%d %s %d %d" % (number, kind, dealer, holder)).digest()


class GeneratedParty:
    """One party's side of the messages. `facts` is the answer of a real party to `inspect`."""

    def __init__(self, index: int, identity: bytes, deployment: Deployment, facts: dict) -> None:
        self.index, self._identity, self._facts = index, identity, facts
        self._roster = compute_roster_digest(deployment.identities, bytes.fromhex(deployment.id))
        self._setups = 0

    def answer(self, request: bytes) -> bytes:
        """Return the answer to any request of a run without disturbances."""
        frame = decode_frame(request)
        return encode_frame(getattr(self, f"_answer_{frame.kind}")(frame))

    def _answer_inspect(self, _: MessageFrame) -> MessageFrame:
        return build_response({**self._facts, "party": self.index})

    def _answer_finish(self, _: MessageFrame) -> MessageFrame:
        return build_response()

    def _answer_commit(self, _: MessageFrame) -> MessageFrame:
        self._setups += 1
        return build_response(blobs=(compute_nonce_commitment(self.index, self._nonce),))

    @property
    def _nonce(self) -> bytes:
        return sha256(self._identity + bytes([self._setups])).digest()

    def _answer_join(self, frame: MessageFrame) -> MessageFrame:
        self._run = _load_run(bytes.fromhex(frame.head["parameters"]))
        key = derive_public_key(os.urandom(32)) + derive_kem_public_key(os.urandom(KEM_SEED_BYTES))
        nonce = self._nonce if self._run.sparse else bytes(32)
        statement = digest_advertisement(
            self._run.fingerprint, self._roster, self.index, key, nonce
        )
        signature = sign(self._identity, statement)
        message = Advertise(
            sender=self.index, round_number=0, key=key, nonce=nonce, signature=signature
        )
        return build_response(blobs=(encode(self._run, message),))

    def _answer_roster(self, frame: MessageFrame) -> MessageFrame:
        self._run, graph = _load_graph(self._run, frame.blobs[1])
        self._neighbours = graph[self.index]
        items = os.urandom(KEM_ITEM_BYTES * len(self._neighbours))
        message = Encapsulated(sender=self.index, round_number=0, items=items)
        shares = self._share(frame.head["prepare"])
        return build_response(blobs=(encode(self._run, message), shares))

    def _answer_prepare(self, frame: MessageFrame) -> MessageFrame:
        return build_response(blobs=(self._share(frame.head["prepare"]),))

    def _seed(self, number: int, kind: bytes) -> bytes:
        return sha256(b"%d %s" % (number, kind) + self._identity).digest()

    def _share(self, number: int) -> bytes:
        run, near = self._run, self._neighbours
        digests = [
            compute_share_digest(_deal(number, kind, self.index, j))
            for j in near
            for kind in (b"self", b"recovery")
        ]
        entry = SECRET_BYTES * (1 + is_before_pairing(number))
        message = RoundShares(
            sender=self.index,
            round_number=number,
            commitments=b"".join(
                compute_commitment(run, number, self.index, kind, self._seed(number, kind))
                for kind in (b"self", b"recovery")
            ),
            table=os.urandom(TAG_BYTES + entry * len(near)),
            digests=b"".join(digests),
            envelopes=os.urandom(ENVELOPE_BYTES * len(near)),
        )
        return encode(run, message)

    def _answer_round(self, frame: MessageFrame) -> MessageFrame:
        run, plan = self._run, decode(self._run, frame.blobs[0], RoundStart)
        number = self._number = plan.round_number
        self._plan = compute_plan_digest(run, plan)
        there = unpack_mask(plan.participants, run.parties)
        self._members = [j for j in self._neighbours if there[j]]
        halves = SECRET_BYTES * len(self._members) * is_before_pairing(number)
        job = MaskJob(
            encode_header(run, Vector.kind, self.index, number),
            np.zeros(plan.dimension, get_ring_dtype(run.ring_bits)),
            os.urandom(halves),
        )
        job.added_keys.append(self._seed(number, b"self"))
        return build_response(blobs=(bytes(job.run()), self._share(frame.head["prepare"])))

    def _answer_survivors(self, frame: MessageFrame) -> MessageFrame:
        self._survivors = decode(self._run, frame.blobs[0], Survivors).survivors
        signature = sign(self._identity, digest_survivors(self._plan, self._survivors))
        message = Confirm(sender=self.index, round_number=self._number, signature=signature)
        return build_response(blobs=(encode(self._run, message),))

    def _answer_confirmations(self, _: MessageFrame) -> MessageFrame:
        run, number = self._run, self._number
        survived = unpack_mask(self._survivors, run.parties)
        opened = np.zeros(run.degree, dtype=bool)
        opened[: len(self._members)] = True
        secrets = []
        for j in self._members:
            if survived[j]:
                secrets.append(_deal(number, b"self", j, self.index))
            else:
                secrets += [bytes(SECRET_BYTES), _deal(number, b"recovery", j, self.index)]
        message = Reveal(
            sender=self.index,
            round_number=number,
            seed=self._seed(number, b"self"),
            opened=pack_mask(opened),
            secrets=b"".join(secrets),
        )
        return build_response(blobs=(encode(run, message),))


def load_facts(folder: Path, request: bytes) -> dict:
    """Return what the real party in a folder answers to an `inspect` request."""
    service = PartyService.open(folder)
    try:
        head = decode_frame(service.handle(request)).head
    finally:
        service.close()
    return {key: value for key, value in head.items() if key not in {"version", "status"}}


async def _attend(home: Path, index: int, deployment: Deployment, facts: dict) -> None:
    identity = bytes.fromhex((home / "identity.key").read_text().strip())
    party: GeneratedParty | None = None
    credentials = load_channel_credentials(home, "party")
    address = deployment.server_address
    async with grpc.aio.secure_channel(address, credentials, build_channel_options()) as channel:
        call = channel.stream_stream(ATTEND)(metadata=build_call_metadata(deployment.id))
        reader = FrameReader(lambda _: MAX_REQUEST_BYTES)
        while (message := await call.read()) is not grpc.aio.EOF:
            whole = reader.take(message)
            if whole is None:
                continue
            reply = b""
            if whole.number not in (PROBE, HEARTBEAT):
                if party is None:
                    if not facts:
                        facts |= load_facts(home, whole.frame)
                    party = GeneratedParty(index, identity, deployment, facts)
                reply = party.answer(whole.frame)
            for chunk in split_into_chunks(whole.number, reply):
                await call.write(chunk)


async def generate_load(homes: dict[int, Path]) -> None:
    """Attend as the parties in these folders, by index, until the server ends all streams."""
    deployment = load_deployment(next(iter(homes.values())) / "deployment.toml")
    facts: dict = {}
    attending = [_attend(home, index, deployment, facts) for index, home in homes.items()]
    ends = await asyncio.gather(*attending, return_exceptions=True)
    for end in {repr(end) for end in ends if not isinstance(end, grpc.aio.AioRpcError | None)}:
        print(end, flush=True)
