"""Real processes: keys and certificates; Flower's simulation."""
