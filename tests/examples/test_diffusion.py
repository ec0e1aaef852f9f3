"""The diffusion example: a loss that draws, by distributed DP-SGD, as parties and as one block."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from parley.client.data.record_reading import read_records
from parley.client.data.schema import load_schema
from parley.client.dp_sgd.torch_clipping import choose_way
from parley.client.models.layer_checks import NetworkError
from parley.client.models.networks import Network
from parley.client.own_code.own_code_loading import load_function
from parley.commands.sample import sample_table
from parley.run_api import run
from parley.server.jobs.job_file import load_job
from parley.server.model_file import ModelFileError
from parley.server.synthetic.generation import generate_synthetic
from parley.simulations.engine.fast_engine import simulate

EXAMPLES = Path(__file__).parents[2] / "examples"
LOSS = """
import torch
from torch import nn

class Denoiser(nn.Module):
    draws = 8

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4))

    def record_losses(self, x, y, draws):
        noisy = x[:, None] + draws.view(-1, 2, 4)
        return (self.layers(noisy) - x[:, None]).square().mean(dim=(1, 2))

def net(features, classes):
    return Denoiser()
"""


def test_the_examples_network_is_clipped_one_record_at_a_time():
    own = Network.build(f"{EXAMPLES / 'diffusion.py'}:net", features=784, classes=10)
    assert own.draws_per_record == 197
    assert choose_way(own) == "vmap"


@pytest.mark.parametrize(("given", "features", "said"), [("0", 784, "K ≥ 1"), ("1", 783, "28×28")])
def test_no_version_of_a_record_and_other_images_are_refused(tmp_path, given, features, said):
    code = (EXAMPLES / "diffusion.py").read_text()
    changed = code.replace("CLASSES, STEPS = 14, 1, ", f"CLASSES, STEPS = 14, {given}, ")
    (tmp_path / "mine.py").write_text(changed)
    with pytest.raises(NetworkError, match=said):
        Network.build(f"{tmp_path / 'mine.py'}:net", features=features, classes=10)


def test_known_preconditioning_and_noise_levels_of_karras():
    own = load_function(f"{EXAMPLES / 'diffusion.py'}:preconditioning")
    known = [0.5, 0.353553391, 1.41421356, -0.173286795, 8.0]
    found = [float(each) for each in own(torch.tensor(0.5, dtype=torch.float64))]
    assert found == pytest.approx(known, rel=1e-8)
    levels = load_function(f"{EXAMPLES / 'diffusion.py'}:karras")(5)
    assert levels == pytest.approx([80, 17.527832, 2.51521898, 0.169752756, 0.002], rel=1e-7)


def test_real_parties_draw_as_a_seeded_simulation_does(tmp_path, among_parties):
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 1, (80, 4))
    lines = [",".join(f"{value:.3f}" for value in row) + f",{k % 2}" for k, row in enumerate(rows)]
    (tmp_path / "rows.csv").write_text("a,b,c,d,y\n" + "\n".join(lines) + "\n")
    columns = "".join(f'{name} = {{ kind = "numeric", range = [0, 1] }}\n' for name in "abcd")
    label = 'y = { kind = "label", classes = [0, 1] }\n'
    (tmp_path / "rows.schema.toml").write_text(f"[columns]\n{columns}{label}")
    (tmp_path / "denoiser.py").write_text(LOSS)
    job = load_job(
        overrides=[
            *("algorithm.kind=distributed-dp-sgd", "algorithm.rounds=2"),
            f"model.kind={tmp_path / 'denoiser.py'}:net",
            *(f"data.source={tmp_path / 'rows.csv'}", "data.test-fraction=0"),
            f"data.schema={tmp_path / 'rows.schema.toml'}",
            *("parties.count=3", "parties.min-records=20", "dp-sgd.local-steps=2"),
            *("dp-sgd.sampling-rate=0.5", "privacy.epsilon=8", "privacy.delta=1e-3"),
            *("privacy.neighbouring=add-or-remove-one", "run.noise-shares=full", "run.seed=3"),
        ]
    )
    done = simulate(job, out=tmp_path / "run")
    assert np.isfinite(done.summary.loss)
    assert done.summary.accuracy is None
    np.testing.assert_array_equal(done.theta, among_parties(job)[2])


IMAGES = """
[columns]
picture = { kind = "array", shape = [2, 2], range = [0, 255] }
bar = { kind = "label", classes = [0, 1] }
"""
DRAWN = """
    def drawn(self, labels, generator):
        return torch.rand((len(labels), 4), generator=generator)
"""


def test_a_network_that_draws_leaves_images_in_its_report_and_more_are_sampled(tmp_path):
    rng, schema = np.random.default_rng(0), tmp_path / "images.schema.toml"
    pictures = rng.integers(0, 256, (80, 2, 2)).astype(np.uint8)
    np.savez(tmp_path / "images.npz", picture=pictures, bar=np.arange(80) % 2)
    schema.write_text(IMAGES)
    code, own = tmp_path / "denoiser.py", f"{tmp_path / 'denoiser.py'}:net"
    code.write_text(LOSS.replace("\ndef net(", f"{DRAWN}\ndef net(", 1))
    job = load_job(
        overrides=[
            *("algorithm.kind=distributed-dp-sgd", "algorithm.rounds=1", f"model.kind={own}"),
            *(f"data.source={tmp_path / 'images.npz'}", f"data.schema={schema}"),
            *("data.test-fraction=0", "parties.count=2", "parties.min-records=20"),
            *("dp-sgd.local-steps=1", "dp-sgd.sampling-rate=0.5", "run.seed=3"),
            *("privacy.epsilon=8", "privacy.delta=1e-3"),
            "privacy.neighbouring=add-or-remove-one",
        ]
    )
    done = run(job, out=tmp_path / "run")
    page = (done.folder / "report.html").read_text()
    assert "The network draws records" in page
    assert "data:image/png" in page
    outs = [tmp_path / f"{name}.npz" for name in ("one", "two", "three")]
    with pytest.raises(ModelFileError, match="--own-model"):
        sample_table(done.folder, rows=9, seed=1, out=outs[0])
    for out in outs[:2]:
        sample_table(done.folder, rows=9, seed=1, out=out, own_models=(own,))
    assert len(read_records(outs[0], load_schema(schema), "softmax")) == 9
    assert outs[0].read_bytes() == outs[1].read_bytes()
    # Code of one's own that gives no images leaves the model without any, and says so if asked.
    code.write_text(code.read_text().replace("return torch.rand", "return 7 + torch.rand"))
    with pytest.raises(ModelFileError, match="numbers from 0 to 1"):
        sample_table(done.folder, rows=9, seed=1, out=outs[2], own_models=(own,))
    assert not outs[2].exists()
    broken = SimpleNamespace(kind="other", model=Network.build(own, features=4, classes=2))
    kept = generate_synthetic(broken, None, done.theta, schema=IMAGES, folder=tmp_path)
    assert kept == ({}, None)


def test_the_example_draws_images_of_the_classes_that_are_asked_for():
    own = Network.build(f"{EXAMPLES / 'diffusion.py'}:net", features=784, classes=10)
    images, again = (
        own.module.drawn(torch.arange(4), torch.Generator().manual_seed(1)) for _ in range(2)
    )
    assert images.shape == (4, 784)
    assert 0 <= images.min() <= images.max() <= 1
    assert torch.equal(images, again)
