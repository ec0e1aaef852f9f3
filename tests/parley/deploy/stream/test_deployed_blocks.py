"""A deployment whose parties' records lie in blocks: a job on one of them, over real TLS."""

import numpy as np
import polars as pl
from attending import JOB, NAMES

from parley.privacy.ledger.ledger import Ledger
from parley.server.jobs.job_file import load_job

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100] }
year = { kind = "ignore" }
sick = { kind = "label", positive = "yes", negative = "no" }
"""


def test_every_party_and_the_server_charge_the_blocks_that_a_job_names(consortium):
    """The second job's block is empty at two of three parties: it is refused, and costs nothing."""
    for name in NAMES:
        home, rng = consortium.home(name), np.random.default_rng(1)
        years = [2023] * 20 + [2024] * 60 + [2025] * (40 if name == "north" else 0)
        rows = {"age": rng.integers(0, 100, len(years)), "year": years}
        table = pl.DataFrame({**rows, "sick": ["yes", "no"] * (len(years) // 2)})
        table.write_csv(home / "rows.csv")
        (home / "s.toml").write_text(SCHEMA)
        text = (home / "party.toml").read_text()
        for key, old, new in (
            ("prepared", "records.npz", ""),
            ("path", "", "rows.csv"),
            ("schema", "", "s.toml"),
            ("block-column", "", "year"),
        ):
            assert f'\n{key} = "{old}"\n' in text
            text = text.replace(f'\n{key} = "{old}"\n', f'\n{key} = "{new}"\n')
        (home / "party.toml").write_text(text)
    serving = consortium.serve()
    consortium.everybody()
    more = ("run.stage-timeout=60", "secure-aggregation.min-survivors=3")
    first, second = (
        consortium.submit(load_job(overrides=[*JOB, *more, f'data.blocks=["{year}"]']))
        for year in (2024, 2025)
    )
    states = {run.name: run.state for run in (serving.run_next(), serving.run_next())}
    assert states[first] == "complete"
    assert states[second] != "complete"
    for place in (
        *(consortium.home(name) / "ledger.sqlite" for name in NAMES),
        consortium.runs / first / "ledger.sqlite",
    ):
        with Ledger.open(place, read_only=True) as ledger:
            assert ledger.verify() == []
            assert {each.entry.facts["public_n"] for each in ledger.list_entries()} == {60}
            (totals,) = ledger.list_accounts()
            assert {name: each.releases for name, each in totals.charged.blocks.items()} == {
                "2024": 3
            }
            assert totals.charged.everywhere.releases == 0
