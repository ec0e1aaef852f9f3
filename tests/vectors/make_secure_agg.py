"""Writes the known answers of secure aggregation: `python tests/vectors/make_secure_agg.py`.

They say what another implementation must give and what it must refuse; everything is hexadecimal.
Files change only with the protocol's version: `tests/secure_agg/test_vectors.py` compares.
"""

# ruff: noqa: E402
from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from parley.secure_agg.beacon import commitment, commitments_digest, next_nonce
from parley.secure_agg.edges import EdgeWork, mask_key, pair_salt
from parley.secure_agg.encoding import FixedPoint
from parley.secure_agg.interface import DropoutPolicy, DropStage
from parley.secure_agg.masks import expand
from parley.secure_agg.pairwise_party import Party
from parley.secure_agg.pairwise_server import Server
from parley.secure_agg.parameters import Policy, RunParameters
from parley.secure_agg.primitives import expand_seed, public_key, signing_public
from parley.secure_agg.shamir import split

KEY = bytes(range(32))


def masks() -> list[dict]:
    rows = []
    for bits in (16, 32, 64):
        mask = expand(KEY, 70_000 * 32 // bits, np.dtype(f"uint{bits}"))
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
    salt = pair_salt(fingerprint, public_key(one), public_key(other))
    (chain,) = EdgeWork().pair_secrets(one, [(public_key(other), salt)])
    following, base, envelope = EdgeWork().edge_keys(chain, 1)
    return {
        "private": [one.hex(), other.hex()],
        "public": [public_key(one).hex(), public_key(other).hex()],
        "fingerprint": fingerprint.hex(), "salt": salt.hex(), "chain_1": chain.hex(),
        "chain_2": following.hex(), "base_1": base.hex(), "envelope_1": envelope.hex(),
        "plan_digest": KEY.hex(),
        "mask_key_1": mask_key(base, KEY).hex(), "bad": {"weak key": bytes(32).hex()},
    }  # fmt: skip


def transcript(dropouts: DropoutPolicy, absent: tuple[int, ...]) -> dict:
    """A whole run of five parties: every message, in order, and what the server learns."""
    run = RunParameters.choose(
        parties=5, min_survivors=3, run_id=b"known answers ru", corrupt=0, rounds=9,
        dropouts=dropouts,
    )  # fmt: skip
    entropy = expand_seed(b"known answers")
    private = [entropy(32) for _ in range(5)]
    identities = tuple(signing_public(key) for key in private)
    policy = Policy(
        identities=identities, min_survivors=3, corrupt=0, confirm_survivors=run.confirm_survivors
    )
    parties = [
        Party(run=run, policy=policy, index=i, identity=private[i], entropy=entropy)
        for i in range(5)
    ]
    server = Server(run=run, identities=identities)
    vectors = np.arange(20, dtype=np.uint32).reshape(5, 4)
    messages: list[dict] = []

    def log(kind: str, who: int, data: bytes) -> bytes:
        messages.append({"kind": kind, "party": who, "bytes": bytes(data).hex()})
        return bytes(data)

    for i, party in enumerate(parties):
        server.on_advertise(log("advertise", i, party.advertise()))
    for i, message in server.roster().items():
        parties[i].on_roster(log("roster", i, message))
    if dropouts is DropoutPolicy.ROBUST:
        for i, party in enumerate(parties):
            server.on_shares(log("shares", i, party.prepare(1)))
    plans = server.plan(1, dimension=4, context=b"c" * 32)
    for i, plan in plans.items():
        log("roundstart", i, plan)
        if i not in absent:
            masked = parties[i].on_plan(plan, vectors[i], context=b"c" * 32)
            server.on_vector(log("vector", i, bytes(masked)))
    if dropouts is DropoutPolicy.ROBUST:
        listed = server.close()
        for i in server.survivors:
            server.on_confirm(
                log("confirm", i, parties[i].on_survivors(log("survivors", i, listed)))
            )
        for i, message in server.confirmations().items():
            answer = parties[i].on_confirmations(log("confirmations", i, message))
            server.on_reveal(log("reveal", i, answer))
    survivors = server.survivors
    return {
        "parameters": run.to_bytes().hex(), "entropy_seed": b"known answers".hex(),
        "dropped": {str(i): DropStage.BEFORE_VECTOR.value for i in absent},
        "vectors": vectors.tolist(), "messages": messages, "survivors": list(survivors),
        "total": server.finish().tolist(),
    }  # fmt: skip


def bad_messages(good: dict) -> list[dict]:
    """By failure class, made from the transcript's own messages."""
    by_kind = {m["kind"]: bytes.fromhex(m["bytes"]) for m in good["messages"]}
    rows = []
    for kind, data in by_kind.items():
        for why, bad in {
            "truncated": data[:-1] if kind != "vector" else data[:-3],
            "header only in part": data[:17],
            "extended": data + b"\x00",
            "another version": b"\x01" + data[1:],
            "another kind": data[:1] + bytes([data[1] % 9 + 1]) + data[2:],
            "another run": data[:2] + bytes(8) + data[10:],
            "another kind of sender": data[:10] + b"\x00\x00\x00\x07" + data[14:],
            "empty": b"",
        }.items():
            rows.append({"kind": kind, "why": why, "bytes": bad.hex()})
    return rows


def graph() -> dict:
    """A set-up of a graph that is not complete: nonces, their commitments, who is near whom."""
    nonces = {i: next_nonce(bytes([i]) * 32, roster=KEY, count=7) for i in range(101)}
    given = {i: commitment(i, nonce) for i, nonce in nonces.items()}
    run = RunParameters.choose(
        parties=101, min_survivors=60, run_id=b"known answers ru", commitments=given
    )
    joined = run.with_beacon(nonces)
    return {
        "roster": KEY.hex(), "count": 7, "nonce_of_party_1": nonces[1].hex(),
        "commitment_of_party_1": given[1].hex(), "commitments": commitments_digest(given).hex(),
        "parameters": run.to_bytes().hex(), "fingerprint": run.fingerprint.hex(),
        "degree": run.degree, "threshold": run.threshold, "confirmations": run.confirmations,
        "beacon": joined.beacon.hex(), "neighbours_of_party_0": joined.neighbours[0].tolist(),
    }  # fmt: skip


def build() -> dict[str, object]:
    """Contents by file name."""
    robust = transcript(DropoutPolicy.ROBUST, (3,))
    return {
        "encoding.json": encoding(),
        "masks.json": masks(),
        "shamir.json": sharing(),
        "keys.json": keys(),
        "graph.json": graph(),
        "run_robust.json": robust,
        "run_optimistic.json": transcript(DropoutPolicy.OPTIMISTIC, ()),
        "bad_messages.json": {
            "parameters": robust["parameters"], "messages": bad_messages(robust),
        },
    }  # fmt: skip


if __name__ == "__main__":
    for name, content in build().items():
        path = HERE / "secure_agg" / name
        path.write_text(json.dumps(content, indent=1) + "\n")
        print(path.relative_to(HERE))
