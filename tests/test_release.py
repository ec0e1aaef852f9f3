"""A release: the same bytes from the same commit, and a list of all that it needs."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from parley.version import __version__

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / ".ci"))

from build_release import repack_sdist  # noqa: E402 - a script, not a package
from make_sbom import build_sbom, read_lock  # noqa: E402


def test_every_place_states_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == __version__
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nparley {__version__}\n" in (ROOT / "docs/install.md").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = next(line for line in changes.splitlines() if line[:4] in ("## 0", "## 1", "## 2"))
    assert released.startswith(f"## {__version__} (20"), "the newest release has a date"


def pack(names: list[str], owner: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(f"parley-1/{name}")
            member.size, member.mtime, member.uid, member.uname = 2, owner, owner, f"user{owner}"
            member.mode = 0o600 + 0o100 * (name == "run") + owner % 8
            tar.addfile(member, io.BytesIO(b"ab"))
    return packed.getvalue()


def test_an_sdist_does_not_depend_on_time_owner_order_or_umask() -> None:
    one, other = pack(["b", "a", "run"], 5), pack(["run", "a", "b"], 6)
    assert one != other
    assert repack_sdist(one, 1_000_000) == repack_sdist(other, 1_000_000)
    with tarfile.open(fileobj=io.BytesIO(repack_sdist(one, 1_000_000))) as tar:
        assert [(each.name, each.mode) for each in tar] == [
            *(("parley-1/a", 0o644), ("parley-1/b", 0o644), ("parley-1/run", 0o755))
        ]


def test_the_bill_of_materials_has_every_locked_package_with_its_digests() -> None:
    assert build_sbom(5) == build_sbom(5)
    made, locked = json.loads(build_sbom(5)), read_lock()
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert {each["name"]: each["version"] for each in made["components"]} == {
        name: version for name, (version, _) in locked.items()
    }
    torch = next(each for each in made["components"] if each["name"] == "torch")
    assert {each["value"] for each in torch["properties"]} == set(locked["torch"][1])
    assert torch["licenses"]
    needs = {each["ref"]: each["dependsOn"] for each in made["dependencies"]}
    references = {each["bom-ref"] for each in made["components"]}
    assert set(needs) == references | {made["metadata"]["component"]["bom-ref"]}
    assert {name for each in needs.values() for name in each} <= references
    own = needs[f"pkg:pypi/parley@{__version__}"]
    assert {name.split("@")[0] for name in own} >= {"pkg:pypi/torch", "pkg:pypi/numpy"}


@pytest.mark.heavy
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository")
def test_two_builds_of_a_commit_have_equal_bytes(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / ".ci" / "build_release.py", tmp_path, "--check"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert (tmp_path / "SHA256SUMS").read_text() == "".join(said.splitlines(True)[-3:])
    for line in (tmp_path / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest
