"""Time the integer noise samplers: nanoseconds per value at a million, microseconds for 128.

With Parley installed: `OMP_NUM_THREADS=1 python benchmarks/samplers.py [--values N]`. The numbers
are the best of a few repetitions, in one thread, with words from a seeded stream. The cost grows
above scale 2³⁴, where mpmath decides more values. `--opendp` adds OpenDP's samplers.
"""

import argparse
import math
import time
from collections.abc import Callable

import numpy as np

from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.gaussian import Gaussian
from parley.privacy.mechanisms.laplace import L2Laplace, LaplaceL1
from parley.privacy.mechanisms.noise_shares import Shares
from parley.privacy.sampling.discrete_noise import discrete_gaussian, discrete_laplace
from parley.privacy.sampling.l2_laplace import draw_rounded_l2_laplace
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.sampling.rounded_gaussian import draw_rounded_gaussian

SCALES = {"1": 1.0, "1e3": 1e3, "2^20": 2.0**20, "2^30": 2.0**30, "2^34": 2.0**34}


def best_of(repetitions: int, action: Callable[[], object]) -> float:
    """Return the least time of an action in seconds."""
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print one line for each sampler and scale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--opendp", action="store_true")
    arguments = parser.parse_args()
    count: int = arguments.values
    stream = NoiseStream.from_seed(1, "benchmark")

    def line(name: str, scale: str, draw: Callable[[int], object]) -> None:
        draw(1)
        each = best_of(3, lambda: draw(count)) / count * 1e9
        small = best_of(200, lambda: draw(128)) * 1e6
        print(f"{name:24} {scale:>6} {each:10.1f} ns/value {small:10.1f} µs for 128", flush=True)

    each = best_of(3, lambda: stream.draw_words(count)) / count * 1e9
    print(f"{'keystream':24} {'':>6} {each:10.1f} ns/word")
    for label, scale in SCALES.items():
        line("rounded_gaussian", label, lambda n, s=scale: draw_rounded_gaussian(s, n, stream))
        line("discrete_gaussian", label, lambda n, s=scale: discrete_gaussian(s, n, stream))
        line("discrete_laplace", label, lambda n, s=scale: discrete_laplace(s, n, stream))
    for label in ("1e3", "2^20"):
        scale = SCALES[label]
        line(
            "rounded_l2_laplace", label, lambda n, s=scale: draw_rounded_l2_laplace(s, n, 1, stream)
        )
        for law in (
            Gaussian(sensitivity=1.0, sigma=4 * scale, dimension=count),
            L2Laplace(sensitivity=scale, epsilon=1.0, dimension=count),
            LaplaceL1(sensitivity=scale / math.sqrt(count), epsilon=1.0, dimension=count),
        ):
            line(f"{law.law}_share", label, lambda n, law=law: share_of(law, n, stream))
    if arguments.opendp:
        opendp_lines(count)


def share_of(law: Mechanism, values: int, stream: NoiseStream) -> None:
    """Add one of ten shares, or one of one if the distribution needs the whole vector."""
    shares = Shares.from_mechanism(law, parties=10, least=10, colluders=0)
    shares.add(law, np.zeros((1, values), dtype=np.int64), [stream])


def opendp_lines(count: int) -> None:
    """Print the same for OpenDP's vector mechanisms, on a hundredth of the values."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    vectors = dp.vector_domain(dp.atom_domain(T=int))
    zeros = [0] * (count // 100)
    for name, mechanism in (
        ("gaussian", dp.m.make_gaussian(vectors, dp.l2_distance(T=float), scale=1e3)),
        ("laplace", dp.m.make_laplace(vectors, dp.l1_distance(T=int), scale=1e3)),
    ):
        each = best_of(3, lambda m=mechanism: m(zeros)) / len(zeros) * 1e9
        print(f"{'opendp ' + name:24} {'1e3':>6} {each:10.1f} ns/value")


if __name__ == "__main__":
    main()
