"""Algorithms that learn from noisy sums; `registry` lists them."""
