"""Real processes: keys, certificates, and their commands; Flower's simulation."""
