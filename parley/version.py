"""Which Parley this is: the number that `pyproject.toml` has, too."""

__all__ = ["__version__"]

__version__ = "0.1.0"
