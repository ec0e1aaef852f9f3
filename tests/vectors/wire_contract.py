"""What server and party send each other, as text: every message, plan and agreement, with types.

`python tests/vectors/wire_contract.py` writes `wire-N.txt` for the current `WIRE_VERSION`.
"""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

from parley.client.contract import (
    agreement,
    assumptions,
    guarantee,
    message_frames,
    refusals,
    release_plan,
)
from parley.secure_agg import messages, protocol_parameters

FILE = Path(__file__).parent / f"wire-{message_frames.WIRE_VERSION}.txt"


def describe_wire() -> str:
    """Return all messages, and fields and sentences that both sides agree on."""
    lines = [f"protocol {message_frames.WIRE_VERSION}"]
    lines += [f"accountant {release_plan.ACCOUNTANT_VERSION}"]
    for kind, (keys, blobs) in message_frames.REQUESTS.items():
        typed = ", ".join(f"{key}: {inspect.formatannotation(hint)}" for key, hint in keys.items())
        lines.append(f"request {kind}({typed}) + {blobs} blobs")
    lines += [f"reason {reason}" for reason in refusals.Reason]
    for module in (agreement, release_plan, guarantee, protocol_parameters, messages):
        for name, kind in sorted(vars(module).items()):
            if dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__:
                lines += [f"{name}.{each.name}: {each.type}" for each in dataclasses.fields(kind)]
    # Agreements contain these sentences: with another wording two sides do not agree.
    lines += [
        f"{name}: {text}"
        for name, text in sorted(vars(assumptions).items())
        if name.isupper() and isinstance(text, str)
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(describe_wire(), encoding="utf-8")
