"""Many parties in one process: the fast engine, partitions, faults."""
