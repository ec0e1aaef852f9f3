"""The codec: one encoding each, nothing else accepted, and known answers for others to use."""

import hashlib
import importlib.util
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.secure_agg import messages
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.messages import (
    SERVER,
    Confirm,
    Message,
    Reveal,
    RoundShares,
    Survivors,
    Vector,
    decode,
    encode,
)
from parley.secure_agg.pair_keys import (
    apply_pad,
    compute_ciphertext_id,
    compute_confirmation_tag,
    compute_transcript,
    derive_direction_keys,
    derive_pair_base,
    derive_pair_chain,
)
from parley.secure_agg.predicted_outcome import pack_mask, unpack_mask
from parley.secure_agg.primitives import (
    agree,
    decapsulate,
    derive_kem_public_key,
    derive_public_key,
)
from parley.secure_agg.protocol_parameters import RunParameters
from parley.secure_agg.shamir import combine

RUN = RunParameters.choose(parties=10, min_survivors=6, run_id=b"r" * 16, corrupt=0)
MASK = pack_mask(np.ones(10, dtype=bool))
NEAR = pack_mask(np.ones(9, dtype=bool))
UP = {"sender": 3, "round_number": 5}
DOWN = {"sender": SERVER, "round_number": 5}
MESSAGES = [
    messages.Advertise(
        sender=3, round_number=0, key=b"k" * 1216, nonce=b"n" * 32, signature=b"s" * 64
    ),
    messages.Nonces(sender=SERVER, round_number=0, committed=MASK, nonces=b"n" * 320),
    messages.Roster(sender=SERVER, round_number=0, present=MASK, entries=b"e" * 1312 * 9),
    messages.Encapsulated(sender=3, round_number=0, items=b"i" * 1104 * 9),
    messages.Ciphertexts(sender=SERVER, round_number=0, sent=NEAR, items=b"i" * 1104 * 9),
    messages.Complaint(sender=3, round_number=0, accused=NEAR),
    messages.Evidence(sender=3, round_number=0, seed=b"z" * 64),
    RoundShares(
        commitments=b"c" * 64, table=b"t" * 304, digests=b"d" * 288, envelopes=b"e" * 720, **UP
    ),
    messages.RoundStart(
        dimension=4, context=b"c" * 32, participants=MASK, envelopes=b"e" * 720, **DOWN
    ),
    Vector(payload=b"v" * 16, **UP),
    Survivors(survivors=MASK, **DOWN),
    Confirm(signature=b"s" * 64, **UP),
    messages.Confirmations(signers=MASK, signatures=b"s" * 640, **DOWN),
    Reveal(seed=b"s" * 32, opened=NEAR, secrets=b"x" * 288, **UP),
]
KINDS = [type(message) for message in MESSAGES]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_every_message_survives_its_encoding_and_has_only_one(message):
    data = encode(RUN, message)
    decoded = decode(RUN, data, type(message))
    assert encode(RUN, decoded) == data
    assert {k: bytes(v) if isinstance(v, memoryview) else v for k, v in vars(decoded).items()} == (
        vars(message)
    )


def test_sizes_are_held():
    assert set(KINDS) == set(messages.Message.__subclasses__())
    sizes = {type(m).__name__: len(encode(RUN, m)) for m in MESSAGES}
    by_name = {type(m).__name__: m for m in MESSAGES}
    assert sizes["Advertise"] == 160 + 1184 - 14  # X25519 alone: 146
    assert sizes["Encapsulated"] == 18 + 9 * (1088 + 16)
    assert len(encode(RUN, by_name["Vector"])) - 18 == 4 * 4  # 4 bytes a parameter at b = 32
    assert len(by_name["RoundShares"].envelopes) / 9 <= 90  # a share
    assert len(by_name["Reveal"].secrets) / 9 <= 40  # a revealed secret


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_every_truncation_extension_and_other_header_is_refused(message):
    data = encode(RUN, message)
    kind = type(message)
    for length in range(len(data)):
        if kind is Vector and length > 18 and (length - 18) % 4 == 0:
            continue  # a shorter vector; the server knows the dimension
        if kind.most(RUN):
            try:  # fewer whole items; the state machines know how many
                assert len(encode(RUN, decode(RUN, data[:length], kind))) == length
            except RemoteProtocolError:
                continue
        else:
            with pytest.raises(RemoteProtocolError):
                decode(RUN, data[:length], kind)
    for wrong in (data + b"\x00", b"\x01" + data[1:], data[:1] + b"\x63" + data[2:]):
        with pytest.raises(RemoteProtocolError):
            decode(RUN, wrong, kind)
    with pytest.raises(RemoteProtocolError, match="another run"):
        decode(RUN, data[:2] + bytes(8) + data[10:], kind)
    for other in KINDS:
        if other is not kind:
            with pytest.raises(RemoteProtocolError, match="Expected kind"):
                decode(RUN, data, other)


@pytest.mark.parametrize(
    "wrong", [None, 7, "text", [1, 2], {}, 1.5, np.zeros(40)], ids=lambda w: type(w).__name__
)
def test_what_is_not_bytes_is_refused(wrong):
    with pytest.raises(RemoteProtocolError, match="Expected bytes, got"):
        decode(RUN, wrong, Survivors)


@settings(max_examples=400, deadline=None)
@given(
    message=st.sampled_from(MESSAGES),
    edits=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=6),
    cut=st.integers(-40, 40),
)
def test_edited_messages_are_refused_or_decode_to_what_they_say(message, edits, cut):
    data = bytearray(encode(RUN, message))
    for at, value in edits:
        data[at % len(data)] = value
    data = bytes(data[:cut]) if cut < 0 else bytes(data) + bytes(cut)
    try:
        decoded = decode(RUN, data, type(message))
    except RemoteProtocolError:
        return
    assert encode(RUN, decoded) == data


def test_senders_outside_the_roster_and_wrong_rounds_are_refused():
    for message in (
        Confirm(sender=10, round_number=5, signature=b"s" * 64),
        Confirm(sender=SERVER, round_number=5, signature=b"s" * 64),
        Survivors(sender=3, round_number=5, survivors=MASK),
        Confirm(sender=3, round_number=0, signature=b"s" * 64),
        messages.Roster(sender=SERVER, round_number=1, present=MASK, entries=b""),
    ):
        with pytest.raises(RemoteProtocolError, match="Expected"):
            decode(RUN, encode(RUN, message), type(message))


def test_a_huge_message_is_refused_before_it_is_copied():
    shares = next(m for m in MESSAGES if isinstance(m, RoundShares))
    data = encode(RUN, shares) + bytes(144 * 10**5)
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError, match="at most 9 after"):
        decode(RUN, data, RoundShares)
    assert tracemalloc.get_traced_memory()[1] < len(data) / 100
    tracemalloc.stop()


@given(flags=st.lists(st.booleans(), min_size=1, max_size=70))
def test_masks_of_parties_survive_and_spare_bits_are_refused(flags):
    packed = pack_mask(np.array(flags))
    assert unpack_mask(packed, len(flags)).tolist() == flags
    if len(flags) % 8:
        with pytest.raises(RemoteProtocolError, match="spare bits"):
            unpack_mask(packed[:-1] + bytes([packed[-1] | 1]), len(flags))
    with pytest.raises(RemoteProtocolError, match="Expected a mask"):
        unpack_mask(packed + b"\x00", len(flags))


def test_secrets_are_not_in_a_message_s_repr():
    secret = [m for m in MESSAGES if isinstance(m, Reveal | Vector | messages.Evidence)]
    text = "".join(map(repr, secret))
    assert not any(word in text for word in ("zzz", "sss", "xxx", "vvv"))


FOLDER = Path(__file__).parent.parent / "vectors" / "secure_agg"
BY_NAME = {
    kind.__name__.replace("RoundShares", "Shares").lower(): kind
    for kind in Message.__subclasses__()
}


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
    assert [
        derive_public_key(x) + derive_kem_public_key(s) for x, s in zip(private, seeds, strict=True)
    ] == publics
    ends = list(zip(index, publics, strict=True))
    fingerprint, roster = (bytes.fromhex(known[name]) for name in ("fingerprint", "roster"))
    for one, other in (ends, ends[::-1]):
        assert compute_transcript(fingerprint, roster, one, other).hex() == known["transcript"]
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
        where = compute_ciphertext_id(pair, sender, receiver, ciphertext)
        assert (where.hex(), compute_confirmation_tag(secret, where).hex()) == (
            way["place"],
            way["tag"],
        )
        made[sender] = derive_direction_keys(bytes.fromhex(known["exchanged"]), secret, where)
        for name, value in made[sender]._asdict().items():
            assert value.hex() == way[name]
    low, high = made[index[0]], made[index[1]]
    assert derive_pair_base(low.half, high.half).hex() == known["base_1"]
    assert derive_pair_chain(low.root, high.root).hex() == known["chain_2"]
    assert apply_pad(high.half, low.pad).hex() == known["half of 8 as it is sent"]
    assert apply_pad(bytes.fromhex(known["half of 8 as it is sent"]), low.pad) == high.half


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


def test_every_message_of_a_known_run_decodes_and_encodes():
    known = _load("run_hybrid.json")
    run = RunParameters.from_bytes(bytes.fromhex(known["parameters"]))
    for row in known["messages"]:
        data = bytes.fromhex(row["bytes"])
        assert encode(run, decode(run, data, BY_NAME[row["kind"]])) == data
    kept = np.array([known["vectors"][i] for i in known["survivors"]], dtype=np.uint32)
    assert known["total"] == np.add.reduce(kept, axis=0, dtype=np.uint32).tolist()


_BAD = _load("bad_messages.json")


@pytest.mark.parametrize("row", _BAD["messages"], ids=lambda r: f"{r['kind']}: {r['why']}")
def test_bad_messages_are_refused(row):
    run = RunParameters.from_bytes(bytes.fromhex(_BAD["parameters"]))
    with pytest.raises(RemoteProtocolError, match="Expected"):
        decode(run, bytes.fromhex(row["bytes"]), BY_NAME[row["kind"]])
