"""Train a small diffusion model of images by distributed DP-SGD (research grade).

    parley run examples/mnist-diffusion.toml --set data.source=PATH/mnist.npz
    parley sample runs/NAME --rows 1000 --out digits.npz --own-model examples/diffusion.py:net

Images of 28×28 are reduced to 14×14, and enlarged to 28×28 when sampled. The network D(x; σ)
removes noise from an image (Karras et al. 2022, arXiv:2206.00364, table 1). A record's loss is the
mean over K noisy versions of it. Its one gradient is clipped once (Dockhorn et al. 2022,
arXiv:2210.09929). The mean of later iterates (algorithm.average) and sampling are post-processing.

    >>> round(float(log_sigmas(np.array([0.0]))[0]), 3), karras(5).round(4).tolist()
    (-1.2, [80.0, 17.5278, 2.5152, 0.1698, 0.002])
    >>> [round(float(each), 4) for each in preconditioning(torch.tensor(0.5))]
    [0.5, 0.3536, 1.4142, -0.1733, 8.0]
"""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

SIDE, K, WIDTH, CLASSES, STEPS = 14, 1, 256, 10, 40
"""With K = 2 noisy versions of a record, training takes twenty times as long here."""
SIGMA = 0.5
"""σ of the pixels, public."""
LENGTH = 9.2
"""Length of an image with pixels from 0 to 1; the records' rows have length 1."""


def log_sigmas(normal: Any) -> Any:
    """Return ln σ ~ N(−1.2, 1.2²), from standard normal numbers."""
    return -1.2 + 1.2 * normal


def preconditioning(sigma: Tensor) -> tuple[Tensor, ...]:
    """Return c_skip, c_out, c_in, c_noise, and the loss's weight."""
    whole = sigma**2 + SIGMA**2
    weight = whole / (sigma * SIGMA) ** 2
    return SIGMA**2 / whole, sigma * SIGMA / whole.sqrt(), 1 / whole.sqrt(), sigma.log() / 4, weight


class Diffusion(nn.Module):
    """An MLP of a noisy image, its class and its noise level, with K noisy images per record."""

    draws = K * (1 + SIDE**2)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(SIDE**2 + CLASSES + 8, WIDTH),
            nn.SiLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.SiLU(),
            nn.Linear(WIDTH, SIDE**2),
        )

    def denoised(self, noisy: Tensor, sigma: Tensor, classes: Tensor) -> Tensor:
        """Return `[…, 196]` D(x; σ) for noisy images, σ `[…, 1]` and classes `[…, 10]` as
        indicators.
        """
        skip, out, into, noise, _ = preconditioning(sigma)
        turns = noise * torch.tensor([1.0, 2, 4, 8], dtype=noise.dtype) * 3
        told = torch.cat([into * noisy, classes, turns.sin(), turns.cos()], dim=-1)
        return skip * noisy + out * self.layers(told)

    def record_losses(self, x: Tensor, y: Tensor, draws: Tensor) -> Tensor:
        """Return `[b]` the mean loss over K noisy versions of each record."""
        images = nn.functional.avg_pool2d(LENGTH * x.view(-1, 1, 28, 28), 2).flatten(1)
        images, drawn = 2 * images - 1, draws
        classes = torch.eye(CLASSES, dtype=x.dtype, device=x.device)[y]
        if K > 1:  # one more axis, after the records'
            drawn, images = draws.view(-1, K, 1 + SIDE**2), images[:, None]
            classes = classes[:, None].expand(-1, K, -1)
        sigma = log_sigmas(drawn[..., :1]).exp()
        found = self.denoised(images + sigma * drawn[..., 1:], sigma, classes)
        weight = preconditioning(sigma)[-1]
        return (weight * (found - images).square()).flatten(1).mean(dim=1)

    def drawn(self, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Return `[n, 784]` images of the classes `[n]`, from 0 to 1, with fresh noise in each
        step.
        """
        told = nn.functional.one_hot(labels, CLASSES).float()
        line = [*karras(STEPS, least=0.1).tolist(), 0.0]
        x = line[0] * torch.randn((len(told), SIDE**2), generator=generator)
        for now, after in pairwise(line):
            clean = self.denoised(x, torch.full((len(x), 1), now), told).clamp(-1, 1)
            x = clean + after * torch.randn(x.shape, generator=generator)
        images = ((x + 1) / 2).clamp(0, 1).view(-1, 1, SIDE, SIDE)
        return nn.functional.interpolate(images, scale_factor=2).flatten(1)


def net(features: int, classes: int) -> nn.Module:
    """Build the network that `model.kind` names."""
    if K < 1:
        raise ValueError(f"Expected K ≥ 1 noisy versions of a record, got {K}.")
    if (features, classes) != (28 * 28, CLASSES):
        raise ValueError(f"Expected 28×28 images of ten classes, got {features} and {classes}.")
    return Diffusion()


def karras(
    steps: int, largest: float = 80.0, least: float = 0.002, rho: float = 7.0
) -> NDArray[np.float64]:
    """Return `[steps]` decreasing σ."""
    part = np.arange(steps) / (steps - 1)
    return (largest ** (1 / rho) + part * (least ** (1 / rho) - largest ** (1 / rho))) ** rho
