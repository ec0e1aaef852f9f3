"""DP-SGD inside a party: batches, clipping, noise, optimisers."""
