"""Plans of synthetic data's one release: a party takes the honest one and declines what is less."""

from dataclasses import replace

import pytest
from proposals import LESS

from parley.client.algorithms.registry import ALGORITHMS
from parley.client.contract.refusals import Declined
from parley.client.party.loaded_dataset import DatasetFacts
from parley.client.party.owner_policy import OwnerPolicy
from parley.client.party.plan_verification import check_computation
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.planning.job_planner import build_algorithm, build_model, plan_release

SCHEMA = """
[columns]
sex = { kind = "categorical", categories = ["F", "M"] }
age = { kind = "numeric", range = [0, 90], bins = 4 }
ward = { kind = "label", classes = ["A", "B", "C"] }
"""
FEDERATION = Federation(parties=5, min_records=90, total_records=460, max_records=95, schema=SCHEMA)
CONSENT = OwnerPolicy.model_validate(
    {"data": {"ward": {"prepared": "rows.npz", "epsilon": 9, "delta": 1e-3}}}
)


def proposed(kind, relation):
    job = load_job(
        overrides=[
            *(f"algorithm.kind={kind}", "model.kind=table", f"privacy.neighbouring={relation}"),
            *("privacy.delta=1e-6", "privacy.noise-point=server", "parties.min-records=90"),
        ]
    )
    algorithm = build_algorithm(job, build_model(job, features=6, classes=3), FEDERATION)
    return algorithm, plan_release(job, algorithm=algorithm, federation=FEDERATION)


def asked(algorithm, plan):
    row = ALGORITHMS[algorithm.kind]
    own = DatasetFacts(
        features=6, width=6, classes=3, records=92, max_records=92, schema="", map="", columns=None
    )
    check_computation(CONSENT, plan, algorithm, row, own)


@pytest.mark.parametrize("relation", ["replace-one", "add-or-remove-one"])
@pytest.mark.parametrize("kind", ["marginals", "random-features"])
def test_a_plan_that_claims_less_than_one_record_moves_is_declined(kind, relation):
    algorithm, plan = proposed(kind, relation)
    asked(algorithm, plan)
    for what, (change, reason) in LESS.items():
        with pytest.raises(Declined) as declined:
            asked(algorithm, change(plan))
        assert declined.value.reason == reason, what


def test_waves_of_another_seed_than_is_named_are_declined():
    algorithm, plan = proposed("random-features", "replace-one")
    for other in (replace(algorithm, seed=1), replace(algorithm, length_scale=3.0)):
        with pytest.raises(Declined, match="Expected the waves of seed"):
            asked(other, plan)
