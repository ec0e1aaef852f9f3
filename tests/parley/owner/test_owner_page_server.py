"""The owner's page: what it shows, by whom it lets itself be asked, in a real browser too."""

import functools
import http.client
import http.server
import json
import threading
from dataclasses import replace

import pytest
from asked import left_waiting
from browser import CHROMIUM, DRIVER, ENTER, TAB, driven
from commands import invoked
from scenes import Scene

from parley.client.contract.assumptions import BLOCK_MEMBERSHIP, OWN_FEATURE_MAP
from parley.exit_status import get_exit_status
from parley.owner.approval_requests import open_party
from parley.owner.owner_page_server import serve_page


@pytest.fixture
def homes(tmp_path):
    overrides = ("run.approval-timeout=0", "privacy.epsilon=0.5")
    return left_waiting(Scene(tmp_path / "scene", overrides=overrides))


@pytest.fixture
def page(homes):
    with serve_page(homes[0]) as served:
        threading.Thread(target=served.serve, daemon=True).start()
        yield served
        served.shutdown()


@pytest.fixture
def elsewhere(tmp_path):
    """Another server of this machine, whose pages may do anything."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("<title>another</title>")
    pages = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), pages) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served
        served.shutdown()


def asked(page, method="GET", path="/status", body=None, **headers):
    """Status and content of an answer; a header of None is left out."""
    given = {"X-Parley-Token": page.token, "Content-Type": "application/json"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", page.server_port, timeout=20)
    connection.putrequest(method, path, skip_host=True)
    content = b"" if body is None else json.dumps(body).encode()
    for name, value in {"Host": page.host, "Content-Length": len(content), **given}.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(content)
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    return reply.status, text


def decisions(home):
    with open_party(home) as party:
        return [each.accepted for each in party.ledger.list_decisions()]


def waits(page):
    return json.loads(asked(page)[1])["waits"]


def test_a_forged_request_decides_nothing(page, homes):
    (offer,) = waits(page)
    yes = {"name": offer["name"], "accepted": True, "reason": ""}
    forged = {
        "no token": (403, {"X_Parley_Token": None}),
        "another token": (403, {"X_Parley_Token": "A" * 43}),
        "no ASCII": (403, {"X_Parley_Token": "\xe9"}),
        "another origin": (403, {"Origin": "http://evil.test"}),
        "another port": (403, {"Origin": f"http://127.0.0.1:{page.server_port + 1}"}),
        "a sandboxed frame": (403, {"Origin": "null"}),
        "a name that was rebound": (421, {"Host": f"evil.test:{page.server_port}"}),
        "a name for this machine": (421, {"Host": f"localhost:{page.server_port}"}),
        "no host": (421, {"Host": None}),
        "a form": (415, {"Content_Type": "text/plain"}),
        "too much": (413, {"Content_Length": "5000"}),
        "no length": (413, {"Content_Length": None}),
    }
    for what, (status, headers) in forged.items():
        assert asked(page, "POST", "/decide", yes, **headers) == (status, b""), what
    for body in ({**yes, "accepted": 1}, {**yes, "more": 1}, [], {**yes, "name": None}):
        assert asked(page, "POST", "/decide", body) == (400, b"")
    assert asked(page, "GET", "/decide", yes)[0] == 404
    assert asked(page, "OPTIONS", "/decide")[0] == 501  # what a browser asks before another origin
    assert asked(page, "GET", "/status", X_Parley_Token=None) == (403, b"")
    assert asked(page, "GET", "/../party.toml")[0] == 404
    assert decisions(homes[0]) == []
    assert asked(page, "POST", "/decide", yes)[0] == 200
    assert decisions(homes[0]) == [True]


def test_what_is_decided_twice_or_changed_meanwhile_is_said(page, homes):
    (offer,) = waits(page)

    def say(name=offer["name"], *, accepted):
        body = {"name": name, "accepted": accepted, "reason": "why"}
        return json.loads(asked(page, "POST", "/decide", body)[1])

    assert "look again" in say("0" * 10, accepted=True)["error"]
    assert "is approved" in say(accepted=True)["said"]
    assert "is approved" in say(accepted=True)["said"]
    assert "is refused" in say(accepted=False)["said"]
    assert decisions(homes[0]) == [True, False]
    assert waits(page) == []


def test_the_commands_say_what_the_page_says(homes):
    def parley(*words, status=0):
        command = ["owner", *map(str, words)]
        done = invoked(*command, env={"COLUMNS": "200"})
        assert done.exit_code == status, done.output
        return " ".join(done.output.split())

    said = json.loads(invoked("owner", "status", str(homes[0]), "--json").stdout)
    (offer,) = said["waits"]
    name, rates = offer["name"], offer["attackers"][0]["rows"]
    assert offer["price"].startswith("Approval spends ε = 0.5 per record of ")
    assert [row[0] for row in rates[1:]] == ["one record"] + [
        f"{count} records together" for count in (2, 5, 10)
    ]
    pending = parley("pending", homes[0])
    words = [offer["price"], *(each for fact in offer["facts"][:3] for each in fact), rates[1][1]]
    assert all(" ".join(each.split()) in pending for each in (*words, f"accept {homes[0]} {name}"))
    assert offer["price"] in parley("status", homes[0])
    assert "is refused" in parley("refuse", homes[0], name, "--reason", "not these data")
    assert "Nothing waits" in parley("pending", homes[0])
    assert "no: not these data" in parley("status", homes[0])


def test_an_owner_reads_all_that_the_guarantee_rests_on(homes):
    with open_party(homes[0]) as party:
        (plain,) = party.list_pending()
        (stage,) = plain.stages
        plan = replace(stage.plan, blocks=("2024",))
        other = replace(stage, plan=plan, features={"name": "mine.py:Map"})
        said = [
            {
                fact.name: fact.value
                for fact in party.build_request(replace(plain, stages=(each,))).facts
            }
            for each in (stage, other)
        ]
    assert [each["Assumptions"] for each in said] == [
        "nothing",
        f"{OWN_FEATURE_MAP}; {BLOCK_MEMBERSHIP}",
    ]


def test_the_columns_of_a_query_are_named(homes):
    (homes[0] / "s.toml").write_text(
        '[columns]\nage = { kind = "numeric", range = [0, 100] }\n'
        'sick = { kind = "label", positive = "yes", negative = "no" }\n'
    )
    of = {"path": "", "prepared": "", "data_schema": "s.toml"}
    of |= {"source": "sqlite:///w.db", "query": "SELECT * FROM visits"}
    with open_party(homes[0]) as party:
        (asked,) = party.list_pending()
        raw = party.policy.get_dataset(asked.dataset).model_copy(update=of)
        consent = party.policy.model_copy(update={"data": {asked.dataset: raw}})
        facts = dict(fact[:2] for fact in replace(party, policy=consent).build_request(asked).facts)
    assert facts["Input"].endswith("columns: age, and the label sick")


def test_a_folder_that_nobody_asked_yet_is_shown_and_one_of_no_party_is_named(tmp_path):
    home = Scene(tmp_path / "scene").homes[0]
    shown = invoked("owner", "status", home)
    assert "Nothing waits for your approval." in shown.output
    assert (home / "ledger.sqlite").stat().st_mode & 0o777 == 0o600
    wrong = invoked("owner", "status", tmp_path / "nowhere")
    assert get_exit_status(wrong.exception) == 2
    assert "Expected a party's folder at" in str(wrong.exception)


BROWSER = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and its driver")


@BROWSER
@pytest.mark.heavy
def test_in_a_browser_an_owner_reads_and_decides_by_keyboard_alone(page, homes, tmp_path):
    with driven(tmp_path / "profile") as browser:
        for width, scheme, media in (
            (1100, "light", "screen"),
            (390, "dark", "screen"),
            (800, "light", "print"),
        ):
            browser.shown_as(width=width, scheme=scheme, media=media)
            browser.open(page.address)
            browser.until(
                "Approval spends ε = 0.5 per record of breast-cancer: ε = 0.5 left before"
            )
            wide = "return document.documentElement.scrollWidth - innerWidth"
            assert browser.run(wide) <= 0, (width, scheme, media)
        buttons = "return getComputedStyle(document.querySelector('.say')).display"
        assert browser.run(buttons) == "none"  # on paper nothing is to be pressed
        browser.shown_as(width=390)
        assert browser.run(buttons) == "flex"
        order = []
        for _ in range(4):
            browser.press(TAB)
            order.append(browser.focused())
        assert [each.split()[0] for each in order] == ["BUTTON", "INPUT", "BUTTON", "BUTTON"]
        assert order[0] == "BUTTON Approve: spend ε = 0.5 per record"
        browser.open(page.address)
        browser.until("Approval spends")
        assert page.token not in browser.run("return location.href")
        browser.press(TAB, ENTER)
        browser.until("is approved: this party takes part")
        assert browser.focused().startswith("P ")  # what was said is read out
        browser.until("No pending approvals.")
        assert browser.logged() == []
    assert decisions(homes[0]) == [True]


@BROWSER
@pytest.mark.heavy
def test_a_page_of_another_origin_in_the_same_browser_decides_nothing(
    page, elsewhere, homes, tmp_path
):
    (offer,) = waits(page)
    yes = json.dumps({"name": offer["name"], "accepted": True, "reason": ""})
    tries = """
        const [at, token, yes] = arguments, said = [];
        const ask = async (headers, mode) => {
            try {
                const how = {method: "POST", body: yes, headers, mode};
                const reply = await fetch(at + "/decide", how);
                said.push(reply.type + reply.status);
            } catch (error) { said.push("no"); }
        };
        await ask({"Content-Type": "application/json"}, "cors");
        await ask({"Content-Type": "application/json", "X-Parley-Token": token}, "cors");
        await ask({}, "no-cors");
        try { said.push(await (await fetch(at + "/status")).text()); }
        catch (error) { said.push("no"); }
        return said;
    """
    # Even one that knows the token, which nothing shows it.
    with driven(tmp_path / "profile") as browser:
        at = f"http://{page.host}"
        browser.open("data:text/html,<title>another</title>")
        assert set(browser.run(tries, at, page.token, yes)) <= {"no", "opaque0"}
        browser.open(f"http://127.0.0.1:{elsewhere.server_port}/")  # another port of this machine
        assert set(browser.run(tries, at, page.token, yes)) <= {"no", "opaque0"}
        browser.open(f"http://rebound.test:{page.server_port}/#{page.token}")
        assert "421" in browser.source()
        browser.open("data:text/html,<iframe></iframe>")
        browser.run("document.querySelector('iframe').src = arguments[0]", page.address)
        assert browser.run("return document.querySelector('iframe').contentDocument") is None
        assert decisions(homes[0]) == []
        browser.open(page.address)  # at home the same request is heard
        assert browser.run(tries, at, page.token, yes)[1] == "basic200"
    assert decisions(homes[0]) == [True]


def test_the_script_takes_the_token_out_of_the_address_before_anything_else(page):
    read, cleared = page.html.index(b"location.hash"), page.html.index(b"history.replaceState(null")
    assert read < cleared < page.html.index(b"function")


def test_no_name_from_elsewhere_is_more_than_text_on_the_page(page):
    script = page.html.decode()
    assert "innerHTML" not in script
    assert "http" not in script.replace("http-equiv", "")
    assert "'unsafe" not in page.policy
    assert "default-src 'none'" in page.policy
