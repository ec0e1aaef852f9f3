"""The known answers in `tests/vectors/secure_agg`: another implementation could use them."""

import hashlib
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from parley.secure_agg.edges import (
    confirmation,
    direction,
    pair_base,
    pair_chain,
    place,
    transcript,
    under_pad,
)
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.messages import Message, decode, encode
from parley.secure_agg.parameters import RunParameters
from parley.secure_agg.primitives import agree, decapsulate, kem_public, public_key
from parley.secure_agg.shamir import combine

FOLDER = Path(__file__).parent.parent / "vectors" / "secure_agg"
KINDS = {kind.__name__.lower(): kind for kind in Message.__subclasses__()}


def _load(name):
    return json.loads((FOLDER / name).read_text())


def test_the_files_are_what_the_protocol_gives():
    path = FOLDER.parent / "make_secure_agg.py"
    spec = importlib.util.spec_from_file_location("make_secure_agg", path)
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    built = maker.build()
    assert sorted(built) == sorted(p.name for p in FOLDER.glob("*.json"))
    for name, content in built.items():
        assert json.loads(json.dumps(content)) == _load(name), name


def test_sharing():
    known = _load("shamir.json")
    shares = {int(x): bytes.fromhex(share) for x, share in known["shares"].items()}
    secret = bytes.fromhex(known["secret"])
    assert combine({x: shares[x] for x in (2, 3, 5, 7)}) == secret
    assert combine({x: shares[x] for x in (1, 4, 5, 6)}) == secret
    for why, bad in known["bad"].items():
        given = {int(x): bytes.fromhex(share) for x, share in bad.items()}
        if why in ("too few", "one garbage"):
            assert combine(given) != secret
        else:
            with pytest.raises(ValueError, match="Expected shares of one length"):
                combine(given)


def _rejected(seed, ciphertext):
    return hashlib.shake_256(seed[32:] + ciphertext).digest(32)


def test_the_secrets_of_a_hybrid_pair():
    known = _load("hybrid.json")
    private, seeds, publics, index = (
        known["private_x25519"], known["seeds_ml_kem_768"], known["public"], known["index"],
    )  # fmt: skip
    private, seeds, publics = ([bytes.fromhex(x) for x in row] for row in (private, seeds, publics))
    assert [public_key(x) + kem_public(s) for x, s in zip(private, seeds, strict=True)] == publics
    ends = list(zip(index, publics, strict=True))
    fingerprint, roster = (bytes.fromhex(known[name]) for name in ("fingerprint", "roster"))
    for one, other in (ends, ends[::-1]):
        assert transcript(fingerprint, roster, one, other).hex() == known["transcript"]
    pair = bytes.fromhex(known["transcript"])
    for mine, other in ((0, 1), (1, 0)):
        assert agree(private[mine], [(publics[other][:32], pair)])[0].hex() == known["exchanged"]
    made = {}
    for sender, receiver, seed in ((*index, seeds[1]), (*index[::-1], seeds[0])):
        way = known[f"{sender} to {receiver}"]
        ciphertext = bytes.fromhex(way["ciphertext"])
        (secret,) = decapsulate(seed, [ciphertext])
        assert secret.hex() == way["secret"]
        assert secret != _rejected(seed, ciphertext)  # it is a ciphertext for this key
        where = place(pair, sender, receiver, ciphertext)
        assert (where.hex(), confirmation(secret, where).hex()) == (way["place"], way["tag"])
        made[sender] = direction(bytes.fromhex(known["exchanged"]), secret, where)
        for name, value in made[sender]._asdict().items():
            assert value.hex() == way[name]
    low, high = made[index[0]], made[index[1]]
    assert pair_base(low.half, high.half).hex() == known["base_1"]
    assert pair_chain(low.root, high.root).hex() == known["chain_2"]
    assert under_pad(high.half, low.pad).hex() == known["half of 8 as it is sent"]
    assert under_pad(bytes.fromhex(known["half of 8 as it is sent"]), low.pad) == high.half


def test_what_is_no_ciphertext_for_a_key_gives_another_secret_or_none():
    known = _load("hybrid.json")
    seed = bytes.fromhex(known["seeds_ml_kem_768"][1])
    for why, bad in known["bad"].items():
        ciphertext = bytes.fromhex(bad["ciphertext"])
        if "secret" not in bad:
            with pytest.raises(ValueError, match="ciphertext"):
                decapsulate(seed, [ciphertext])
            continue
        (secret,) = decapsulate(seed, [ciphertext])
        assert secret.hex() == bad["secret"], why
        assert secret == _rejected(seed, ciphertext)
        assert secret.hex() != known["3 to 8"]["secret"]


@pytest.mark.parametrize(
    "name",
    ["run_robust.json", "run_hybrid.json", "run_optimistic.json", "run_optimistic_hybrid.json"],
)
def test_every_message_of_a_known_run_decodes_and_encodes(name):
    known = _load(name)
    run = RunParameters.from_bytes(bytes.fromhex(known["parameters"]))
    for row in known["messages"]:
        data = bytes.fromhex(row["bytes"])
        assert encode(run, decode(run, data, KINDS[row["kind"]])) == data
    kept = np.array([known["vectors"][i] for i in known["survivors"]], dtype=np.uint32)
    assert known["total"] == np.add.reduce(kept, axis=0, dtype=np.uint32).tolist()


_BAD = _load("bad_messages.json")


@pytest.mark.parametrize("row", _BAD["messages"], ids=lambda r: f"{r['kind']}: {r['why']}")
def test_bad_messages_are_refused(row):
    run = RunParameters.from_bytes(bytes.fromhex(_BAD["parameters"]))
    with pytest.raises(RemoteProtocolError, match="Expected"):
        decode(run, bytes.fromhex(row["bytes"]), KINDS[row["kind"]])
