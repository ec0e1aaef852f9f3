"""A simulation's data sets, split among parties."""
