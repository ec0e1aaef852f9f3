"""Which Parley this is: the number that `pyproject.toml` has, too."""

__version__ = "0.1.0"
