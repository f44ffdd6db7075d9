"""What the stack's images are built from on this machine: base images, and what pip inside a build is told.

A registry that can be reached gives the real base images; where none can, the stand-ins of `ops/ci_docker.sh` serve.
A build cannot see this machine's pip settings or its wheels, so what matters of both is laid into `wheels/` for as
long as the build takes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from docker.errors import APIError, ImageNotFound

IMAGES = {
    "PHOTOCALL_BASE_IMAGE": ("python:3.11-slim-bookworm", "photocall-stand-in/python:bookworm"),
    "PHOTOCALL_REDIS_IMAGE": ("redis:7.2-bookworm", "photocall-stand-in/redis:bookworm"),
    "PHOTOCALL_PROXY_IMAGE": ("haproxy:3.0-bookworm", "photocall-stand-in/haproxy:bookworm"),
}
REMOTE = ("http", "https")


class Images(Protocol):
    """What is asked of an engine's images."""

    def get(self, name: str) -> object: ...
    def pull(self, repository: str) -> object: ...


class Engine(Protocol):
    """A docker client, as far as it is needed here."""

    @property
    def images(self) -> Images: ...


def base_images(client: Engine) -> dict[str, str]:
    """The variables that name the base images, for compose. Those that are set stay."""
    chosen = {}
    for variable, (image, stand_in) in IMAGES.items():
        wanted = os.environ.get(variable) or image
        chosen[variable] = wanted if can_have(client, wanted) else stand_in
        print(f"stack-test: {variable}={chosen[variable]}", flush=True)
    return chosen


def can_have(client: Engine, image: str) -> bool:
    """It is here, or can be pulled."""
    try:
        client.images.get(image)
    except ImageNotFound:
        try:
            client.images.pull(image)
        except APIError:
            return False
    return True


@contextmanager
def wheels_for_build(folder: Path) -> Iterator[None]:
    """Lay torch's wheel, pip's settings and the certificates into `folder`; what was put there goes afterwards."""
    added = []
    try:
        for wheel in local_wheels("torch"):
            if not (folder / wheel.name).exists():
                shutil.copy(wheel, folder)
                added.append(folder / wheel.name)
        if not (folder / "pip.conf").exists():
            added += write_pip_config(folder)
        yield
    finally:
        for path in added:
            path.unlink()


def local_wheels(name: str) -> list[Path]:
    """Wheels of a package in the directories that this machine's pip looks into."""
    folders = [Path(word.removeprefix("file://")) for word in pip_setting("find-links")]
    return [wheel for folder in folders if folder.is_dir() for wheel in sorted(folder.glob(f"{name}-*.whl"))]


def write_pip_config(folder: Path) -> list[Path]:
    """pip's index and certificates as this machine has them; folders of this machine mean nothing inside."""
    lines, written = ["[global]"], [folder / "pip.conf"]
    for name in ("index-url", "extra-index-url", "trusted-host", "proxy"):
        values = [v for v in pip_setting(name) if name in ("trusted-host", "proxy") or urlsplit(v).scheme in REMOTE]
        if values:
            lines.append(f"{name} = {' '.join(values)}")
    for certificates in pip_setting("cert"):
        shutil.copy(certificates, folder / "ca.crt")
        written.append(folder / "ca.crt")
        lines.append("cert = /wheels/ca.crt")
    written[0].write_text("\n".join(lines) + "\n")
    return written


def pip_setting(name: str) -> list[str]:
    """The words of one of pip's global settings, its environment variable first."""
    from_environment = os.environ.get("PIP_" + name.upper().replace("-", "_"))
    if from_environment:
        return from_environment.split()
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        if key == f"global.{name}":
            return list(json.loads(value.replace("'", '"')).split())
    return []
