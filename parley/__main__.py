"""Run `parley` or `python -m parley`. Interrupts are handled first, then all else is imported."""

from __future__ import annotations

import sys
from typing import NoReturn

from parley.startup_interrupts import end_quietly


def start() -> NoReturn:
    """Run the command line."""
    end_quietly()
    try:
        from parley.cli import main  # noqa: PLC0415 - in this import (0.1 s) Ctrl-C must not end in a traceback
    except EOFError as error:
        from parley.incomplete_bytecode import describe_incomplete_bytecode  # noqa: PLC0415 - only for an error

        if (incomplete := describe_incomplete_bytecode(error)) is None:
            raise
        sys.exit(f"parley: {incomplete}")
    main()


if __name__ == "__main__":
    start()
