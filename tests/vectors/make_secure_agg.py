"""Writes the known answers of secure aggregation: `python tests/vectors/make_secure_agg.py`.

They say what another implementation must give and what it must refuse; everything is hexadecimal.
Files change only with the protocol's version: `tests/secure_agg/test_messages.py` compares.

Encapsulation takes no seed, so ciphertexts are read from the files that are there, and the secrets
are decapsulated again; one that was made for a key which is no longer there is made anew.
"""

# ruff: noqa: E402
from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from parley.secure_agg.encoding import FixedPoint
from parley.secure_agg.interface import DropStage
from parley.secure_agg.mask_expansion import add_masks
from parley.secure_agg.mask_graph import (
    compute_commitments_digest,
    compute_nonce_commitment,
    derive_nonce,
)
from parley.secure_agg.messages import split_kem_items
from parley.secure_agg.pair_keys import (
    PairKeyComputer,
    apply_pad,
    compute_ciphertext_id,
    compute_confirmation_tag,
    compute_transcript,
    derive_direction_keys,
    derive_edge_keys,
    derive_mask_key,
    derive_pair_base,
    derive_pair_chain,
)
from parley.secure_agg.pairwise_party import MaskingParty
from parley.secure_agg.pairwise_server import MaskingServer
from parley.secure_agg.primitives import (
    agree,
    decapsulate,
    derive_kem_public_key,
    derive_public_key,
    derive_signing_public_key,
    encapsulate,
    expand_seed,
)
from parley.secure_agg.protocol_parameters import ProtocolRequirements, RunParameters
from parley.secure_agg.shamir import split

KEY = bytes(range(32))


def masks() -> list[dict]:
    rows = []
    for bits in (16, 32, 64):
        mask = np.zeros(70_000 * 32 // bits, dtype=f"uint{bits}")
        add_masks(mask, [KEY], [])
        raw = mask.astype(mask.dtype.newbyteorder("<")).tobytes()
        rows.append({
            "key": KEY.hex(), "ring_bits": bits, "words": len(mask),
            "first_16_bytes": raw[:16].hex(),
            "16_bytes_at_262144": raw[262144:262160].hex(), "last_16_bytes": raw[-16:].hex(),
        })  # fmt: skip
    return rows


def encoding() -> dict:
    values = [0.0, 0.3, -0.3, 1.0, -1.0, 0.001953125, 0.005859375, -0.001953125]
    grid = {bits: FixedPoint(scale_bits=8, ring_bits=bits, bound=1.0) for bits in (16, 32, 64)}
    return {
        "scale_bits": 8, "bound": 1.0, "values": values,
        "encoded": {str(b): g.encode(np.array([values]))[0].tolist() for b, g in grid.items()},
        "bad": {"not a number": "nan", "infinite": "inf", "out of range": 1.01},
    }  # fmt: skip


def sharing() -> dict:
    secret = bytes(range(64))
    shares = split(secret, 7, 4, expand_seed(b"vectors"))
    garbage = bytes(64)
    return {
        "field": "GF(256), x^8+x^4+x^3+x+1", "threshold": 4, "secret": secret.hex(),
        "shares": {str(x): share.hex() for x, share in enumerate(shares, start=1)},
        "bad": {
            "too few": {str(x): shares[x - 1].hex() for x in (1, 2, 3)},
            "one garbage": {"1": shares[0].hex(), "2": garbage.hex(), "3": shares[2].hex(),
                            "4": shares[3].hex()},
            "zero coordinate": {"0": shares[0].hex()},
            "unequal lengths": {"1": shares[0].hex(), "2": shares[1][:-1].hex()},
        },
    }  # fmt: skip


def keys() -> dict:
    one, other, fingerprint = KEY, bytes(range(32, 64)), bytes(range(64, 96))
    salt = compute_transcript(
        fingerprint, KEY, (0, derive_public_key(one)), (1, derive_public_key(other))
    )
    (chain,) = PairKeyComputer().agree_pair_secrets(one, [(derive_public_key(other), salt)])
    following, base, envelope = derive_edge_keys(chain, 1)
    return {
        "private": [one.hex(), other.hex()],
        "public": [derive_public_key(one).hex(), derive_public_key(other).hex()],
        "fingerprint": fingerprint.hex(), "roster": KEY.hex(), "transcript": salt.hex(),
        "chain_1": chain.hex(), "chain_2": following.hex(),
        "base_1": base.hex(), "envelope_1": envelope.hex(),
        "plan_digest": KEY.hex(),
        "mask_key_1": derive_mask_key(base, KEY).hex(), "bad": {"weak key": bytes(32).hex()},
    }  # fmt: skip


def rejected(seed: bytes, ciphertext: bytes) -> bytes:
    """What ML-KEM-768 gives for a ciphertext that was not made for this key (FIPS 203, Alg. 18)."""
    return hashlib.shake_256(seed[32:] + ciphertext).digest(32)


class Recorded(PairKeyComputer):
    """Takes the ciphertexts of an earlier run, in order, as far as they are for these keys."""

    def __init__(self, ciphertexts: list[bytes]) -> None:
        self.left = list(ciphertexts)
        self.seeds: dict[bytes, bytes] = {}

    def encapsulate(self, public: bytes) -> tuple[bytes, bytes]:
        if self.left:
            ciphertext, seed = self.left.pop(0), self.seeds[public]
            (secret,) = decapsulate(seed, [ciphertext])
            if secret != rejected(seed, ciphertext):
                return secret, ciphertext
        return encapsulate(public)


def _known(name: str) -> dict:
    path = HERE / "secure_agg" / name
    return json.loads(path.read_text()) if path.exists() else {}


def hybrid() -> dict:
    """One pair's secrets from both directions, and what must not give them."""
    fingerprint, seeds = bytes(range(64, 96)), [bytes(range(64)), bytes(range(100, 164))]
    private = [KEY, bytes(range(32, 64))]
    keys = [
        derive_public_key(x) + derive_kem_public_key(s) for x, s in zip(private, seeds, strict=True)
    ]
    pair = compute_transcript(fingerprint, KEY, (3, keys[0]), (8, keys[1]))
    (exchanged,) = agree(private[0], [(keys[1][:32], pair)])
    known = _known("hybrid.json")
    work = Recorded([bytes.fromhex(known[way]["ciphertext"]) for way in ("3 to 8", "8 to 3")]
                    if known else [])  # fmt: skip
    work.seeds = {key[32:]: seed for key, seed in zip(keys, seeds, strict=True)}
    made, ways = {}, {}
    for sender, receiver, key in ((3, 8, keys[1]), (8, 3, keys[0])):
        secret, ciphertext = work.encapsulate(key[32:])
        where = compute_ciphertext_id(pair, sender, receiver, ciphertext)
        made[sender] = derive_direction_keys(exchanged, secret, where)
        ways[f"{sender} to {receiver}"] = {
            "ciphertext": ciphertext.hex(), "secret": secret.hex(), "place": where.hex(),
            "tag": compute_confirmation_tag(secret, where).hex(),
            **{name: value.hex() for name, value in made[sender]._asdict().items()},
        }  # fmt: skip
    low, high = made[3], made[8]
    ciphertext = bytes.fromhex(ways["3 to 8"]["ciphertext"])
    flipped = bytes([ciphertext[0] ^ 1]) + ciphertext[1:]
    return {
        "private_x25519": [x.hex() for x in private], "seeds_ml_kem_768": [s.hex() for s in seeds],
        "public": [key.hex() for key in keys], "index": [3, 8],
        "fingerprint": fingerprint.hex(), "roster": KEY.hex(), "transcript": pair.hex(),
        "exchanged": exchanged.hex(), **ways,
        "base_1": derive_pair_base(low.half, high.half).hex(),
        "chain_2": derive_pair_chain(low.root, high.root).hex(),
        "half of 8 as it is sent": apply_pad(high.half, low.pad).hex(),
        "bad": {
            "one bit of the ciphertext flipped": {
                "ciphertext": flipped.hex(), "secret": rejected(seeds[1], flipped).hex(),
            },
            "for the other key": {
                "ciphertext": ways["8 to 3"]["ciphertext"],
                "secret": rejected(seeds[1], bytes.fromhex(ways["8 to 3"]["ciphertext"])).hex(),
            },
            "truncated": {"ciphertext": ciphertext[:-1].hex()},
            "extended": {"ciphertext": ciphertext.hex() + "00"},
        },
    }  # fmt: skip


def whole_run(
    name: str,
    *,
    count: int = 5,
    absent: tuple[int, ...] = (),
    silent: tuple[int, ...] = (),
) -> dict:
    """A whole run: every message, in order, and what the server learns.

    Who is absent sends no vector; who is silent confirms and does not reveal.
    """
    run = RunParameters.choose(
        parties=count, min_survivors=3, run_id=b"known answers ru", corrupt=0, rounds=9
    )
    entropy = expand_seed(b"known answers")
    private = [entropy(32) for _ in range(count)]
    earlier = [
        bytes.fromhex(m["bytes"]) for m in _known(name).get("messages", ())
        if m["kind"] == "encapsulated"
    ]  # fmt: skip
    work = Recorded([c for message in earlier for c, _ in split_kem_items(message[18:])])
    identities = tuple(derive_signing_public_key(key) for key in private)
    policy = ProtocolRequirements(identities=identities, min_survivors=3, corrupt=0)
    parties = [
        MaskingParty(
            run=run, policy=policy, index=i, identity=private[i], entropy=entropy, work=work
        )
        for i in range(count)
    ]
    server = MaskingServer(run=run, identities=identities)
    vectors = np.arange(4 * count, dtype=np.uint32).reshape(count, 4)
    messages: list[dict] = []

    def log(kind: str, who: int, data: bytes) -> bytes:
        messages.append({"kind": kind, "party": who, "bytes": bytes(data).hex()})
        return bytes(data)

    for i, party in enumerate(parties):
        server.handle_advertise(log("advertise", i, party.advertise()))
    work.seeds = {derive_kem_public_key(p.state.kem_seed): p.state.kem_seed for p in parties}
    for i, message in server.build_rosters().items():
        answer = parties[i].handle_roster(log("roster", i, message))
        server.handle_encapsulated(log("encapsulated", i, answer))
    for i, party in enumerate(parties):
        server.handle_shares(log("shares", i, party.prepare(1)))
    plans = server.plan(1, dimension=4, context=b"c" * 32)
    for i, plan in plans.items():
        ciphertexts = server.get_ciphertexts(i)
        if ciphertexts:
            parties[i].handle_ciphertexts(log("ciphertexts", i, ciphertexts))
        log("roundstart", i, plan)
        if i not in absent:
            masked = parties[i].handle_plan(plan, vectors[i], context=b"c" * 32)
            server.handle_vector(log("vector", i, bytes(masked)))
    listed = server.close()
    for i in server.survivors:
        server.handle_confirm(
            log("confirm", i, parties[i].handle_survivors(log("survivors", i, listed)))
        )
    for i, message in server.build_confirmations().items():
        if i in silent:
            continue
        answer = parties[i].handle_confirmations(log("confirmations", i, message))
        server.handle_reveal(log("reveal", i, answer))
    survivors = server.survivors
    return {
        "parameters": run.to_bytes().hex(), "entropy_seed": b"known answers".hex(),
        "dropped": {
            **{str(i): DropStage.BEFORE_VECTOR.value for i in absent},
            **{str(i): DropStage.BEFORE_UNMASK.value for i in silent},
        },
        "vectors": vectors.tolist(), "messages": messages, "survivors": list(survivors),
        "total": server.finish().tolist(),
    }  # fmt: skip


def bad_messages(good: dict) -> list[dict]:
    """By failure class, made from the transcript's own messages."""
    by_kind = {m["kind"]: bytes.fromhex(m["bytes"]) for m in good["messages"]}
    of_party_0 = by_kind["shares"][:1], by_kind["shares"][2:10] + bytes(8)
    by_kind["complaint"] = of_party_0[0] + b"\x0d" + of_party_0[1] + b"\x80"
    by_kind["evidence"] = of_party_0[0] + b"\x0e" + of_party_0[1] + bytes(64)
    rows = []
    for kind, data in by_kind.items():
        for why, bad in {
            "truncated": data[:-1] if kind != "vector" else data[:-3],
            "header only in part": data[:17],
            "extended": data + b"\x00",
            "another version": b"\x01" + data[1:],
            "another kind": data[:1] + bytes([data[1] % 14 + 1]) + data[2:],
            "another run": data[:2] + bytes(8) + data[10:],
            "another kind of sender": data[:10] + b"\x00\x00\x00\x07" + data[14:],
            "empty": b"",
        }.items():
            rows.append({"kind": kind, "why": why, "bytes": bad.hex()})
    return rows


def graph() -> dict:
    """A set-up of a graph that is not complete: nonces, their commitments, who is near whom."""
    nonces = {i: derive_nonce(bytes([i]) * 32, roster=KEY, count=7) for i in range(101)}
    given = {i: compute_nonce_commitment(i, nonce) for i, nonce in nonces.items()}
    run = RunParameters.choose(
        parties=101, min_survivors=60, run_id=b"known answers ru", commitments=given
    )
    joined = run.with_beacon(nonces)
    return {
        "roster": KEY.hex(), "count": 7, "nonce_of_party_1": nonces[1].hex(),
        "commitment_of_party_1": given[1].hex(),
        "commitments": compute_commitments_digest(given).hex(),
        "parameters": run.to_bytes().hex(), "fingerprint": run.fingerprint.hex(),
        "degree": run.degree, "threshold": run.threshold, "confirmations": run.confirmations,
        "beacon": joined.beacon.hex(), "neighbours_of_party_0": joined.neighbours[0].tolist(),
    }  # fmt: skip


def build() -> dict[str, object]:
    """Contents by file name."""
    both = whole_run("run_hybrid.json", count=4, absent=(3,), silent=(1,))
    return {
        "encoding.json": encoding(),
        "masks.json": masks(),
        "shamir.json": sharing(),
        "keys.json": keys(),
        "hybrid.json": hybrid(),
        "graph.json": graph(),
        "run_hybrid.json": both,
        "bad_messages.json": {
            "parameters": both["parameters"], "messages": bad_messages(both),
        },
    }  # fmt: skip


if __name__ == "__main__":
    for name, content in build().items():
        path = HERE / "secure_agg" / name
        path.write_text(json.dumps(content, indent=1) + "\n")
        print(path.relative_to(HERE))
