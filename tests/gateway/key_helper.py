"""A gateway with API keys, for tests: each key is its own id, so `Bearer ann` is ann."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from photocall.settings import GatewaySettings


def line(name: str, scopes: str = "ask,batch", limits: str = "") -> str:
    """The line of a key that is its own id."""
    return ":".join((name, hashlib.sha256(name.encode()).hexdigest(), scopes, *([limits] if limits else [])))


def keyed(settings: GatewaySettings, **lines: str) -> GatewaySettings:
    """Settings with these keys; each value is what stands behind the hash: `ask,batch:rate=10/s`."""
    file = settings.data / "keys"
    write(file, **lines)
    return replace(settings, api_keys=file)


def write(file: Path, **lines: str) -> None:
    """Put these keys into the file, whole, as `photocall keys` does."""
    new = file.with_name("keys.new")
    new.write_text("".join(line(name, *rest.split(":")) + "\n" for name, rest in lines.items()))
    new.replace(file)


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}
