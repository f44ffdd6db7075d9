"""World: every process of the service, some of them twice, under the project's supervisor."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, cast

import httpx
import redis

from ops.chaos.strikes import Victim
from photocall import failpoints, keys
from photocall.connections import connect
from photocall.local import LocalStack, free_port
from photocall.operations import MAX_FAILURES
from photocall.supervisor import ProcessSpec, Supervisor

MODEL = Path(__file__).parents[2] / "models" / "mini"
STOP_S = 1.0
LOOK_S = 0.5
READY = (" engine/__main__ ready ", " prep/worker serving ", " gateway/__main__ listening ")  # what they say then


class Log:
    """The processes' lines in a file; remembers when each process became ready, and lines that tell of a defect."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self.ready_at: dict[str, list[float]] = {}
        self.defects: list[str] = []

    def write(self, line: str) -> int:
        """One whole line, as the supervisor writes them. From any thread."""
        if any(said in line for said in READY):
            self.ready_at.setdefault(line.partition("|")[0].strip(), []).append(time.monotonic())
        if "Traceback" in line and " WARNING " not in line:
            self.defects.append(line.strip()[:2000])
        return self._out.write(line)

    def flush(self) -> None:
        self._out.flush()


@dataclass
class World:
    """A running service. `poll` must be called often, by the thread that made it."""

    stack: LocalStack
    data: Path
    addresses: tuple[str, ...]
    names: tuple[str, ...]
    log: Log
    supervisor: Supervisor
    ended: list[tuple[str, int]]  # name and exit status of every process that ended so far
    killed: set[int] = field(default_factory=set)
    client: redis.Redis = field(init=False)
    _looked_at: float = 0.0
    _endangered: bool = False
    _pids: dict[str, int | None] = field(default_factory=dict)
    _spawned: dict[str, list[float]] = field(default_factory=dict)  # when each process was started

    def __post_init__(self) -> None:
        self.client = connect(self.stack.redis_url)

    def poll(self) -> None:
        """Start again what died."""
        self.supervisor.poll()
        for name in self.names:
            pid = self.supervisor.pid(name)
            if name != "redis" and pid is not None and pid != self._pids.get(name):
                self._spawned.setdefault(name, []).append(time.monotonic())
            self._pids[name] = pid

    @property
    def whole(self) -> bool:
        """Every process runs and has said that it is ready."""
        ready = all(self.log.ready_at.get(name, [0.0])[-1] > spawned[-1] for name, spawned in self._spawned.items())
        return ready and all(self._pids.get(name) is not None for name in self.names)

    def answers(self) -> bool:
        """Both gateways say that a request would be answered."""
        try:
            return all(
                httpx.get(f"{address}/readyz", timeout=2, trust_env=False).status_code == 200
                for address in self.addresses
            )
        except httpx.TransportError:
            return False

    def endangered(self) -> bool:
        """Some job would not outlive one more death of its process, or nobody knows."""
        now = time.monotonic()
        if now - self._looked_at > LOOK_S:
            self._looked_at = now
            try:
                with self.client.pipeline(transaction=False) as pipe:
                    for job_id in cast("list[bytes]", self.client.zrange(keys.DEADLINES, 0, -1)):
                        pipe.hget(keys.job(job_id.decode()), "failures")
                    self._endangered = any(int(failures or 0) + 1 >= MAX_FAILURES for failures in pipe.execute())
            except redis.RedisError:
                self._endangered = True
        return self._endangered

    def find(self, victim: Victim, it: int | None, dice: float) -> int | None:
        """The process that is meant, `it` standing at a point; None while there is none. `dice`, 0 to 1, chooses."""
        if victim == "it":
            return it
        if victim == "decoder":
            workers = [it] if it is not None else [pid for name, pid in self._pids.items() if name.startswith("prep")]
            found = [child for pid in workers if pid is not None for child in _decoders(pid)]
            return found[int(dice * len(found))] if found else None
        named = [name for name in self.names if name.startswith(victim.removeprefix("another "))]
        pids = [pid for name in named if (pid := self._pids.get(name)) is not None and pid != it]
        return pids[int(dice * len(pids))] if pids else None

    def kill(self, pid: int) -> None:
        """SIGKILL to one of the processes, or to the decoder of one."""
        if pid in self._pids.values():
            self.killed.add(pid)  # one that is dying already may be meant again
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def restart(self, name: str) -> tuple[int, float]:
        """SIGTERM to one process, and wait until its next is there; exit status, and seconds until the end."""
        pid, before, asked_at = self._pids[name], len(self.ended), time.monotonic()
        assert pid is not None, f"{name} does not run"
        os.kill(pid, signal.SIGTERM)
        while len(self.ended) == before:
            self.poll()
            time.sleep(0.01)
        took_s = time.monotonic() - asked_at
        while not (self.whole and self.answers()):
            self.poll()
            time.sleep(0.05)
        [(ended, status)] = self.ended[before:]
        assert ended == name, f"{ended} ended, not {name}"
        return status, took_s

    def standing(self, point: str) -> int | None:
        """The process that has stopped at a point."""
        pid = failpoints.standing(self.data, point)
        if pid is not None:
            until = time.monotonic() + STOP_S
            while _state(pid) != "T" and time.monotonic() < until:
                time.sleep(0.001)
        return pid

    def starting_s(self, since: float, until: float) -> float:
        """How much of a stretch of time an engine spent starting."""
        total = 0.0
        for name in (name for name in self._spawned if name.startswith("engine")):
            spawns = self._spawned[name]
            for spawned, following in zip(spawns, [*spawns[1:], until], strict=True):
                ready = min((at for at in self.log.ready_at.get(name, ()) if at > spawned), default=following)
                ready = min(ready, following)
                total += max(0.0, min(until, ready) - max(since, spawned))
        return total

    def stop(self) -> dict[str, int]:
        """SIGTERM to all, the gateways first and Redis last; exit statuses by name."""
        before = len(self.ended)
        self.supervisor.stop()
        return dict(self.ended[before:])


@contextmanager
def world(directory: Path, log: IO[str], twice: Collection[str] = ("gateway",), **settings: str) -> Iterator[World]:
    """Everything up and ready, these `twice`, and gone afterwards. `settings` are further variables."""
    data = directory / "data"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PHOTOCALL_")}
    ports = [free_port("127.0.0.1") for _ in range(2)]
    environ |= {
        "PHOTOCALL_DATA": str(data),
        "PHOTOCALL_MODEL": str(MODEL),
        "PHOTOCALL_PORT": str(ports[0]),
        "PHOTOCALL_PREP_WORKERS": "2",
        "PHOTOCALL_FAILPOINT": failpoints.ASKED,
        **settings,
    }
    stack = LocalStack.plan(environ)
    specs = tuple(spec for one in stack.specs for spec in (_pair(one, ports) if one.name in twice else [one]))
    lines = Log(log)
    ended: list[tuple[str, int]] = []
    supervisor = Supervisor(specs, out=lines, on_end=lambda name, status: ended.append((name, status)))
    addresses = tuple(f"http://127.0.0.1:{port}" for port in ports[: 2 if "gateway" in twice else 1])
    found = World(stack, data, addresses, tuple(spec.name for spec in specs), lines, supervisor, ended)
    with stack.held():
        try:
            supervisor.start()
            until = time.monotonic() + 120
            found.poll()
            while not (found.whole and found.answers()):
                assert time.monotonic() < until, "the service did not become ready"
                found.poll()
                time.sleep(0.1)
            yield found
        finally:
            found.client.close()
            supervisor.stop()


def _pair(spec: ProcessSpec, ports: list[int]) -> list[ProcessSpec]:
    """Two of a kind, on the same state directory; each gateway has a port of its own."""
    return [
        replace(spec, name=f"{spec.name}-{n}", environment={**spec.environment, "PHOTOCALL_PORT": str(port)})
        for n, port in enumerate(ports, 1)
    ]


def _decoders(pid: int) -> list[int]:
    """The decoders of a prep worker."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in children if b"decoder" in Path(f"/proc/{child}/cmdline").read_bytes()]
    except OSError:
        return []


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
