"""What is installed is whole, whichever way Parley came: a downloaded zip, an sdist, editable."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_SETUPTOOLS = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "setuptools"
]
_PACKAGES = ("parley", *_SETUPTOOLS["package-dir"].values())


def _placed(file: str) -> str:
    """Where an install has a file of a checkout's packages."""
    return file if file.startswith("parley/") else f"parley/{file}"


def _python(*words: str, at: Path, path: Path | None = None) -> str:
    """What Python prints there; nothing of this checkout is on its path."""
    environment = {**os.environ, "PYTHONPATH": str(path or "")}
    done = subprocess.run(
        [sys.executable, "-P", *words],
        cwd=at,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _built(kind: str, source: Path, to: Path) -> Path:
    """What setuptools makes of a folder of sources, as pip has it do."""
    to.mkdir()
    _python("-c", f"from setuptools.build_meta import build_{kind} as b; b({str(to)!r})", at=source)
    (made,) = to.iterdir()
    return made


@pytest.fixture(scope="module")
def downloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip that a forge makes of the last commit, unpacked by what knows no links."""
    if not (_ROOT / ".git").exists():
        pytest.skip("needs the repository, this is a copy of its files")
    to = tmp_path_factory.mktemp("downloaded")
    packed = to / "parley.zip"
    subprocess.run(["git", "archive", "--format=zip", "-o", packed, "HEAD"], cwd=_ROOT, check=True)
    shutil.unpack_archive(packed, to / "parley")
    return to / "parley"


def test_every_package_of_a_checkout_is_listed_for_an_install() -> None:
    folders = {
        path.parent.relative_to(_ROOT).as_posix()
        for room in _PACKAGES
        for path in (_ROOT / room).rglob("__init__.py")
    }
    assert {_placed(f"{each}/").strip("/").replace("/", ".") for each in folders} == set(
        _SETUPTOOLS["packages"]
    )


def test_a_downloaded_zip_and_its_sdist_install_every_file_and_run(
    downloaded: Path, tmp_path: Path
) -> None:
    listed = ["git", "ls-tree", "-r", "--name-only", "HEAD", *_PACKAGES]
    files = subprocess.run(listed, cwd=_ROOT, capture_output=True, text=True, check=True).stdout
    shutil.unpack_archive(_built("sdist", downloaded, tmp_path / "sdist"), tmp_path / "unpacked")
    (source,) = (tmp_path / "unpacked").iterdir()
    assert (source / "tests" / "test_install.py").exists()  # README's second command runs there
    for name, folder in {"zip": downloaded, "source": source}.items():
        wheel = _built("wheel", folder, tmp_path / name)
        with zipfile.ZipFile(wheel) as packed:
            installed = {each for each in packed.namelist() if ".dist-info/" not in each}
            assert installed == {_placed(file) for file in files.splitlines()}
            packed.extractall(tmp_path / name / "installed")
        said = _python("-m", "parley", "plan", at=tmp_path, path=tmp_path / name / "installed")
        assert "5 parties of at least 91 records, logistic" in said


def test_a_checkout_runs_from_its_path_alone_and_installed_to_be_edited(
    downloaded: Path, tmp_path: Path
) -> None:
    shown = "import parley.client.contract.release_plan as plan; print(plan.__file__)"
    file = str(downloaded / "client/contract/release_plan.py")
    assert _python("-c", shown, at=tmp_path, path=downloaded).strip() == file
    wheel = _built("editable", downloaded, tmp_path / "editable")
    shutil.unpack_archive(wheel, tmp_path / "site", format="zip")
    # Without what else is installed to be edited, which may be this checkout.
    paths = f"sys.path += {[path for path in sys.path if path.endswith('-packages')]!r}"
    added = f"import site, sys; site.addsitedir({str(tmp_path / 'site')!r}); {paths}; {shown}"
    assert _python("-S", "-c", added, at=tmp_path).strip() == file
