"""Scattering: known answers of the reference library and of our own, and what a record may see."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from parley.client.features.image_scattering import ScatteringTransform

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("PARLEY_DATA", ROOT.parent / "shared" / "data"))


def test_it_gives_the_reference_librarys_coefficients_of_mnist_images() -> None:
    file = DATA / "scattering_vectors.npz"
    if not file.is_file():
        pytest.skip(f"needs {file} (set PARLEY_DATA to its folder)")
    known = np.load(file)
    found = ScatteringTransform(height=28, width=28)(known["images"] / 255)
    assert found.shape == known["features"].shape == (4, 81, 7, 7)
    assert np.abs(found - known["features"]).max() < 1e-5


def test_it_gives_the_kept_coefficients_of_an_image_that_is_not_square() -> None:
    known = json.loads((ROOT / "tests" / "vectors" / "scattering.json").read_text())
    y, x = np.mgrid[0:12, 0:16]
    image = ((7 * x * x + 5 * x * y + 11 * y) % 256) / 255
    found = ScatteringTransform(height=12, width=16, angles=4)(image[None])[0]
    assert list(found.shape) == known["shape"]
    np.testing.assert_allclose(found.ravel(), known["features"], atol=1e-6)


def test_coefficients_agree_with_convolutions_done_one_by_one() -> None:
    """|x ⋆ ψ| ⋆ φ in double precision, from the definition: the first order, every θ and scale."""
    size, scales, angles = 16, 2, 4
    image = np.random.default_rng(0).random((size, size))
    found = ScatteringTransform(height=size, width=size, angles=angles)(image[None])[0]
    padded = np.pad(image, 4, mode="reflect")
    period = len(padded)
    far = np.arange(-2 * period, 3 * period)

    def fold(signal):
        return signal.reshape(5, period, 5, period).sum(axis=(0, 2))

    def convolved(signal, kernel):
        return np.fft.ifft2(np.fft.fft2(signal) * np.fft.fft2(kernel))

    low = np.exp(-(far**2) / (2 * 1.6**2))
    phi = fold(np.outer(low, low)) / (2 * 3.1415 * 1.6**2)
    # Full resolution throughout: |x ⋆ ψ| of the coarser scale is not thinned out before φ, which
    # aliases a little there.
    for channel in range(scales * angles):
        j, theta = divmod(channel, angles)
        turn = (int(angles / 2 - 1) - theta) * np.pi / angles
        x, y = far[:, None], far[None, :]
        along = np.cos(turn) * x + np.sin(turn) * y
        across = np.cos(turn) * y - np.sin(turn) * x
        sigma, slant = 0.8 * 2**j, 4 / angles
        envelope = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
        gabor, gauss = fold(envelope * np.exp(0.75j * np.pi / 2**j * along)), fold(envelope)
        psi = (gabor - gabor.sum() / gauss.sum() * gauss) * slant / (2 * 3.1415 * sigma**2)
        wanted = convolved(np.abs(convolved(padded, psi)), phi).real[4:-4:4, 4:-4:4]
        # The filter's transform is real in the reference: that drops 10⁻⁴ of it or less.
        tolerance = 2e-4 if j == 0 else 5e-3
        np.testing.assert_allclose(found[1 + channel], wanted, atol=tolerance)


@pytest.mark.parametrize(
    ("shape", "settings", "said"),
    [
        ((3, 28), {}, r"shape \[n, 28, 28\]"),
        ((3, 28, 27), {}, r"got \(3, 28, 27\)"),
        ((3, 28, 28), {"scales": 5}, "more than 32 pixels a side"),
        ((3, 28, 28), {"scales": 0}, "scales of 1 to 6"),
        ((3, 28, 28), {"angles": 33}, "angles of 1 to 32"),
    ],
)
def test_other_images_and_settings_are_refused(shape, settings, said) -> None:
    with pytest.raises(ValueError, match=said):
        ScatteringTransform(height=28, width=28, **settings)(np.zeros(shape))
