"""Telling an experiment tracker of a run: parameters, ε by round, figures, artefacts."""
