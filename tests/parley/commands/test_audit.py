"""`parley audit` and its calculators: what they print, write and return, and what they refuse."""

import json
from dataclasses import replace

import pytest
from commands import invoked

import parley
from parley.privacy.mechanisms.gaussian import Gaussian

QUICK = [
    *("--trials", "600", "--seed", "4"),
    *("--set", "algorithm.rounds=1", "--set", "privacy.noise-point=server"),
]
READERS = "record, replace-one, against anyone who sees what was released"


def call(*words):
    return invoked("audit", *words)


def test_an_audit_says_claim_bounds_and_verdict_and_opens_no_ledger(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call(*QUICK, "--out", "found")
    assert result.exit_code == 0, result.output
    assert f"ε = 1 at δ = 1e-05 ({READERS}), gaussian" in result.output
    assert "not refuted. Simulation only" in result.output
    assert {path.name for path in tmp_path.iterdir()} == {"found"}
    written = json.loads((tmp_path / "found/audit.json").read_text())
    (audit,) = written["audits"]
    assert written["verdict"] == audit["verdict"] == "not-refuted"
    assert audit["simulation_only"] is True
    assert {each["method"] for each in audit["results"]} == {"pair", "mu", "factor", "white"}
    for each in audit["results"]:
        if each["epsilon_lower"] is not None and each["ceiling"] is not None:
            assert each["epsilon_lower"] <= each["ceiling"]
    page = (tmp_path / "found/audit.html").read_text()
    assert "<svg" in page
    assert "<script" not in page
    assert "default-src 'none'" in page
    assert "ε\xa0=\xa01 at δ\xa0=\xa010⁻⁵" in page


def test_a_refuted_claim_is_exit_status_four(monkeypatch):
    drawn = Gaussian.draw_many
    monkeypatch.setattr(
        Gaussian,
        "draw_many",
        lambda self, count, stream: drawn(replace(self, sigma=self.sigma / 5), count, stream),
    )
    result = call(*QUICK, "--json")
    assert result.exit_code == 4
    found = json.loads(result.stdout)
    assert found["verdict"] == "refuted"
    assert any(each["confirmed"] for each in found["audits"][0]["results"])


def test_trials_too_few_to_refute_say_their_ceiling():
    result = call(*QUICK[2:], "--trials", "40", "--set", "privacy.epsilon=8")
    assert "cannot refute this claim. Increase --trials." in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trials", "many"], "'many'"),
        (["--trials", "3"], "trials >= 20, got 3"),
        (["--confidence", "0.4"], "(0.5, 1)"),
        (["--attack", "party"], "fits this job (dirac)"),
        (["--attack", "crowd,magic"], "'magic'"),
        (["--method", "profile"], "'profile'"),
        (["--set", "run.engine=processes"], "never part of a deployment"),
        (["nowhere.toml"], "nowhere.toml"),
    ],
)
def test_what_says_nothing_is_refused(words, said):
    result = call(*QUICK, *words) if words[0].startswith("--") else call(*words, *QUICK)
    assert result.exit_code != 0
    assert said in result.output + str(result.exception)


def test_the_name_of_a_command_goes_before_a_job_file():
    assert "pair" in call("bound", "--help").output
    assert "--trials" in call("job", "--help").output
    assert "bound" in call("--help").output


QUERIES = """
[session]
data = "nowhere-*.csv"
schema = "people.schema.toml"
epsilon = 1.0
{session}

[[query]]
query = "count"
by = ["sex"]
epsilon = 0.5

[[query]]
query = "mean"
column = "age"
batch = "both"
epsilon = 0.5
[[query]]
query = "sum"
column = "age"
batch = "both"
"""
PEOPLE = """
[columns]
age = { kind = "numeric", range = [0, 100] }
sex = { kind = "categorical", categories = ["f", "m"] }
sick = { kind = "label", positive = 1, negative = 0 }
"""


def test_a_file_of_queries_is_audited_batch_by_batch_without_its_data(tmp_path):
    (tmp_path / "people.schema.toml").write_text(PEOPLE)
    (tmp_path / "q.toml").write_text(QUERIES.format(session="delta = 1e-6"))
    result = call(str(tmp_path / "q.toml"), "--trials", "2000", "--seed", "3")
    assert result.exit_code == 0, result.output
    assert f"ε = 0.5 at δ = 1e-06 ({READERS})" in result.output
    assert ", count, 1 release" in result.output
    assert ", mean, sum, 1 release" in result.output
    assert result.output.count("sensitivity reached by the canaries: 1.0000") == 2
    refused = call(str(tmp_path / "q.toml"), "--set", "privacy.epsilon=2")
    assert "no --set or --features with a file of queries" in refused.output
    (tmp_path / "q.toml").write_text(QUERIES.format(session="delta = 2.0"))
    assert "delta" in str(call(str(tmp_path / "q.toml")).exception)


def test_an_audit_says_which_network_it_ran_in_the_place_of_the_jobs():
    network = ["algorithm.kind=fedavg", "parties.min-records=100", "dp-sgd.local-steps=1"]
    sets = [word for key in network for word in ("--set", key)]
    asked = [*QUICK, *sets, "--trials", "20", "--attack", "dirac", "--method", "mu"]
    asked += ["--set", "dp-sgd.sampling-rate=1"]
    stood_in = call(*asked, "--set", "model.kind=cnn").output
    assert 'Audited with model.kind = "mlp": the job\'s own layers' in stood_in
    assert "Audited with" not in call(*asked, "--set", "model.kind=mlp").output


def bound(*words):
    return invoked("audit", "bound", *words)


@pytest.mark.parametrize(
    ("words", "epsilon", "mu"),
    [
        ("pair --hits-in 490/500 --hits-out 10/500 --confidence .99 --delta 0", 3.11952, None),
        ("mu --false-positives 100/1000 --false-negatives 100/1000 --delta 1e-5", 12.1976, 2.34710),
        ("one-run --canaries 1000 --guesses 100 --right 75 --delta 1e-4", 0.672985, None),
        ("one-run-fdp --canaries 100 --guesses 100 --right 95", 4.80343, 1.08333),
        ("factor --law l2-laplace --vectors 100 --dimension 10 --mean-norm 10", 0.948560, None),
    ],
)
def test_a_calculator_says_what_the_statistic_says(words, epsilon, mu):
    found = json.loads(bound(*words.split(), "--json").stdout)
    assert set(found) == {"method", "epsilon_lower", "mu_lower", "confidence", "delta"}
    assert found["method"] == words.split()[0]
    assert found["epsilon_lower"] == pytest.approx(epsilon, rel=5e-6)
    assert found["mu_lower"] == (mu if mu is None else pytest.approx(mu, rel=5e-6))
    # Cut, not rounded: what is printed is a bound too.
    shown = bound(*words.split()).stdout
    assert float(shown.split()[2]) <= found["epsilon_lower"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pair --hits-in 3/2 --hits-out 0/2", "3 of 2"),
        ("pair --hits-in 1/2 --hits-out x", "'x'"),
        ("pair --hits-in 1/2 --hits-out 0/2 --confidence .5", "(0.5, 1)"),
        ("pair --hits-in 1/2 --hits-out 0/2 --confidence 1", "(0.5, 1)"),
        ("mu --false-positives 1/2 --false-negatives 0/2 --delta 1", "delta"),
        ("one-run --canaries 10 --guesses 20 --right 5", "5 of 20"),
        ("factor --law cauchy --vectors 2 --dimension 2 --mean-norm 1", "'cauchy'"),
        ("factor --law gaussian --vectors 2 --dimension 2 --mean-norm nan", "nan"),
    ],
)
def test_numbers_that_say_nothing_are_wrong_input(words, said):
    result = bound(*words.split())
    assert result.exit_code == 2
    assert said in result.output


def test_the_statistics_are_there_for_python():
    assert parley.audit_bounds.pair_bound.__name__ == "pair_bound"
