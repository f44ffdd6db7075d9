"""`make stack-test`: the whole stack on a real Docker Engine.

Builds the three images, brings two gateways behind a proxy, three prep workers and an engine up under a project name of
its own, asks a picture, kills one prep worker's container, the engine's process and Redis while jobs are under way,
restarts every container in turn while callers go on, sees every answer, stops it, takes everything down and checks that
nothing is left. A client like any other: it knows the HTTP API and the containers' labels, no room.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import random
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import threading
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
SERVICES = {"redis": 1, "gateway": 2, "proxy": 1, "prep": 3, "engine": 1}
ROOMS = ("gateway", "prep", "engine")
MOST_MB = {"gateway": 60, "prep": 150}  # above the base image
CALL_EVERY_S = 0.5


class StackError(Exception):
    """Something is not as it must be; the message says what."""


def main() -> int:
    """0 when everything held."""
    project = f"photocallstack{os.getpid()}"
    environment = os.environ | {
        "PHOTOCALL_SIGNING_KEY": secrets.token_hex(32),
        "PHOTOCALL_REDIS_PASSWORD": secrets.token_hex(16),
        "PHOTOCALL_PORT": free_range(8),
        "PHOTOCALL_PROXY_PORT": str(free_port("127.0.0.1")),
        "COMPOSE_PROJECT_NAME": project,
        "DOCKER_CLIENT_TIMEOUT": "600",
        "COMPOSE_HTTP_TIMEOUT": "600",
    }
    client = docker.from_env(timeout=120)
    environment |= base_images(client)
    address = f"http://127.0.0.1:{environment['PHOTOCALL_PROXY_PORT']}"
    stack = Stack(client, project, address, compose_command(), environment)
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
    stack.step("small", stack.check_sizes)
    stack.step("refuses to start without a signing key", stack.refuses_without_key)
    stack.step("up", lambda: stack.compose("up", "-d", *(f"--scale={name}={SERVICES[name]}" for name in ROOMS)))
    stack.step("ready", stack.wait_ready)
    stack.step("contained", stack.check_containers)
    stack.step("metrics", stack.check_metrics)
    stack.step("ask", stack.ask_now)
    stack.step("kill a prep worker's container", stack.survives_prep_kill)
    stack.step("kill the engine's process", stack.survives_engine_kill)
    stack.step("kill Redis", stack.survives_redis_kill)
    stack.step("restart every container in turn", stack.survives_rolling_restart)
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


def free_range(count: int) -> str:
    """Ports in a row that nobody listens on, below those of outgoing connections: as compose writes a range."""
    for first in random.sample(range(20_000, 32_000), 200):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return f"{first}-{first + count - 1}"
    raise StackError(f"no {count} ports in a row are free")


class Stack:
    """A running project and its address."""

    def __init__(
        self, client: docker.DockerClient, project: str, address: str, command: list[str], environment: dict[str, str]
    ) -> None:
        self.client = client
        self.project = project
        self.http = httpx.Client(base_url=address, timeout=30, trust_env=False)
        files = ["--file", str(ROOT / "docker-compose.yml"), "--project-directory", str(ROOT)]
        self.command = [*command, *files, "--profile", "proxy"]
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
        self._wait(READY_S, "ready", lambda: self._ready(SERVICES["prep"]))

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

    def check_sizes(self) -> None:
        """What our layers weigh, as `docker history` says."""
        base = self._layers_mb(self.environment["PHOTOCALL_BASE_IMAGE"])
        for room, most in MOST_MB.items():
            own = self._layers_mb(f"photocall-{room}") - base
            print(f"stack-test: {room}: {own:.1f} MB above its base, at most {most}", flush=True)
            if own > most:
                raise StackError(f"the image of {room} has {own:.1f} MB above its base, more than {most}")

    def check_metrics(self) -> None:
        """Each process shows its own inside the network, the gateways by address, as Prometheus asks them."""
        [prober, *_] = self.containers("prep")
        for room, port in (("gateway", 8080), ("prep", 9464), ("engine", 9464)):
            script = (
                "import socket, urllib.request as u\n"
                f"for address in socket.gethostbyname_ex('{room}')[2]:\n"
                f"    print(u.urlopen('http://%s:{port}/metrics' % address, timeout=10).read().decode())"
            )
            done = prober.exec_run(["python", "-c", script])
            found = done.output.decode().count("# HELP process_resident_memory_bytes")
            if done.exit_code or found != SERVICES[room]:
                raise StackError(f"metrics of {found} of {SERVICES[room]} {room}: {done.output.decode()[-1000:]}")

    def ask_now(self) -> None:
        """A picture through the synchronous route."""
        response = self.http.post("/v1/systemone", json=request_body("red"))
        if response.status_code != 200:
            raise StackError(f"/v1/systemone: {response.status_code} {response.text[:500]}")
        check_answer(response.json(), "red")

    def survives_prep_kill(self) -> None:
        """SIGKILL to one of the prep containers with jobs on the queue: the others prepare them all."""
        jobs = [self._submit(index) for index in range(6)]
        victim = self.containers("prep")[0]
        victim.kill("SIGKILL")
        for job in jobs:
            self._answered(job)
        if len(self.containers("prep")) != SERVICES["prep"] - 1:
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

    def survives_rolling_restart(self) -> None:
        """Gateways, prep workers and the engine, one after another: every call is taken, every job answered."""
        jobs: list[str] = []
        errors: list[BaseException] = []
        done = threading.Event()

        def call() -> None:
            try:
                while not done.wait(CALL_EVERY_S):
                    jobs.append(self._submit(100 + len(jobs) % 50))
            except BaseException as error:
                errors.append(error)

        caller = threading.Thread(target=call)
        caller.start()
        try:
            for room in ROOMS:
                for container in self.containers(room):
                    container.restart(timeout=40)
                    self._wait(RESTART_S, f"{container.name} to be healthy", lambda c=container: _healthy(c))  # type: ignore[misc]
        finally:
            done.set()
            caller.join()
        if errors:
            raise StackError(f"a call was not taken after {len(jobs)} that were: {errors[0]}")
        for job in jobs:
            self._answered(job)
        print(f"stack-test: {len(jobs)} jobs were accepted and answered meanwhile", flush=True)

    def check_stop(self) -> None:
        """SIGTERM is obeyed within the grace period: every process of ours ends with 0."""
        running = [container for service in ROOMS for container in self.containers(service)]
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

    def _layers_mb(self, image: str) -> float:
        return float(sum(layer["Size"] for layer in self.client.images.get(image).history())) / 1e6

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


def _healthy(container: Container) -> bool:
    container.reload()
    return bool(container.attrs["State"].get("Health", {}).get("Status") == "healthy")


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
