"""Make a software bill of materials (CycloneDX 1.6, JSON) of Parley and what it needs.

    python .ci/make_sbom.py > parley.cdx.json

Components are the packages of `deploy/requirements.lock`, with the digest of each file. Licences
and dependencies come from the metadata of the packages that are installed here. For a complete
document, run it in an environment that was installed from the lock file.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
import uuid
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_LOCK = ROOT / "deploy" / "requirements.lock"


def read_lock() -> dict[str, tuple[str, list[str]]]:
    """Return name → version and SHA-256 digests of the lock file."""
    locked = {}
    for line in _LOCK.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        found = re.match(r"([\w.-]+)==([^\s;]+)", line)
        if found:
            locked[found[1]] = (found[2], re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
    return locked


def build_sbom(epoch: int) -> str:
    """Return the document as JSON; the same inputs give the same bytes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = read_lock()
    references = {name: f"pkg:pypi/{name}@{version}" for name, (version, _) in locked.items()}
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    needed = [*project["dependencies"], *project["optional-dependencies"]["postgres"]]
    body: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": project["name"],
                "version": project["version"],
                "licenses": [{"license": {"id": project["license"]}}],
                "purl": own,
            },
        },
        "components": [
            {
                "type": "library",
                "bom-ref": references[name],
                "name": name,
                "version": version,
                **_describe_licence(name),
                "purl": references[name],
                "properties": [
                    {"name": "parley:file:sha256", "value": digest} for digest in sorted(digests)
                ],
            }
            for name, (version, digests) in sorted(locked.items())
        ],
        "dependencies": [
            {"ref": own, "dependsOn": _find_locked(needed, references)},
            *(
                {
                    "ref": references[name],
                    "dependsOn": _find_locked(_list_requirements(name), references),
                }
                for name in sorted(locked)
            ),
        ],
    }
    text = json.dumps(body, sort_keys=True)
    body["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, text)}"
    return json.dumps(body, indent=1) + "\n"


def _list_requirements(name: str) -> list[str]:
    """Return what an installed package needs without extras."""
    try:
        listed = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    return [line for line in listed if "extra ==" not in line]


def _find_locked(requirements: list[str], references: dict[str, str]) -> list[str]:
    names = (re.match(r"[\w.-]+", line) for line in requirements)
    plain = {re.sub(r"[-_.]+", "-", found[0]).lower() for found in names if found}
    return sorted(references[name] for name in plain & references.keys())


def _describe_licence(name: str) -> dict[str, Any]:
    try:
        stated = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return {}
    if expression := stated.get("License-Expression"):
        return {"licenses": [{"expression": expression}]}
    trove = [each for each in stated.get_all("Classifier") or () if each.startswith("License ::")]
    text = (
        trove[-1].rpartition(" :: ")[2] if trove else (stated.get("License") or "").split("\n")[0]
    )
    return {"licenses": [{"license": {"name": text[:100]}}]} if text else {}


if __name__ == "__main__":
    print(build_sbom(int(os.environ.get("SOURCE_DATE_EPOCH", "0"))), end="")
