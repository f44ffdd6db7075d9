"""Calls: what the commands that ask again need of a server, as JSON, over the client's connections and retries."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

from photocall.client import Client, JobFailed, flows
from photocall.client.flows import Call
from photocall.settings import client_settings

WAIT_S = 20  # one long poll


class Calls(Client):
    """The client, for callers that make their own bodies. What is refused raises RequestRefused."""

    def call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """One call, repeated where that may help; the JSON that came back."""
        return self._run(flows.call(Call(method, path, body, headers=headers or {}, read_s=30.0 + WAIT_S))).body

    def keep(self, data: bytes) -> str:
        """Store a picture; its hash."""
        sha256 = hashlib.sha256(data).hexdigest()
        if not self._run(flows.stored(sha256)):
            self._run(flows.upload(sha256, data))
        return sha256

    def start(self, path: str, body: Any = None) -> str:
        """Accept a job; its id."""
        job = self.call("POST", path, body, {"idempotency-key": secrets.token_hex(16)})
        return str(job["id"])

    def end(self, job_id: str) -> dict[str, Any]:
        """The job object, once it has succeeded. Raises JobFailed for any other end."""
        while True:
            job: dict[str, Any] = self.call("GET", f"/v1/jobs/{job_id}", headers={"prefer": f"wait={WAIT_S}"})
            if job["status"] == "succeeded":
                return job
            if job["status"] in ("failed", "cancelled", "expired"):
                raise JobFailed(job)


def connect() -> Calls:
    """To the server that the environment names. Raises SettingsError."""
    settings = client_settings()
    return Calls(settings.url, settings.api_key)
