"""The Flower app that a run is submitted as: no code, only which job.

The modules that its components name are those installed where it runs.
"""

from __future__ import annotations

import tomli_w

from parley.server.jobs.job import Job
from parley.server.jobs.run_config import RUN_KEYS, to_run_config


def job_app(job: Job, **own: str) -> dict[str, bytes]:
    """The files of a Flower app that runs this job; `own` sets keys of `RUN_KEYS` (with _ for -).

    >>> from parley.server.jobs.file import load_job
    >>> text = job_app(load_job(), run_folder="a")["pyproject.toml"].decode()
    >>> print(text[text.index("[tool.flwr.app.config]") :].splitlines()[1])
    run-folder = "a"
    """
    config = {**RUN_KEYS, **{key.replace("_", "-"): value for key, value in own.items()}}
    content = {
        "project": {
            "name": "parley",
            "version": "1.0.0",
            "description": "A Parley job",
            "license": "Apache-2.0",
            "dependencies": [],
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "parley",
                    "components": {
                        "serverapp": "parley.server.app:app",
                        "clientapp": "parley.client.app:app",
                    },
                    # A job's keys stay dotted: Flower joins nested ones with the same dots.
                    "config": config | to_run_config(job),
                }
            }
        },
    }
    return {"pyproject.toml": tomli_w.dumps(content).encode()}
