"""What the terminal shows of a plan and of a run's end."""

from dataclasses import replace

import pytest

from parley.planning import plan
from parley.privacy.accounting.events import Approximate, Gaussian
from parley.server.jobs.file import load_job
from parley.simulations.engine.fast import simulate
from parley.terminal.display import print_ledger, print_outlook, print_result


def test_plan_and_run_tell_the_clipped_fraction_with_its_noise(tmp_path, capsys):
    job = load_job(
        overrides=[
            "algorithm.kind=fedavg",
            "model.kind=mlp",
            "model.hidden=[4]",
            "algorithm.rounds=2",
            "dp-sgd.clipped-fraction-share=0.04",
            "parties.count=3",
            "privacy.epsilon=8",
        ]
    )
    outlook = plan(job)
    steps = outlook["dp_sgd"]
    larger = steps["gradient_multiplier"] / steps["noise_multiplier"]
    assert larger == pytest.approx(0.96**-0.5)
    print_outlook(outlook)
    assert "0.04 of every step's privacy for the fraction of" in capsys.readouterr().out
    result = simulate(job, out=tmp_path / "r")
    told = result.summary.clipped_fraction
    assert told.deviation == pytest.approx(steps["clipped_fraction_deviation"])
    print_result(result)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"in the last {told.last:.3f} (noise {told.deviation:.2g})" in shown
    # A deployment's server does not know what its parties came to; the noise is theirs too.
    served = result.summary.adding(dp_sgd=None)
    print_result(replace(result, summary=served))
    assert "a step" in " ".join(capsys.readouterr().out.split())


def test_a_long_ledger_shows_its_last_entries_and_says_how_many_there_are(capsys) -> None:
    entry = {
        "run_id": "r",
        "party": "server",
        "index": 1,
        "facts": {"unit": "record", "noise_law": "gaussian"},
        "event": Approximate(event=Gaussian(mu=1.0), delta=1e-20).to_json(),
    }
    recorded = [
        {"entry": {**entry, "index": index}, "state": "committed", "outcome": {"survivors": 3}}
        for index in range(1, 1001)
    ]
    print_ledger({"datasets": [], "entries": recorded})
    shown = capsys.readouterr().out
    assert "The last 200 of 1000 entries; --json shows all of them." in shown
    assert " 1000 " in shown
    assert " gaussian  0.5 " in shown
    assert " 800 " not in shown
