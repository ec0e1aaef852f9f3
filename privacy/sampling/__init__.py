"""Streams of randomness and exact samplers.

| sampler | law on the integers | distance from it |
|---|---|---|
| `draw_rounded_gaussian` | round(N(0, σ²)) | ≤ 2⁻⁸⁷ a coordinate |
| `draw_rounded_l2_laplace` | round(z), density of z ∝ exp(−‖z‖₂/b) | ≤ 2⁻⁸⁷ a coordinate |
| `discrete_gaussian` | P[x] ∝ exp(−x²/(2σ²)) | none |
| `discrete_laplace` | P[x] ∝ exp(−abs(x)/t) | none |

The distances are statistical, from the named law, assuming a uniform keystream. The guarantee of
each law is stated with its mechanism, in `parley.privacy.mechanisms.registry`.

>>> from parley.privacy.sampling.rounded_gaussian import draw_rounded_gaussian
>>> from parley.privacy.sampling.random_stream import NoiseStream
>>> draw_rounded_gaussian(3.0, 8, NoiseStream.from_seed(2025, "doc")).tolist()
[2, -3, 3, 2, -2, 0, -2, -2]
"""
