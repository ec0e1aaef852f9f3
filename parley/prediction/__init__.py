"""Predictions: load a model file, read the rows of a table, and return labels with their names."""
