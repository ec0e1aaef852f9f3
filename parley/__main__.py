"""Run `parley` or `python -m parley`. Interrupts are handled first, then all else is imported."""

from __future__ import annotations

from typing import NoReturn

from parley.startup_interrupts import end_quietly


def start() -> NoReturn:
    """Run the command line."""
    end_quietly()
    from parley.cli import main  # noqa: PLC0415 - in this import (0.1 s) Ctrl-C must not end in a traceback

    main()


if __name__ == "__main__":
    start()
