"""An answer that is lost on its way: the party repeats it, and computes and draws nothing again."""

from agreements import NETWORK

from parley.client.contract.message_frames import encode_frame
from parley.client.party import round_contribution
from parley.privacy.ledger.ledger import Ledger

REPEATED = (b'"kind":"roster"', b'"kind":"prepare"', b'"kind":"round"', b'"kind":"survivors"')


def test_a_repeated_request_gets_the_same_bytes_from_another_process(tmp_path, wired, monkeypatch):
    world = wired.World(tmp_path, overrides=NETWORK)
    assert str(world.plan.primary.noise_point) == "party"
    drawn, compute = [], round_contribution._compute_encoded
    monkeypatch.setattr(
        round_contribution, "_compute_encoded", lambda *given: drawn.append(1) or compute(*given)
    )
    once, seen = world.raw, set()

    def twice(party, request):
        first = once(party, request)
        kind = first.kind and next((k for k in (*REPEATED, b"confirmations") if k in request), None)
        if kind:
            assert first.head["status"] == "ok"
            assert once(party, request) == first
            seen.add(kind)
        return first

    monkeypatch.setattr(world, "raw", twice)
    world.join()
    world.vectors(1)
    world.opened()
    world.prepare(3)
    assert seen == {*REPEATED, b"confirmations"}
    assert len(drawn) == world.count
    for folder in world.folders:
        with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
            assert [entry.entry.index for entry in ledger.list_entries()] == [1]


def test_another_request_for_an_answered_round_is_refused(tmp_path, wired):
    world = wired.World(tmp_path, overrides=NETWORK)
    world.join()
    request = world.round_requests(1)[0]
    answer = wired.ok(world.raw(0, encode_frame(request)))
    message, state, ciphertexts = request.blobs
    changed = type(request)(
        kind="round",
        head=request.head,
        blobs=(message[:-1] + bytes([message[-1] ^ 1]), state, ciphertexts),
    )
    assert wired.reason(world.raw(0, encode_frame(changed))) == "protocol"
    assert world.raw(0, encode_frame(request)) == answer


def test_only_the_last_answer_is_kept(tmp_path, wired):
    world = wired.World(tmp_path)
    world.join()
    requests = world.round_requests(1)
    for party, request in requests.items():
        answer = wired.ok(world.raw(party, encode_frame(request)))
        world.server.handle_vector(answer.blobs[0])
        world.server.handle_shares(answer.blobs[1], number=2)
    world.opened()
    assert wired.reason(world.raw(0, encode_frame(requests[0]))) == "protocol"


def test_a_party_whose_vector_was_lost_is_in_the_next_round(tmp_path, wired):
    # Its shares of round 2 went with the vector of round 1 that the server never got.
    world = wired.World(tmp_path)
    world.join()
    lost = {i: world.raw(i, encode_frame(r)) for i, r in world.round_requests(1).items()}
    world.prepare(2)
    for party, answer in lost.items():
        assert world.server._round_shares[2][party].envelopes in answer.blobs[1]
    answers = world.vectors(2)
    assert [answer.head["status"] for answer in answers.values()] == ["ok"] * world.count
    assert (world.opened() == world.plain_sum()).all()
