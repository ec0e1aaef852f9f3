"""What can be watched of a server: metrics, health, events; and that no record moves any of it."""

from __future__ import annotations

import http.client
import json
import re
import threading

import grpc
import numpy as np
import pytest
from attending import NAMES, Consortium, until

from parley.deploy.event_log import format_json_line
from parley.deploy.process_errors import ProcessError
from parley.deploy.stream import grpc_options
from parley.deploy.stream.grpc_client import build_call_metadata
from parley.deploy.stream.grpc_options import (
    HELLO,
    MAX_READS,
    build_channel_options,
    load_channel_credentials,
)
from parley.deploy.stream.metrics_server import MetricsServer, Monitor
from parley.deploy.stream.operator_service import ASK
from parley.privacy.accounting.rounding import format_rounded_up

SAMPLE = re.compile(r"([a-z_]+)(\{[^{}]*\})? (\+Inf|[0-9.e+-]+)")


def get(port, path, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def figures(text):
    """Every sample by name and labels; each family is described once, before its samples."""
    found, known = {}, set()
    for line in text.splitlines():
        if line.startswith("# "):
            _, what, name, _ = line.split(" ", 3)
            assert what == ("TYPE" if name in known else "HELP")
            known.add(name)
            continue
        name, labels, value = SAMPLE.fullmatch(line).groups()
        assert name in known
        assert found.setdefault((name, labels or ""), value) is value
    return found


def watched(root, change=lambda records: records):
    """A run of three parties: what was to be seen of it, with its own name taken out."""
    world = Consortium(root)
    for name in NAMES:
        path = world.home(name) / "records.npz"
        held = change(dict(np.load(path)))
        np.savez(path, **held)
    try:
        serving = world.serve()
        world.everybody()
        with MetricsServer(serving.monitor, port=0) as pages:
            _, before = get(pages.port, "/metrics")
            run = world.submit()
            assert serving.run_next().state == "complete"
            status, health = get(pages.port, "/healthz")
            assert (status, json.loads(health)["status"]) == (200, "ok")
            _, after = get(pages.port, "/metrics")
            for path, method in (("/", "GET"), ("/metrics/", "GET"), ("/metrics", "POST")):
                assert get(pages.port, path, method)[0] in {404, 501}
            with (
                pytest.raises(ProcessError, match=r"Choose another port .* --monitor PORT"),
                MetricsServer(serving.monitor, port=pages.port),
            ):
                pass
        events = [json.loads(format_json_line(line)) for line in world.said]
    finally:
        world.close()
    summary = json.loads((world.runs / run / "summary.json").read_text())
    return (
        figures(before),
        figures(after.replace(run, "RUN")),
        json.loads(json.dumps(events).replace(run, "RUN")),
        summary,
    )


def without_seconds(seen):
    before, after, events, _ = seen
    keep = {key: value for key, value in after.items() if "seconds" not in key[0]}
    online = [event for event in events if event["event"].startswith("party-")]
    others = [
        {name: said for name, said in event.items() if name not in {"time", "seconds"}}
        for event in events
        if event not in online
    ]
    return before, keep, others


def other_records(held):
    return {**held, "features": -held["features"] / 2, "labels": held["labels"][::-1]}


def test_what_is_watched_is_what_the_protocol_shows_and_no_record_moves_it(tmp_path):
    seen = watched(tmp_path / "one")
    before, after, events, summary = seen
    assert before[("parley_party_online", '{party="north"}')] == "1.0"
    assert ("parley_round", '{run="RUN"}') not in before
    assert after[("parley_round", '{run="RUN"}')] == "3.0"
    assert after[("parley_rounds_total", "")] == "3.0"
    assert after[("parley_runs", '{state="complete"}')] == "1.0"
    assert float(after[("parley_exchange_seconds_total", '{exchange="3"}')]) > 0
    assert float(after[("parley_bytes_total", '{direction="up"}')]) > 0
    labels = '{delta="1e-05",neighbouring="replace-one",run="RUN",unit="record"}'
    (guarantee,) = summary["guarantees"]
    assert after[("parley_run_epsilon_spent", labels)] == str(
        float(format_rounded_up(guarantee["epsilon"]))
    )
    assert after[("parley_run_epsilon_budget", labels)] == "1.0"
    rounds = [event for event in events if event["event"] == "round-committed"]
    assert [(each["round"], each["answered"]) for each in rounds] == [(1, 3), (2, 3), (3, 3)]
    assert events[-1]["event"] == "run-ended"
    assert events[-1]["state"] == "complete"
    assert without_seconds(watched(tmp_path / "other", other_records)) == without_seconds(seen)


def test_a_name_that_was_rebound_to_this_machine_is_shown_no_figures(consortium):
    with MetricsServer(consortium.serve().monitor, port=0) as pages:
        for host, status in (
            (f"127.0.0.1:{pages.port}", 200),
            ("localhost:9999", 200),  # through a tunnel
            ("evil.test", 421),
            (f"evil.test:{pages.port}", 421),
            ("127.0.0.1.evil.test", 421),
        ):
            for path in ("/metrics", "/healthz"):
                connection = http.client.HTTPConnection("127.0.0.1", pages.port, timeout=10)
                connection.request("GET", path, headers={"Host": host})
                assert connection.getresponse().status == status


def test_a_port_that_hangs_is_not_healthy(world, monkeypatch):
    port = world.open()._port
    with monkeypatch.context() as patch:
        patch.setattr("parley.deploy.stream.metrics_server._ANSWERS_S", 0.1)
        monitor = Monitor(port, queue=None, say=None)
        assert monitor.check_health()[0]
        patch.setattr(port, "post", lambda *_: None)
        well, said = monitor.check_health()
    assert (well, said["status"]) == (False, "the port does not respond")


# --- requests that never come --------------------------------------------------------------------

STATUS = b'{"ask":"status"}'


def channel(world, folder, name):
    return grpc.secure_channel(
        world.address, load_channel_credentials(folder, name), build_channel_options()
    )


def unending(never):
    return (b"" for _ in iter(never.wait, True))


def test_no_caller_holds_connections_by_asking_nothing(consortium, monkeypatch):
    monkeypatch.setattr(grpc_options, "REQUEST_S", 0.2)
    consortium.serve()
    never = threading.Event()
    with channel(consortium, consortium.root / "operator", "operator") as opened:
        with pytest.raises(grpc.RpcError) as refused:
            opened.stream_unary(ASK)(unending(never), timeout=20)
        assert "Expected a request within" in refused.value.details()
        assert b"parties" in opened.unary_unary(ASK)(STATUS, timeout=5)
    never.set()


def test_of_requests_that_a_caller_never_ends_only_a_few_are_in_memory(consortium):
    # Before: each of 8 calls of each of a thousand connections, 1 MiB; 300 of them took 2.8 GB.
    consortium.serve()
    never, operator = threading.Event(), (consortium.root / "operator", "operator")
    said = build_call_metadata(consortium.deployment.id)
    with channel(consortium, *operator) as first, channel(consortium, *operator) as second:
        begun = [
            first.stream_unary(ASK).future(unending(never), timeout=20) for _ in range(MAX_READS)
        ]
        until(lambda: refused(second) is grpc.StatusCode.RESOURCE_EXHAUSTED)
        with channel(consortium, consortium.root / "server", "operator") as other:  # has its own
            assert b"parties" in other.unary_unary(ASK)(STATUS, timeout=5)
        assert not any(call.done() for call in begun)
    # Of a party, who only wants to know whether it is known, nothing is read.
    with channel(consortium, consortium.home(1), "party") as party:
        assert party.stream_unary(HELLO)(unending(never), timeout=20, metadata=said) == b"south"
    never.set()


def refused(channel):
    try:
        channel.unary_unary(ASK)(STATUS, timeout=5)
    except grpc.RpcError as error:
        return error.code()
    return None
