"""Using what was learned: a model file, the rows of a table, and labels with their names."""
