"""The coordinator: jobs, rounds, release decisions, checkpoints."""
