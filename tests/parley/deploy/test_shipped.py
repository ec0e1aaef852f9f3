"""The files in deploy/: they parse, and every command in them is one that exists."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer.main
import yaml
from commands import NAMES

from parley.cli import app
from parley.deploy.child_processes import find_free_ports
from parley.deploy.process_errors import wait_until
from parley.deploy.stream.metrics_server import MetricsServer, Monitor

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "deploy"
UNITS = sorted((SHIPPED / "systemd").glob("*.service"))
COMPOSE = yaml.safe_load((SHIPPED / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]


def parsed(words):
    """The command that `parley WORDS` would be, with its options; nothing is run."""
    node, context = typer.main.get_command(app), None
    while True:
        context = node.make_context(node.name, list(words), parent=context)
        node = context.command
        if not hasattr(node, "commands"):
            return node.name, context.params
        rest = [*context._protected_args, *context.args]
        _, node, words = node.resolve_command(context, rest)


def ran(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, check=False, **more)


def unit(path):
    read = configparser.RawConfigParser(strict=False)
    read.optionxform = str
    read.read(path, encoding="utf-8")
    return read


each_unit = pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)


@each_unit
def test_a_units_command_exists_and_may_write_its_folder_alone(path):
    service = unit(path)["Service"]
    program, *words = shlex.split(service["ExecStart"])
    command, options = parsed(words)
    assert program == "/opt/parley/bin/parley"
    assert path.stem == f"parley-{command}"
    assert service["ReadWritePaths"] == options["folder"]
    assert options["log_json"]
    assert service["User"] != "root"
    assert re.fullmatch(r"[0-9]+G", service["MemoryMax"])
    assert "@system-service" in path.read_text(encoding="utf-8")
    assert service["SuccessExitStatus"] == "130"  # how an interrupt ends it


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@each_unit
def test_systemd_finds_nothing_wrong_with_a_unit(path, tmp_path):
    text = path.read_text(encoding="utf-8").replace("/opt/parley/bin/parley", "/bin/true")
    (tmp_path / path.name).write_text(text, encoding="utf-8")
    done = ran("systemd-analyze", "verify", tmp_path / path.name)
    assert path.name not in done.stderr, done.stderr


def instructions():
    text = (SHIPPED / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def copied_files():
    """What the image is built from."""
    copies = [rest for name, rest in instructions() if name == "COPY" and "--from" not in rest]
    return {source for rest in copies for source in rest.split()[:-1]}


def test_the_image_holds_the_package_and_nothing_that_is_secret():
    copied = copied_files()
    assert all((ROOT / source).exists() for source in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    beside = set(project["tool"]["setuptools"]["package-dir"].values())
    assert beside | {"parley", "pyproject.toml", "deploy/requirements.lock"} <= copied
    first, *rules = (SHIPPED / "Dockerfile.dockerignore").read_text().splitlines()[1:]
    assert first == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == copied
    names = [name for name, _ in instructions()]
    assert "RUN" not in names[names.index("USER") :]
    assert dict(instructions())["ENTRYPOINT"] == '["parley"]'
    least = tuple(map(int, re.findall(r"\d+", project["project"]["requires-python"])))
    base = dict(instructions())["ARG"].removeprefix("BASE=")
    images = [rest.split()[0] for name, rest in instructions() if name == "FROM"]
    assert images == ["${BASE}", "${BASE}"]
    assert re.fullmatch(r"python:\d\.\d+-slim@sha256:[0-9a-f]{64}", base)
    assert tuple(map(int, re.findall(r"python:(\d+)\.(\d+)", base)[0])) >= least
    installs = [rest for name, rest in instructions() if name == "RUN" and "pip install" in rest]
    assert all("--require-hashes -r requirements.lock" in rest for rest in installs)
    assert all("--no-deps --no-build-isolation ." in rest for rest in installs)


@pytest.mark.heavy
def test_what_the_image_is_built_from_is_a_parley_that_runs(tmp_path):
    source, wheels = tmp_path / "source", tmp_path / "wheels"
    source.mkdir()
    for each in copied_files():
        copy = shutil.copytree if (ROOT / each).is_dir() else shutil.copy
        copy(ROOT / each, source / Path(each).name)
    build = ("--quiet", "--no-deps", "--no-build-isolation", "-w", wheels, source)
    built = ran(sys.executable, "-m", "pip", "wheel", *build)
    assert built.returncode == 0, built.stderr
    (wheel,) = wheels.iterdir()
    shutil.unpack_archive(wheel, tmp_path / "installed", format="zip")
    job = ["--set", "parties.count=3", "--set", "algorithm.rounds=1", "--set", "data.records=90"]
    done = ran(
        *(sys.executable, "-P", "-m", "parley", "run", *job, "--out", tmp_path / "run"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.html").exists()


def test_the_composed_services_are_a_server_and_parties_that_see_their_own_folder_alone():
    assert set(SERVICES) == {"server", *NAMES}
    folders = set()
    for name, service in SERVICES.items():
        command, options = parsed(service["command"])
        assert command == ("server" if name == "server" else "party")
        assert options["folder"] == "/data"
        (volume,) = service["volumes"]
        folders.add(volume)
        at = "server" if name == "server" else f"parties/{name}"
        assert volume == f"../consortium/{at}:/data"
        assert service["networks"] == (list(NAMES) if name == "server" else [name])
        assert "ports" not in service
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"]
    assert len(folders) == len(SERVICES)
    assert (SHIPPED / SERVICES["server"]["build"]["context"]).resolve() == ROOT
    assert (ROOT / SERVICES["server"]["build"]["dockerfile"]).exists()


@pytest.mark.skipif(shutil.which("docker") is None, reason="needs docker")
def test_docker_reads_the_compose_file():
    done = ran("docker", "compose", "-f", SHIPPED / "compose.yaml", "config", "--quiet")
    if "is not a docker command" in done.stderr or "unknown shorthand flag" in done.stderr:
        pytest.skip("this docker has no compose")
    assert done.returncode == 0, done.stderr


def healthy(port):
    """What the composed health check says, at another port."""
    (kind, _, *words, url) = SERVICES["server"]["healthcheck"]["test"]
    assert kind == "CMD"
    asked = parsed(SERVICES["server"]["command"])[1]["monitor"]
    assert f":{asked}/" in url
    return ran(sys.executable, *words, url.replace(f":{asked}/", f":{port}/")).returncode == 0


def test_the_composed_health_check_asks_where_the_server_answers(world):
    transport = world.open()
    with MetricsServer(Monitor(transport._port, queue=None, say=None), port=0) as pages:
        assert healthy(pages.port)
    assert not healthy(pages.port)


def test_every_command_in_the_readme_exists():
    text = (SHIPPED / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"(?:^docker run .* parley |server parley |`parley )([^`\n]*)", text, re.M)
    assert len(named) >= 4
    for line in named:
        words = shlex.split(line)
        if words not in (["server"], ["party"]):  # in prose
            parsed(words)
    for file in re.findall(r"deploy/[a-zA-Z/.-]+|`systemd/[a-z.-]+", text):
        assert (ROOT / file).exists() or (SHIPPED / file.strip("`")).exists(), file


@pytest.mark.heavy
def test_the_composed_commands_make_a_consortium_that_is_healthy(ground, parley, consortium):
    (port,) = find_free_ports(1)
    for name, service in SERVICES.items():
        at = consortium / ("server" if name == "server" else f"parties/{name}")
        words = [str(at) if word == "/data" else word for word in service["command"]]
        words = [str(port) if word == "9100" else word for word in words]
        number = parley.start(*words)
        if name == "server":
            server = number
            wait_until(lambda: healthy(port), what="health", timeout_s=60, poll_s=0.5)
    wait_until(lambda: "(3 of 3)" in parley.said(server), what="the parties", timeout_s=90)
    assert parley.end() == [130, 130, 130, 130]
