"""Ways of learning from noisy sums; `registry` lists them."""
