import pytest

from parley.client.contract.roster import (
    Deployment,
    RosterError,
    RosterParty,
    load_deployment,
    render_deployment,
)


def parties(*changes):
    made = [{"name": f"site-{i}", "identity": bytes([i]) * 32} for i in range(3)]
    for index, change in changes:
        made[index] |= change
    return tuple(RosterParty(**party) for party in made)


def test_a_roster_comes_back_from_its_file(tmp_path):
    deployment = Deployment(server_address="hub.example:9092", parties=parties())
    path = tmp_path / "deployment.toml"
    path.write_text(render_deployment(deployment))
    assert load_deployment(path) == deployment
    assert deployment.spoken in path.read_text()


def test_the_id_is_a_digest_of_all_names_and_identities_in_any_order():
    first = Deployment(server_address="hub.example:9092", parties=parties())
    again = Deployment(server_address="", parties=parties()[::-1])
    assert again.id == first.id
    changed = [
        Deployment(server_address="", parties=made)
        for made in (
            parties()[:2],
            parties((1, {"name": "site-9"})),
            parties((1, {"identity": bytes([9]) * 32})),
            parties((0, {"identity": bytes([1]) * 32}), (1, {"identity": bytes([0]) * 32})),
        )
    ]
    assert len({first.id, *(deployment.id for deployment in changed)}) == 5
    assert len({first.spoken, *(deployment.spoken for deployment in changed)}) == 5


def test_the_spoken_id_is_the_whole_id():
    deployment = Deployment(server_address="", parties=parties())
    groups = deployment.spoken.split()
    assert len(groups) == 16
    assert bytes.fromhex(deployment.id) == b"".join(int(g).to_bytes(2, "big") for g in groups)


def test_new_keys_are_no_new_consortium():
    first = Deployment(server_address="", parties=parties())
    rotated = Deployment(server_address="", parties=parties((1, {"identity": b"r" * 32})))
    assert first.consortium == rotated.consortium != first.id


@pytest.mark.parametrize(
    "change",
    [
        {"name": 'x"\n[[party]]\nname = "y'},
        {"name": "site-0\n"},
        {"name": "-rf"},
        {"identity": b"short"},
    ],
)
def test_what_is_no_name_or_key_is_refused_wherever_it_comes_from(change):
    with pytest.raises(RosterError, match="Expected"):
        parties((1, change))


@pytest.mark.parametrize("address", ['a:1"\nversion = 1', "a:1\n", "host", "a b:1", "http://a:1"])
def test_an_address_is_host_and_port(address):
    with pytest.raises(RosterError, match="host:port"):
        Deployment(server_address=address, parties=parties())


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"name": "site-0"}, "name"),
        ({"identity": bytes([0]) * 32}, "identity"),
    ],
)
def test_two_parties_with_one_key_or_name_are_refused(change, what):
    with pytest.raises(RosterError, match=f"different {what} .* site-0"):
        Deployment(server_address="", parties=parties((1, change)))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("version = 2", "version = 1", "version"),
        ("server = ", "sever = ", "server|sever"),
        ('identity = "0', 'identity = "X', "identity"),
        ('name = "site-0"', 'name = "../site-0"', "name"),
        ("version = 2", "version = ", "TOML"),
        ("01" * 32, "0f" * 32, "changed by hand"),  # nobody keeps an id with another identity
    ],
)
def test_a_file_that_is_no_roster_is_refused_by_the_key(tmp_path, old, new, said):
    path = tmp_path / "deployment.toml"
    text = render_deployment(Deployment(server_address="", parties=parties()))
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(RosterError, match=said):
        load_deployment(path)


def test_a_roster_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RosterError, match=r"gone\.toml"):
        load_deployment(tmp_path / "gone.toml")
