"""Real processes: keys, certificates, Flower's SuperLink and SuperNodes, and their commands."""
