"""What ended a run, left where whoever waits for it looks: `error.json` in its folder."""

from __future__ import annotations

import traceback
from pathlib import Path

from parley.server.records.plain_json import json_text
from parley.server.records.run_folder import write_whole


def write_error(folder: Path, error: BaseException) -> None:
    """Writes the error's class, message and trace, whole or not at all."""
    kind, trace = type(error), "".join(traceback.format_exception(error))
    said = {"error": f"{kind.__module__}.{kind.__qualname__}", "message": str(error)}
    write_whole(folder / "error.json", json_text({**said, "trace": trace}).encode())
