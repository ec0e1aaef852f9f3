"""A run as an entry of the public registry of DP deployments: its keys, and the run's facts."""

import json
from pathlib import Path

import pytest
from commands import invoked

from parley.certificate.certificate_statement import CertificateError
from parley.certificate.opendp_registry import read_about
from parley.server.jobs.job_file import load_job
from parley.simulations.engine.fast_engine import simulate

ABOUT = (Path(__file__).parents[3] / "examples/about.toml").read_text(encoding="utf-8")

# schemas/deployments-schema.yaml of opendp/deployments-registry-data, commit 057e5d81: what it
# asks for, and what else it takes. Of a value: the type, or all that may stand there.
SCHEMA = {
    "url_slug": str,
    "deployment": {
        "basic": {
            "name": str,
            "data_curators": [
                {
                    "data_curator_name": str,
                    "data_curator_type": {"Government", "Industry", "Nonprofit"},
                }
            ],
            "description": str,
            "intended_use": str,
            "data_product_type": {"Machine learning model", "Synthetic data"},
            "data_product_region": str,
            "publication_date": str,
            "data_product_sector?": {"Technology", "Healthcare", "Education", "Government"},
        },
        "dp_variant?": {
            "variant_name?": {"Pure DP", "Approximate DP"},
            "data_domain?": str,
            "unprotected_quantities?": str,
        },
        "privacy_loss?": {
            "privacy_unit?": str,
            "privacy_unit_details?": str,
            "number_of_privacy_units?": int,
            "privacy_parameters?": {"epsilon?": float, "delta?": float, "rho?": float},
            "privacy_parameters_details?": str,
        },
        "deployment_model?": {
            "model_name?": {"Local", "Central", "Shuffle", "Federated", "Varies"},
            "model_name_details?": str,
            "trust_assumptions?": str,
            "actors?": str,
            "release_type?": {"One release", "Many releases"},
            "release_type_details?": str,
            "data_source_type?": {"Static", "Dynamic"},
            "data_source_type_details?": str,
            "access_type?": {"Interactive", "Non-interactive"},
            "access_type_details?": str,
        },
        "implementation?": dict.fromkeys(
            (
                "preprocessing_and_hyperparameter_tuning?",
                "mechanisms?",
                "composition?",
                "post_processing?",
                "justification?",
                "utility?",
                "additional_information?",
            ),
            str,
        ),
        "administrative": {"status": {"Draft"}, "registry_authors": [str], "tier": {1, 2, 3}},
    },
}


def conforms(value, schema, at=""):
    """Holds a value against `SCHEMA`: no key is missing, none is unknown."""
    if isinstance(schema, dict):
        takes = {key.rstrip("?"): inner for key, inner in schema.items()}
        needs = {key for key in schema if not key.endswith("?")}
        assert needs <= set(value) <= set(takes), at
        for key, inner in value.items():
            conforms(inner, takes[key], f"{at}/{key}")
    elif isinstance(schema, list):
        assert value, at
        for inner in value:
            conforms(inner, schema[0], at)
    elif isinstance(schema, set):
        assert value in schema, at
    else:
        assert type(value) is schema, at
        assert value != "", at


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registered") / "run"
    job = ["parties.count=3", "algorithm.rounds=2", "secure-aggregation.masked-check=false"]
    return simulate(load_job(overrides=job), out=folder)


def test_an_entry_has_the_registrys_keys_and_what_the_run_was_charged(run, tmp_path):
    about = tmp_path / "about.toml"
    about.write_text(ABOUT)
    asked = ["certificate", "registry", str(run.folder), "--about", str(about)]
    done = invoked(*asked)
    assert done.exit_code == 0, done.output
    text = (run.folder / "registry.json").read_text()
    found = json.loads(text)
    conforms(found, SCHEMA)
    loss = found["deployment"]["privacy_loss"]
    own = run.summary.primary
    assert loss["privacy_parameters"]["epsilon"] == pytest.approx(own.epsilon, rel=1e-5)
    assert loss["privacy_parameters"]["epsilon"] >= own.epsilon * (1 - 1e-12)
    assert loss["privacy_parameters"]["delta"] == own.delta
    assert "neighbours differ by replacing one record" in loss["privacy_unit_details"]
    assert "recognises one record in at most" in loss["privacy_parameters_details"]
    assert "simulation" in found["deployment"]["deployment_model"]["model_name_details"]
    # Figures that no budget covers, the data's name and this machine's paths stay here.
    for secret in (run.summary.data, str(run.folder), f"{run.summary.accuracy:.3f}", "breast"):
        assert secret not in text
    again = invoked(*asked)
    assert isinstance(again.exception, CertificateError)  # nothing is written over


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "Readmission within 30 days"\n', "", "name: Field required"),
        ("2026-11-26", "2026-13-26", "publication_date"),
        ('"Government"', '"Hospital"', "data_curator_type"),
        ("[[data_curators]]", "epsilon = 0.1\n[[data_curators]]", "epsilon"),
        ('["A. Officer"]', "[", "is not TOML"),
    ],
)
def test_what_a_person_says_is_held_against_the_registrys_keys(tmp_path, old, new, said):
    path = tmp_path / "about.toml"
    path.write_text(ABOUT.replace(old, new, 1))
    with pytest.raises(CertificateError, match=said):
        read_about(path)
