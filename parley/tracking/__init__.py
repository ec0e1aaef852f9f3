"""Report a run to an experiment tracker: parameters, ε by round, metrics, artefacts."""
