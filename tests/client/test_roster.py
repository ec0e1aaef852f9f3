import pytest

from client.roster import (
    RosterError,
    RosterParty,
    load_deployment,
    new_deployment,
    render_deployment,
)


def parties(*changes):
    made = [
        {"name": f"site-{i}", "identity": bytes([i]) * 32, "node": f"ecdsa-sha2-nistp384 AA{i} x"}
        for i in range(3)
    ]
    for index, change in changes:
        made[index] |= change
    return [RosterParty(**party) for party in made]


def test_a_roster_comes_back_from_its_file(tmp_path):
    deployment = new_deployment(server_address="hub.example:9092", parties=parties())
    path = tmp_path / "deployment.toml"
    path.write_text(render_deployment(deployment))
    assert load_deployment(path) == deployment
    assert new_deployment(server_address="", parties=parties()).id != deployment.id


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"name": "site-0"}, "name"),
        ({"identity": bytes([0]) * 32}, "identity"),
        ({"node": "ecdsa-sha2-nistp384 AA0 another-comment"}, "node key"),
    ],
)
def test_two_parties_with_one_key_or_name_are_refused(change, what):
    with pytest.raises(RosterError, match=f"different {what} .* site-0"):
        new_deployment(server_address="", parties=parties((1, change)))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("version = 1", "version = 2", "version"),
        ("beacon = ", "beakon = ", "beacon|beakon"),
        ('identity = "0', 'identity = "X', "identity"),
        ('name = "site-0"', 'name = "../site-0"', "name"),
        ("version = 1", "version = ", "TOML"),
    ],
)
def test_a_file_that_is_no_roster_is_refused_by_the_key(tmp_path, old, new, said):
    path = tmp_path / "deployment.toml"
    text = render_deployment(new_deployment(server_address="", parties=parties()))
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(RosterError, match=said):
        load_deployment(path)


def test_a_roster_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RosterError, match=r"gone\.toml"):
        load_deployment(tmp_path / "gone.toml")
