"""Version of Parley, which equals the number in `pyproject.toml`."""

__version__ = "1.0.0"
