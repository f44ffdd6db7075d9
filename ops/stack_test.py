"""`make stack-test`: the whole stack on a real Docker Engine.

Builds the three images, brings everything up under a project name of its own, asks a picture, kills one prep worker's
container, the engine's process and Redis while jobs are under way, sees every answer, stops it, takes everything down
and checks that nothing is left. A client like any other: it knows the HTTP API and the containers' labels, no room.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import secrets
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import httpx
from docker.models.containers import Container
from PIL import Image, ImageDraw

from ops.stack_images import base_images, wheels_for_build
from photocall.local import free_port

ROOT = Path(__file__).resolve().parent.parent
PROJECT_LABEL, SERVICE_LABEL = "com.docker.compose.project", "com.docker.compose.service"
READY_S, ANSWER_S, RESTART_S = 180.0, 60.0, 120.0
SERVICES = {"redis": 1, "gateway": 1, "prep": 2, "engine": 1}


class StackError(Exception):
    """Something is not as it must be; the message says what."""


def main() -> int:
    """0 when everything held."""
    project = f"photocallstack{os.getpid()}"
    environment = os.environ | {
        "PHOTOCALL_SIGNING_KEY": secrets.token_hex(32),
        "PHOTOCALL_REDIS_PASSWORD": secrets.token_hex(16),
        "PHOTOCALL_PORT": str(free_port("127.0.0.1")),
        "COMPOSE_PROJECT_NAME": project,
        "DOCKER_CLIENT_TIMEOUT": "600",
        "COMPOSE_HTTP_TIMEOUT": "600",
    }
    client = docker.from_env(timeout=120)
    environment |= base_images(client)
    stack = Stack(client, project, f"http://127.0.0.1:{environment['PHOTOCALL_PORT']}", compose_command(), environment)
    try:
        try:
            run(stack)
        except Exception:
            stack.show_logs()
            raise
        finally:
            stack.take_down()
        stack.step("nothing is left", stack.check_nothing_left)
    except (StackError, httpx.HTTPError, docker.errors.DockerException) as error:
        print(f"stack-test: FAILED: {error}", file=sys.stderr)
        return 1
    print(f"stack-test: passed in {time.monotonic() - stack.started:.0f} s")
    return 0


def run(stack: Stack) -> None:
    """The steps, in their order."""
    model = Path(stack.environment.get("PHOTOCALL_MODEL_DIR") or ROOT / "models" / "mini")
    hidden = [file.name for file in model.iterdir() if not file.stat().st_mode & stat.S_IROTH]
    if hidden:
        raise StackError(f"the containers' user cannot read {', '.join(hidden)} in {model}; chmod o+r helps")
    with wheels_for_build(ROOT / "wheels"):
        stack.step("build", lambda: stack.compose("build"))
    stack.step("refuses to start without a signing key", stack.refuses_without_key)
    stack.step("up", lambda: stack.compose("up", "-d"))
    stack.step("ready", stack.wait_ready)
    stack.step("contained", stack.check_containers)
    stack.step("ask", stack.ask_now)
    stack.step("kill a prep worker's container", stack.survives_prep_kill)
    stack.step("kill the engine's process", stack.survives_engine_kill)
    stack.step("kill Redis", stack.survives_redis_kill)
    stack.step("stop", stack.check_stop)


def compose_command() -> list[str]:
    """`docker compose` where it is there, else `docker-compose`."""
    if shutil.which("docker"):
        found = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if found.returncode == 0:
            return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    raise SystemExit("stack-test: neither `docker compose` nor `docker-compose` is installed")


class Stack:
    """A running project and its address."""

    def __init__(
        self, client: docker.DockerClient, project: str, address: str, command: list[str], environment: dict[str, str]
    ) -> None:
        self.client = client
        self.project = project
        self.http = httpx.Client(base_url=address, timeout=30, trust_env=False)
        self.command = [*command, "--file", str(ROOT / "docker-compose.yml"), "--project-directory", str(ROOT)]
        self.environment = environment
        self.started = time.monotonic()

    def step(self, name: str, action: Callable[[], object]) -> None:
        """Do one thing and say how long it took."""
        began = time.monotonic()
        action()
        print(f"stack-test: {name}: ok ({time.monotonic() - began:.1f} s)", flush=True)

    def compose(self, *arguments: str) -> None:
        """Run compose; its output is shown only when it fails."""
        done = subprocess.run([*self.command, *arguments], env=self.environment, capture_output=True, text=True)
        if done.returncode:
            raise StackError(f"compose {' '.join(arguments)}: {(done.stdout + done.stderr)[-4000:]}")

    def containers(self, service: str) -> list[Container]:
        """The running containers of a service, found by label."""
        labels = [f"{PROJECT_LABEL}={self.project}", f"{SERVICE_LABEL}={service}"]
        return list(self.client.containers.list(filters={"label": labels}))

    def wait_ready(self) -> None:
        """Until /readyz says 200: Redis, prep, and an engine that has run a real forward."""
        self._wait(READY_S, "ready", lambda: self._ready(workers=2))

    def refuses_without_key(self) -> None:
        """compose itself refuses, naming the variable."""
        environment = {k: v for k, v in self.environment.items() if k != "PHOTOCALL_SIGNING_KEY"}
        done = subprocess.run([*self.command, "config"], env=environment, capture_output=True, text=True, check=False)
        if done.returncode == 0 or "long random word" not in done.stdout + done.stderr:
            raise StackError("compose starts without a signing key")

    def check_containers(self) -> None:
        """As many as there must be, none as root, none writable, and the port on loopback only."""
        for service, count in SERVICES.items():
            found = self.containers(service)
            if len(found) != count:
                raise StackError(f"{len(found)} containers of {service}, not {count}")
            for container in found:
                user = container.exec_run(["id", "-u"]).output.decode().strip()
                if user in ("", "0"):
                    raise StackError(f"{container.name} runs as user {user!r}")
                if container.exec_run(["touch", "/written"]).exit_code == 0:
                    raise StackError(f"{container.name} can write to its image")
                for bindings in container.attrs["NetworkSettings"]["Ports"].values():
                    if any(binding["HostIp"] != "127.0.0.1" for binding in bindings or []):
                        raise StackError(f"{container.name} publishes {bindings}")

    def ask_now(self) -> None:
        """A picture through the synchronous route."""
        response = self.http.post("/v1/systemone", json=request_body("red"))
        if response.status_code != 200:
            raise StackError(f"/v1/systemone: {response.status_code} {response.text[:500]}")
        check_answer(response.json(), "red")

    def survives_prep_kill(self) -> None:
        """SIGKILL to one of two prep containers with jobs on the queue: the other one prepares them all."""
        jobs = [self._submit(index) for index in range(6)]
        victim = self.containers("prep")[0]
        victim.kill("SIGKILL")
        for job in jobs:
            self._answered(job)
        if len(self.containers("prep")) != 1:
            raise StackError("the killed prep container runs")
        victim.start()

    def survives_engine_kill(self) -> None:
        """SIGKILL to the engine's process with jobs under way: the engine is restarted and answers them."""
        jobs = [self._submit(index) for index in range(10, 16)]
        [engine] = self.containers("engine")
        restarts = engine.attrs["RestartCount"]
        with contextlib.suppress(docker.errors.APIError):  # the shell may go with the rest
            engine.exec_run(["sh", "-c", "kill -9 -1"])
        for job in jobs:
            self._answered(job)
        engine.reload()
        if engine.attrs["RestartCount"] <= restarts:
            raise StackError("the engine's process was not killed")

    def survives_redis_kill(self) -> None:
        """SIGKILL to Redis with jobs accepted: it comes back with all of them, and the others find it again."""
        jobs = [self._submit(index) for index in range(20, 26)]
        [victim] = self.containers("redis")
        victim.kill("SIGKILL")
        victim.start()
        for job in jobs:
            self._answered(job)

    def check_stop(self) -> None:
        """SIGTERM is obeyed within the grace period: every process of ours ends with 0."""
        running = [container for service in ("gateway", "prep", "engine") for container in self.containers(service)]
        self.compose("stop")
        for container in running:
            container.reload()
            if container.attrs["State"]["ExitCode"] != 0:
                raise StackError(f"{container.name} ended with {container.attrs['State']['ExitCode']} on SIGTERM")

    def take_down(self) -> None:
        """Everything of the project, volumes included."""
        self.http.close()
        self.step("down", lambda: self.compose("down", "--volumes", "--remove-orphans"))

    def check_nothing_left(self) -> None:
        """No container, volume or network of the project."""
        label = {"label": f"{PROJECT_LABEL}={self.project}"}
        left = [
            *self.client.containers.list(all=True, filters=label),
            *self.client.volumes.list(filters=label),
            *self.client.networks.list(filters=label),
        ]
        if left:
            raise StackError(f"left behind: {left}")

    def show_logs(self) -> None:
        """The end of every container's log."""
        for service in SERVICES:
            label = [f"{PROJECT_LABEL}={self.project}", f"{SERVICE_LABEL}={service}"]
            for container in self.client.containers.list(all=True, filters={"label": label}):
                print(f"--- {container.name} ({container.status})", file=sys.stderr)
                print(container.logs(tail=30).decode(errors="replace"), file=sys.stderr)

    def _submit(self, index: int) -> str:
        response = self.http.post("/v1/jobs", json=request_body("blue", index))
        if response.status_code != 202:
            raise StackError(f"/v1/jobs: {response.status_code} {response.text[:500]}")
        return str(response.json()["id"])

    def _answered(self, job_id: str) -> None:
        job: dict[str, Any] = {}

        def done() -> bool:
            nonlocal job
            with contextlib.suppress(httpx.TransportError):
                response = self.http.get(f"/v1/jobs/{job_id}", headers={"Prefer": "wait=5"})
                if response.status_code == 404:
                    raise StackError(f"job {job_id} was accepted and is unknown")
                job = response.json()
            return job.get("status") in ("succeeded", "failed", "expired", "cancelled")

        self._wait(ANSWER_S + RESTART_S, f"job {job_id}", done)
        if job["status"] != "succeeded":
            raise StackError(f"job {job_id}: {json.dumps(job)[:1000]}")
        check_answer(job["result"], "blue")

    def _ready(self, workers: int) -> bool:
        with contextlib.suppress(httpx.TransportError, ValueError):
            response = self.http.get("/readyz")
            return response.status_code == 200 and response.json().get("prep_workers", 0) >= workers
        return False

    def _wait(self, seconds: float, what: str, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                raise StackError(f"{what}: not within {seconds:.0f} s")
            time.sleep(0.3)


def request_body(colour: str, index: int = 0) -> dict[str, Any]:
    """One picture and two questions; every index is another picture, so that nothing comes from a cache."""
    image = Image.new("RGB", (320 + 8 * index, 240), "white")
    ImageDraw.Draw(image).ellipse((90, 50, 230, 190), fill=colour)
    out = io.BytesIO()
    image.save(out, "PNG")
    return {
        "state": "A picture: [photo]",
        "questions": {
            "colour": {"type": "choice", "instructions": "What colour is the circle?", "criteria": list(COLOURS)},
            "round": {"type": "noul", "instructions": "Is there a circle in the picture?"},
        },
        "assets": {"[photo]": {"type": "image", "data_base64": base64.b64encode(out.getvalue()).decode()}},
    }


COLOURS = ("red", "blue", "green")


def check_answer(body: dict[str, Any], colour: str) -> None:
    """A complete System One body; the shipped model must also be right."""
    answers = body["answers"]
    probabilities = answers["colour"]["probabilities"]
    if set(probabilities) != set(COLOURS) or abs(sum(probabilities.values()) - 1) > 1e-6:
        raise StackError(f"not a distribution over {COLOURS}: {probabilities}")
    if not 0 <= answers["round"]["noul"] <= 1 or body["usage"]["image_tokens"] < 1:
        raise StackError(f"not an answer about a picture: {json.dumps(body)[:1000]}")
    if "PHOTOCALL_MODEL_DIR" not in os.environ and answers["colour"]["choice"] != colour:
        raise StackError(f"the circle is {colour}: {json.dumps(answers)[:1000]}")


if __name__ == "__main__":
    raise SystemExit(main())
