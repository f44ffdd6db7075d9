"""What a build is told of this machine: wheels and pip's settings, laid into wheels/ only while it builds."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
from docker.errors import APIError, ImageNotFound

from ops import stack_images
from ops.stack_images import base_images, pip_setting, wheels_for_build

SCRIPT = Path(stack_images.__file__).parent / "ci_docker.sh"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with one wheel, a private index, and a certificate."""
    wheels = tmp_path / "machine"
    wheels.mkdir()
    (wheels / "torch-2.13.0-py3-none-any.whl").write_text("torch")
    (wheels / "torchvision-0.29-py3-none-any.whl").write_text("another")
    (tmp_path / "ca.pem").write_text("a certificate")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{wheels} {tmp_path / 'missing'}")
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file://{wheels} https://more.example/simple")
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "ca.pem"))
    return tmp_path


def test_wheels_and_settings_lie_there_for_the_build_only(machine: Path) -> None:
    folder = machine / "wheels"
    folder.mkdir()
    (folder / ".gitkeep").touch()
    with wheels_for_build(folder):
        names = sorted(path.name for path in folder.iterdir())
        assert names == [".gitkeep", "ca.crt", "pip.conf", "torch-2.13.0-py3-none-any.whl"]
        assert (folder / "pip.conf").read_text().splitlines() == [
            "[global]",
            "index-url = https://index.example/simple",
            "extra-index-url = https://more.example/simple",
            "cert = /wheels/ca.crt",
        ]
    assert [path.name for path in folder.iterdir()] == [".gitkeep"]


def test_what_the_operator_laid_there_stays(machine: Path) -> None:
    folder = machine / "wheels"
    folder.mkdir()
    (folder / "pip.conf").write_text("[global]\nindex-url = mine\n")
    (folder / "torch-2.13.0-py3-none-any.whl").write_text("mine")
    with pytest.raises(RuntimeError), wheels_for_build(folder):
        raise RuntimeError
    assert (folder / "pip.conf").read_text() == "[global]\nindex-url = mine\n"
    assert (folder / "torch-2.13.0-py3-none-any.whl").read_text() == "mine"


def test_settings_come_from_pips_files_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\ntrusted-host = one two\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.delenv("PIP_TRUSTED_HOST", raising=False)
    assert pip_setting("trusted-host") == ["one", "two"]


class Images:
    """An engine that has some images and can pull some."""

    def __init__(self, here: set[str], pullable: set[str]) -> None:
        self.here, self.pullable = here, pullable
        self.images = self

    def get(self, name: str) -> None:
        if name not in self.here:
            raise ImageNotFound("no such image")

    def pull(self, repository: str) -> None:
        if repository not in self.pullable:
            raise APIError("no such host")


def test_real_images_are_preferred_and_stand_ins_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PHOTOCALL_BASE_IMAGE", raising=False)
    monkeypatch.delenv("PHOTOCALL_PROXY_IMAGE", raising=False)
    monkeypatch.setenv("PHOTOCALL_REDIS_IMAGE", "my/redis:1")
    client = Images(here={"my/redis:1"}, pullable=set())
    assert base_images(client) == {
        "PHOTOCALL_BASE_IMAGE": "photocall-stand-in/python:bookworm",
        "PHOTOCALL_REDIS_IMAGE": "my/redis:1",
        "PHOTOCALL_PROXY_IMAGE": "photocall-stand-in/haproxy:bookworm",
    }
    client = Images(here=set(), pullable={"python:3.11-slim-bookworm", "my/redis:1"})
    assert base_images(client)["PHOTOCALL_BASE_IMAGE"] == "python:3.11-slim-bookworm"


def test_the_script_and_the_stack_agree_on_the_names() -> None:
    text = SCRIPT.read_text()
    for real, stand_in in stack_images.IMAGES.values():
        assert f":-{real}}}" in text
        assert f"={stand_in}\n" in text


def test_the_script_says_loudly_why_there_is_no_engine(tmp_path: Path) -> None:
    """A daemon that ends at once: its last lines are shown."""
    for name, body in {
        "dockerd": "echo 'level=error msg=\"the kernel has no overlay\"'; exit 1",
        "docker": "exit 1",
        "docker-compose": "exit 0",
        "iptables": "exit 0",
        "id": "echo 0",
        "pgrep": "exit 0",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(stat.S_IRWXU)
    environment = os.environ | {"PATH": f"{tmp_path}:/usr/bin:/bin", "PHOTOCALL_DOCKER_STATE": str(tmp_path / "state")}
    done = subprocess.run(
        ["bash", str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "!! ci_docker: dockerd ended at once" in done.stderr
    assert "the kernel has no overlay" in done.stderr
