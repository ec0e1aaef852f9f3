"""Version of Parley, which equals the number in `pyproject.toml`."""

__version__ = "0.1.0"
