"""A certificate binds a run's model, job, ledger and ε; nothing of it can be changed unseen."""

import contextlib
import hashlib
import json
import re
import shutil
import sqlite3
import stat

import pytest

import parley
from parley.certificate.certificate_files import write_certificate
from parley.certificate.certificate_page import build_certificate_document
from parley.certificate.certificate_statement import (
    CertificateError,
    SignedCertificate,
    parse_certificate,
    sign_statement,
)
from parley.certificate.issuance import issue_certificate, load_charges, load_signing_key
from parley.certificate.verification import verify_certificate
from parley.cli import app
from parley.client.data.schema import SchemaError
from parley.presentation.html_renderer import render_html
from parley.privacy.accounting.composition import Composition
from parley.privacy.ledger.ledger import Ledger
from parley.server.jobs.job_file import load_job
from parley.server.statements.attack_rate_text import format_percent
from parley.server.statements.number_format import format_epsilon
from parley.simulations.engine.fast_engine import simulate

KEY = bytes(range(32))
KEYS = {
    "parties.count": 3,
    "algorithm.rounds": 3,
    "secure-aggregation.masked-check": False,
    "run.baseline": False,
}
QUICK = ["parties.count=3", "algorithm.rounds=3", "secure-aggregation.masked-check=false"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run and its certificate."""
    folder = tmp_path_factory.mktemp("certified") / "run"
    result = simulate(load_job(overrides=QUICK), out=folder)
    return result, issue_certificate(folder, KEY)


@pytest.fixture
def file(run, tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text(run[1].to_text())
    return path


def test_it_says_what_the_run_was_charged_and_the_entries_come_to_it(run, file):
    result, certificate = run
    (of,) = certificate.statement.guarantees
    assert of.epsilon == result.summary.primary.epsilon
    assert Composition.from_json(of.spent).releases == 3
    verdict = verify_certificate(file, signer=certificate.signer, run=result.folder)
    text = "\n".join(verdict.confirmed)
    assert "3 entries give this" in text
    assert "neighbours differ by replacing one record" in text
    assert "model and job are the certified ones" in text
    assert [row.members for row in of.found] == [1, 2, 5, 10]
    assert f"recognises one record in at most {format_percent(of.found[0].rate)}" in text
    assert len(verdict.confirmed) == 6
    assert of.colluders == result.summary.primary.noise.shares.colluders == 1
    assert "against the server and the parties that may collude with it (at most 1)" in text
    offline = verify_certificate(file)
    assert any("name the run's folder" in line for line in offline.unchecked)
    assert any("who owns that key" in line for line in offline.unchecked)
    assert any("against anyone who sees what was released" in line for line in offline.unchecked)
    assert str(result.folder) not in certificate.to_text()


def test_every_changed_byte_is_refused(file):
    content = file.read_bytes()
    for at in range(0, len(content), 7):
        changed = bytearray(content)
        changed[at] ^= 1
        with pytest.raises(CertificateError):
            parse_certificate(bytes(changed), "changed")
    for changed in (content + b"\n", content[:-1], content.replace(b"{\n", b"{ \n", 1)):
        with pytest.raises(CertificateError, match=r"was changed|not a certificate"):
            parse_certificate(changed, "changed")
    twice = content.replace(b'"signer"', b'"signer": "' + b"0" * 64 + b'", "signer"', 1)
    with pytest.raises(CertificateError):
        parse_certificate(twice, "twice")


def test_a_claim_below_what_its_entries_cost_is_refused_though_signed(run, tmp_path):
    _, certificate = run
    statement = certificate.statement
    low = statement.guarantees[0].with_fields(epsilon=statement.guarantees[0].epsilon * 0.99)
    path = tmp_path / "low.json"
    path.write_text(sign_statement(statement.with_fields(guarantees=(low,)), KEY).to_text())
    with pytest.raises(CertificateError, match="cost more than the certificate claims"):
        verify_certificate(path)
    tells = [row.with_fields(rate=row.rate * 0.99) for row in statement.guarantees[0].found]
    found = statement.guarantees[0].with_fields(found=tuple(tells))
    path.write_text(sign_statement(statement.with_fields(guarantees=(found,)), KEY).to_text())
    with pytest.raises(
        CertificateError, match="the certificate claims less than its entries allow"
    ):
        verify_certificate(path)
    more = statement.guarantees[0].with_fields(found=(tells[0].with_fields(members=10**9),))
    path.write_text(sign_statement(statement.with_fields(guarantees=(more,)), KEY).to_text())
    with pytest.raises(CertificateError, match="an attacker's success rates"):
        verify_certificate(path)
    odd = statement.guarantees[0].with_fields(
        spent={"events": [{"event": {"kind": "new"}, "count": 1}], "slack": "0", "releases": 1}
    )
    path.write_text(sign_statement(statement.with_fields(guarantees=(odd,)), KEY).to_text())
    verdict = verify_certificate(path)
    assert any("does not know" in line for line in verdict.unchecked)
    assert not any("give this" in line for line in verdict.confirmed)


def test_another_signer_model_job_or_ledger_is_refused(run, file, tmp_path):
    result, _ = run
    with pytest.raises(CertificateError, match="Expected the signer 00"):
        verify_certificate(file, signer="00" * 32)
    for name, message in (
        ("model.safetensors", "Expected model.safetensors with SHA-256"),
        ("job.toml", "Expected job.toml with SHA-256"),
    ):
        copy = tmp_path / name.partition(".")[0]
        shutil.copytree(result.folder, copy)
        with (copy / name).open("ab") as opened:
            opened.write(b"\n# more\n")
        with pytest.raises(CertificateError, match=message):
            verify_certificate(file, run=copy)
    # A chain of the same run that was cut off before the certified head.
    other = simulate(load_job(overrides=QUICK), out=tmp_path / "other").folder
    copy = tmp_path / "cut"
    shutil.copytree(result.folder, copy)
    shutil.copy(other / "ledger.sqlite", copy / "ledger.sqlite")
    with pytest.raises(CertificateError, match=r"Expected a valid ledger"):
        verify_certificate(file, run=copy)


def test_nothing_is_certified_of_a_seeded_or_unfinished_run(run, tmp_path):
    seeded = simulate(load_job(overrides=[*QUICK, "run.seed=1"]), out=tmp_path / "seeded").folder
    with pytest.raises(CertificateError, match=r"got seeded noise. It protects no one"):
        issue_certificate(seeded, KEY)
    copy = tmp_path / "begun"
    shutil.copytree(run[0].folder, copy)
    (copy / "summary.json").unlink()
    with pytest.raises(CertificateError, match="Expected a run that ended"):
        issue_certificate(copy, KEY)


def test_the_commands_issue_and_verify(run, tmp_path, capsys):
    folder, key, out = run[0].folder, tmp_path / "keys" / "mine", tmp_path / "c.json"
    app(["certificate", str(folder), "--key", str(key), "--out", str(out)], standalone_mode=False)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    signer = json.loads(out.read_text())["signer"]
    assert signer in capsys.readouterr().out
    page = out.with_suffix(".html").read_text()
    (guarantee,) = run[1].statement.guarantees
    assert f"ε\xa0=\xa0{format_epsilon(guarantee.epsilon)}" in page
    assert "neighbours differ by replacing one record" in page
    assert page.count("<td>") == 3 * (1 + len(guarantee.accounts)) + 2 * (1 + len(guarantee.found))
    assert hashlib.sha256(out.read_bytes()).hexdigest() in page
    assert f"parley certificate verify c.json --signer {signer}" in page
    assert not re.search(r"(src|href)=|url\(|<script", page)
    assert load_signing_key(key) == bytes.fromhex(key.read_text().strip())
    command = ["certificate", "verify", str(out), "--signer", signer, "--run", str(folder)]
    app(command, standalone_mode=False)
    shown = capsys.readouterr().out
    assert shown.count("✓") == 6
    assert "? not checked: that these entries are all" in shown
    with pytest.raises(CertificateError, match="exists already"):
        app(["certificate", str(folder), "--out", str(out)], standalone_mode=False)
    key.chmod(0o644)
    with pytest.raises(CertificateError, match="chmod 600"):
        load_signing_key(key)
    assert isinstance(parse_certificate(out.read_bytes(), out), SignedCertificate)


def test_an_index_that_leaves_entries_out_hides_none_of_them(run, tmp_path):
    """The log is whole and verifies; by the file's own index the run made one release."""
    result, certificate = run
    folder = shutil.copytree(result.folder, tmp_path / "run")
    with contextlib.closing(sqlite3.connect(folder / "ledger.sqlite")) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        index = "WHERE name = 'parley_ledger_releases'"
        (kept,) = connection.execute(f"SELECT sql FROM sqlite_schema {index}").fetchone()
        one = 'CREATE INDEX other ON parley_ledger_records (run_id, dataset, "index", position)'
        connection.execute("DROP INDEX parley_ledger_releases")
        connection.execute(one + " WHERE position < 4")
        connection.execute(
            "UPDATE sqlite_schema SET name = 'parley_ledger_releases', sql = ? "
            "WHERE name = 'other'",
            (kept,),
        )
        connection.commit()
    with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
        assert not ledger.verify()
        assert len(ledger.list_entries(certificate.statement.run_id)) < 3
    statement = certificate.statement
    place = folder / "ledger.sqlite"
    (spent,) = load_charges(place, statement.run_id, statement.ledger_head).spent.values()
    assert spent.releases == 3


def test_a_run_in_python_writes_its_certificate_and_its_page(tmp_path) -> None:
    run = parley.run(KEYS, out=tmp_path / "run")
    key = tmp_path / "signing.key"
    written = run.certificate(tmp_path / "approved.json", key=key)
    assert written == tmp_path / "approved.json"
    verdict = verify_certificate(written, signer=None, run=run.folder)
    assert "model and job are the certified ones" in "\n".join(verdict.confirmed)
    assert run.summary.run_id in (tmp_path / "approved.html").read_text()
    with pytest.raises(CertificateError, match="exists already"):
        run.certificate(tmp_path / "approved.json", key=key)
    assert run.certificate(key=key) == run.folder / "certificate.json"


SCHEMA = """
[columns.age]
kind = "numeric"
range = [0, 120]
[columns.ward]
kind = "categorical"
categories = ["hidden-ward", "other-ward"]
[columns.bed]
kind = "ignore"
[columns.sick]
kind = "label"
positive = "hidden-yes"
negative = "hidden-no"
"""


@pytest.fixture(scope="module")
def ward_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ward")
    rows = [
        f"{age},{('hidden', 'other')[age % 2]}-ward,{age},hidden-{'yes' if age > 50 else 'no'}"
        for age in range(100)
    ]
    (folder / "hidden-file.csv").write_text("\n".join(["age,ward,bed,sick", *rows]))
    (folder / "s.toml").write_text(SCHEMA)
    data = {"data.source": str(folder / "hidden-file.csv"), "data.schema": str(folder / "s.toml")}
    return parley.run(KEYS | data, out=folder / "run").folder


def test_it_states_what_was_computed_in_names_and_no_value(ward_run) -> None:
    certificate = issue_certificate(ward_run, KEY)
    work = certificate.statement.work
    assert (work.model, work.label, work.columns) == ("logistic", "sick", ("age", "ward"))
    assert work.column_count == 2
    with Ledger.open(ward_run / "ledger.sqlite", read_only=True) as ledger:
        entries = ledger.list_entries()
    assert work.first_release[:19] == entries[0].reserved_at[:19]
    assert work.last_release[:19] == entries[-1].settled_at[:19]
    assert "hidden" not in certificate.to_text()
    # The names are checked against the folder: another schema is another statement.
    changed = certificate.statement.with_fields(work=work.with_fields(label="age"))
    path = ward_run.parent / "changed.json"
    path.write_text(sign_statement(changed, KEY).to_text())
    with pytest.raises(CertificateError, match="Expected the certified model, label, columns"):
        verify_certificate(path, run=ward_run)


def test_what_was_computed_is_unchecked_without_the_runs_summary(ward_run, tmp_path) -> None:
    path, copy = tmp_path / "certificate.json", tmp_path / "run"
    path.write_text(issue_certificate(ward_run, KEY).to_text())
    checked = verify_certificate(path, run=ward_run)
    assert "certified model, columns and times" in checked.confirmed[-1]
    assert not any("was computed" in each for each in checked.unchecked)
    shutil.copytree(ward_run, copy)
    (copy / "summary.json").unlink()
    verdict = verify_certificate(path, run=copy)
    assert verdict.confirmed == checked.confirmed[:-1]
    assert any("work was computed" in each for each in verdict.unchecked)


def test_a_schema_that_is_none_is_refused_with_its_file(ward_run, tmp_path) -> None:
    path, copy = tmp_path / "certificate.json", tmp_path / "run"
    path.write_text(issue_certificate(ward_run, KEY).to_text())
    shutil.copytree(ward_run, copy)
    (copy / "schema.toml").write_text("x = 1")
    with pytest.raises(SchemaError, match=re.escape(f"{copy / 'schema.toml'}: Expected")):
        verify_certificate(path, run=copy)


@pytest.mark.parametrize(
    "time",
    [
        "soon",
        "2026-11-27T08:05",
        "2026-11-27T08:05:32",
        "2026-11-27T08:05:32+02:00",
        "2026-13-27T08:05:32+00:00",
        "2026-11-27T08:05:32+00:00\n",
    ],
)
def test_a_signed_time_that_is_none_is_refused(ward_run, tmp_path, time) -> None:
    signed = issue_certificate(ward_run, KEY).statement
    work = signed.work.model_copy(update={"first_release": time})
    path = tmp_path / "certificate.json"
    path.write_text(sign_statement(signed.model_copy(update={"work": work}), KEY).to_text())
    with pytest.raises(CertificateError, match="first_release"):
        verify_certificate(path)


def test_a_certificate_without_what_was_computed_stays_valid(ward_run) -> None:
    older = issue_certificate(ward_run, KEY).statement.with_fields(work=None)
    path = ward_run.parent / "older.json"
    path.write_text(sign_statement(older, KEY).to_text())
    assert '"work"' not in path.read_text()
    assert len(verify_certificate(path, run=ward_run).confirmed) == 5
    page = render_html(build_certificate_document(path))
    assert "gradient perturbation, 3 of 3 rounds" in page
    assert "Computed from" not in page


def test_its_page_names_what_was_computed_and_cuts_a_long_list(ward_run) -> None:
    statement = issue_certificate(ward_run, KEY).statement
    names = tuple(f"column_{at}" for at in range(1000))
    many = statement.work.with_fields(columns=names, column_count=2000)
    path = ward_run.parent / "many.json"
    for work, shown in (
        (statement.work, "2 columns: age, ward<"),
        (many, "2,000 columns: column_0, column_1, "),
    ):
        path.write_text(sign_statement(statement.with_fields(work=work), KEY).to_text())
        page = render_html(build_certificate_document(path))
        assert shown in page
        assert "logistic regression, predicts sick" in page
    assert re.search(r"column_\d+ and 1,9\d\d more", page)


def test_a_certificate_and_its_page_never_have_one_name(run, tmp_path) -> None:
    with pytest.raises(CertificateError, match=r"Expected a name for the JSON file, got .*c\.html"):
        write_certificate(run[0].folder, tmp_path / "c.html", key=tmp_path / "key")
    _, file, page = write_certificate(run[0].folder, tmp_path / "study-1.2", key=tmp_path / "key")
    assert (file.name, page.name) == ("study-1.2", "study-1.2.html")
    assert verify_certificate(file).confirmed


def test_a_seeded_run_has_no_certificate(tmp_path) -> None:
    run = parley.run(KEYS, seed=1, out=tmp_path / "run")
    with pytest.raises(CertificateError, match="seeded noise"):
        run.certificate(key=tmp_path / "signing.key")
