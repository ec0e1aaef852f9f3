"""The diffusion example: a loss that draws, by distributed DP-SGD, as parties and as one block."""

import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from parley.client.dp_sgd.ways import choose_way
from parley.client.models.networks import Network
from parley.server.jobs.file import load_job
from parley.server.records.run_folder import RunFolder
from parley.server.rounds.coordinator import coordinate
from parley.simulations.engine.fast import simulate
from parley.simulations.engine.in_process import InProcessTransport
from parley.simulations.engine.local_parties import party_folders, prepare_parties

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


def test_the_examples_network_is_clipped_as_a_loop_over_records_clips_it():
    own = Network.build(f"{EXAMPLES / 'diffusion.py'}:net", features=784, classes=10)
    assert own.draws == 197
    assert choose_way(own) == "ghost"


def test_real_parties_draw_as_a_seeded_simulation_does(tmp_path):
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
    deployment = prepare_parties(job, tmp_path / "parties")
    folder = RunFolder.create(job, tmp_path / "real")
    coordinate(
        job,
        transport=InProcessTransport(party_folders(tmp_path / "parties", 3)),
        deployment=deployment,
        folder=folder,
        resume=False,
    )
    one, other = (load_file(each / "model.safetensors") for each in (done.folder, folder.path))
    np.testing.assert_array_equal(one["theta"], other["theta"])


def test_it_draws_images_of_the_classes_that_are_asked_for(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    diffusion = __import__("diffusion")
    images = diffusion.sample(diffusion.Diffusion(), np.arange(4), seed=1, steps=5)
    assert images.shape == (4, 14, 14)
    assert 0 <= images.min() <= images.max() <= 1
    again = diffusion.sample(diffusion.Diffusion(), np.arange(4), seed=1, steps=5)
    assert again.shape == images.shape
    sys.modules.pop("diffusion", None)
