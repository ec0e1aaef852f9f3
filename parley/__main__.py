"""`parley` and `python -m parley`: first what an interrupt does, then everything else."""

from __future__ import annotations

from typing import NoReturn

from parley.interrupts import end_quietly


def start() -> NoReturn:
    """Run the command line."""
    end_quietly()
    from parley.cli import main  # noqa: PLC0415 - in this import (.1 s) Ctrl-C must not end in a traceback

    main()


if __name__ == "__main__":
    start()
