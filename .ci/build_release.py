"""Build a release: sdist, wheel, their digests and a software bill of materials.

    python .ci/build_release.py dist             builds the committed files into dist/
    python .ci/build_release.py dist --check     builds twice and compares every byte

Each build starts from a fresh export of the commit. SOURCE_DATE_EPOCH is the commit's time, so the
same commit gives the same bytes with the same setuptools (`deploy/requirements.lock` pins it).
setuptools writes the time of the build and the owner of files into an sdist, so the sdist is packed
again with the commit's time, no owner, and sorted names.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from make_sbom import build_sbom

ROOT = Path(__file__).resolve().parents[1]


def get_commit_time() -> int:
    """Return the time of the commit, in seconds since 1970."""
    command = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)


def build_once(folder: Path, epoch: int) -> dict[str, bytes]:
    """Build sdist and wheel from an export of the commit; return name → content."""
    source, made = folder / "source", folder / "made"
    source.mkdir()
    made.mkdir()
    archive = subprocess.run(
        ["git", "archive", "--format=tar", "HEAD"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(source, filter="tar")
    for kind in ("sdist", "wheel"):
        code = f"from setuptools.build_meta import build_{kind} as b; b({str(made)!r})"
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=source,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONPATH": ""},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    content = {path.name: path.read_bytes() for path in sorted(made.iterdir())}
    return {
        name: repack_sdist(data, epoch) if name.endswith(".tar.gz") else data
        for name, data in content.items()
    }


def repack_sdist(data: bytes, epoch: int) -> bytes:
    """Return the sdist with fixed times, owners, modes and order."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as old,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    compressed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=compressed, mtime=epoch) as file:
        file.write(packed.getvalue())
    return compressed.getvalue()


def main() -> None:
    """Build a release into a folder."""
    parser = argparse.ArgumentParser(description="Build sdist, wheel, digests and SBOM.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="Build twice and compare.")
    options = parser.parse_args()
    epoch, builds = get_commit_time(), []
    os.umask(0o022)  # a wheel has the modes of the built files
    for _ in range(1 + options.check):
        with tempfile.TemporaryDirectory() as folder:
            builds.append(build_once(Path(folder), epoch))
    for name, data in builds[-1].items():
        if data != builds[0][name]:
            raise SystemExit(f"Expected two builds with equal bytes, {name} differs.")
    files = builds[0] | {"parley.cdx.json": build_sbom(epoch).encode()}
    options.folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, data in sorted(files.items()):
        (options.folder / name).write_bytes(data)
        lines.append(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
    (options.folder / "SHA256SUMS").write_text("".join(lines))
    print("".join(lines), end="")


if __name__ == "__main__":
    main()
