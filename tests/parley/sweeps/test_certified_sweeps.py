"""Sweeps and certificates: each cell has its own account, and the total says whom it is for."""

import pytest

from parley.privacy.accounting.account_admission import AccountCertificate
from parley.privacy.ledger.ledger import Ledger
from parley.server.jobs.section_base import JobError
from parley.sweeps.sweep_cells import build_sweep
from parley.sweeps.sweep_page import format_total_cost
from parley.sweeps.sweep_runner import run_cells
from parley.sweeps.sweep_summary import compute_total_charge

BASE = {
    "parties": {"count": 3},
    "data": {"source": "synthetic", "records": 120},
    "algorithm": {"rounds": 2},
    "secure-aggregation": {"masked-check": False},
    "run": {"baseline": False},
}
SAMPLED = {
    "algorithm.kind": "fedavg",
    "model.kind": "mlp",
    "model.hidden": [3],
    "dp-sgd.sampling-rate": 0.1,
    "dp-sgd.local-steps": 2,
}


def run_sweep(folder, **table):
    sweep = build_sweep({**BASE, "sweep": table}, source="s.toml")
    rows = run_cells(sweep, folder, workers=1)
    assert [row["error"] for row in rows if row["status"] != "complete"] == []
    return rows


def account_of(row):
    with Ledger.open(f"{row['folder']}/ledger.sqlite", read_only=True) as ledger:
        assert ledger.verify() == []
        (account,) = ledger.list_accounts()
        return account


def test_each_cell_has_an_account_of_its_own_with_the_certificate_that_it_names(tmp_path):
    rows = run_sweep(
        tmp_path,
        grid={"privacy.certificate": ["auto", "gaussian", "zcdp"]},
        methods={"gradients": {}, "sampled": SAMPLED},
    )
    accounts = [account_of(row) for row in rows]
    own = [AccountCertificate.PLAN, AccountCertificate.GAUSSIAN, AccountCertificate.ZCDP]
    assert [each.budget.certificate for each in accounts] == own * 2
    # None costs more than it asks for, and the noise is what the certificate's price is paid in.
    assert all(0.9 < each.epsilon <= 1 + 1e-9 for each in accounts)
    for plan, gaussian, zcdp in (rows[:3], rows[3:]):
        assert plan["noise_scale"] <= gaussian["noise_scale"] < zcdp["noise_scale"]
        assert gaussian["noise_scale"] < 1.05 * plan["noise_scale"]


def test_the_total_of_a_sweep_is_of_cells_fixed_beforehand_and_says_so_once(tmp_path):
    kinds = {
        "gaussian": {},
        "pure": {"privacy.noise": "laplace-l1", "privacy.delta": 0.0},
        "sampled": SAMPLED,
    }
    rows = run_sweep(tmp_path, methods=kinds)
    epsilon, delta, _ = compute_total_charge(rows)
    # Less than the sum, as no filter for an analyst who chooses cells by answers would have it.
    assert 1 < epsilon < 3
    assert delta == pytest.approx(2e-5)
    said = format_total_cost(rows)
    assert said.count("for releases fixed beforehand") == 1
    assert "later releases" not in said


@pytest.mark.parametrize("certificate", ["auto", "gaussian"])
def test_cells_of_a_sweep_share_no_account(tmp_path, certificate):
    base = {
        **BASE,
        "privacy": {"ledger": str(tmp_path / "ward.sqlite"), "certificate": certificate},
    }
    sweep = build_sweep({**base, "sweep": {"seeds": 2}}, source="s.toml")
    with pytest.raises(JobError, match=r"no privacy\.ledger in a sweep"):
        run_cells(sweep, tmp_path / "out", workers=1)
    assert not (tmp_path / "ward.sqlite").exists()
