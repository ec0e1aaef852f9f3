"""`parley` and `python -m parley`: first what an interrupt does, then everything else."""

from __future__ import annotations

from typing import NoReturn

from parley.interrupts import end_quietly


def main() -> NoReturn:
    """Run the command line."""
    end_quietly()
    from parley.cli import main as run_command_line  # noqa: PLC0415 - in this import (.1 s) Ctrl-C must not end in a traceback

    run_command_line()


if __name__ == "__main__":
    main()
