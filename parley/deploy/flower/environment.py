"""The environment that Flower's processes run in: theirs alone, offline, telling nobody.

Everything Flower or Ray would keep in a home or temp folder goes into one of ours, which is
removed afterwards. What Flower asks of the network (updates, telemetry, dependencies) is off.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from parley.deploy.environment import own_environment


def flower_environment(
    home: Path, more: Mapping[str, str] | None = None, *, scratch: Path | None = None
) -> dict[str, str]:
    """The environment of a Flower process whose files all go under `home`.

    The folder is made; `more` is added, e.g. PARLEY_SERVER. `scratch` is where temporary files go
    instead of `home/tmp`.
    """
    scratch = scratch or home / "tmp"
    scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    return {
        **{
            name: value for name, value in own_environment().items() if not name.startswith("FLWR_")
        },
        "FLWR_HOME": str(home),
        "TMPDIR": str(scratch),
        "RAY_TMPDIR": str(scratch),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_DEDUP_LOGS": "0",
        **(more or {}),
    }
