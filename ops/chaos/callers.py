"""Callers: threads that ask one task after another through the balancer, and tell a witness what they see.

They do what a careful client does: a call that breaks off or is refused for a while is made again, at whichever gateway
is ready, under the same Idempotency-Key.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx

from ops.chaos.balancer import Balancer
from ops.chaos.tasks import Task
from ops.chaos.witness import Witness

GIVE_UP_S = 90.0  # far beyond any recovery: then nothing will come
RETRY_S = 0.1
ENDS = ("succeeded", "failed", "cancelled", "expired")
AGAIN = frozenset(
    {409, 429, 500, 502, 503, 504, 507, 529}
)  # 409: the first upload of the same key is being read, unless it says more


class Lost(Exception):
    """No answer came, or one that cannot be."""


class Caller:
    """One client, for one thread."""

    def __init__(self, balancer: Balancer, witness: Witness) -> None:
        self._balancer = balancer
        self._witness = witness
        self.http = httpx.Client(trust_env=False, timeout=15.0)

    def insist(self, method: str, path: str, **sent: Any) -> httpx.Response:
        """The answer, once there is one that is final. Raises Lost when there is none for too long."""
        until = time.monotonic() + GIVE_UP_S
        last = ""
        while time.monotonic() < until:
            try:
                found = self.http.request(method, self._balancer.pick() + path, **sent)
                if found.status_code not in AGAIN or b"batch_state" in found.content:
                    return found
                last, why = f"{found.status_code} {found.text[:200]}", str(found.status_code)
            except httpx.TransportError as error:
                last, why = repr(error), type(error).__name__
            self._witness.tried_again(why)
            time.sleep(RETRY_S)
        raise Lost(f"{method} {path} was not answered within {GIVE_UP_S:.0f} s: {last}")

    def expect(self, statuses: tuple[int, ...], method: str, path: str, **sent: Any) -> dict[str, Any]:
        """The body of a final answer with one of these statuses. Raises Lost."""
        found = self.insist(method, path, **sent)
        if found.status_code not in statuses:
            raise Lost(f"{method} {path}: {found.status_code} {found.text[:300]}")
        return dict(found.json()) if found.content else {}

    def ask(self, task: Task) -> None:
        """See a task through to its end. Raises Lost."""
        if task.kind in ("sync", "decisions"):
            self._ask_at_once(task)
        elif task.kind == "turns":
            self._converse(task)
        else:
            self._follow(self._submit(task, "/v1/jobs"), cancel=task.kind == "cancel")

    def _submit(self, task: Task, path: str, key: str = "") -> str:
        """The job's id."""
        key = key or task.key
        job = self.expect((200, 202), "POST", path, headers={"idempotency-key": key}, **task.sent)
        self._witness.accepted(key, job["id"])
        return str(job["id"])

    def _follow(self, job_id: str, cancel: bool = False) -> None:
        """Until the job's end, which is then the same at every gateway."""
        if cancel:
            self.expect((200, 202), "POST", f"/v1/jobs/{job_id}/cancel")
        until = time.monotonic() + GIVE_UP_S
        while (job := self._read(job_id))["status"] not in ENDS:
            if time.monotonic() > until:
                raise Lost(f"{job_id} did not end within {GIVE_UP_S:.0f} s: {job}")
        self._witness.ended(job)
        if job["status"] not in ("succeeded", "cancelled" if cancel else "succeeded"):
            raise Lost(f"{job_id} ended otherwise: {job}")
        for _ in self._balancer.addresses:
            self._witness.ended(self._read(job_id))

    def _read(self, job_id: str) -> dict[str, Any]:
        return self.expect((200,), "GET", f"/v1/jobs/{job_id}", headers={"prefer": "wait=3"})

    def _ask_at_once(self, task: Task) -> None:
        """Twice, as a client does that did not hear the first answer."""
        path = "/v1/decisions" if task.kind == "decisions" else "/v1/systemone"
        for _ in range(2):
            body = self.expect((200,), "POST", path, headers={"idempotency-key": task.key}, **task.sent)
            self._witness.answered(task.key, body["answers"])

    def _converse(self, task: Task) -> None:
        """A session of two turns, closed afterwards."""
        session = self.expect((201,), "POST", "/v1/sessions", json={"state": "Be brief.", "ttl_s": 60})["id"]
        for turn in range(2):
            self._follow(self._submit(task, f"/v1/sessions/{session}/turns", f"{task.key}-{turn}"))
        self.expect((204, 404), "DELETE", f"/v1/sessions/{session}")


class Crowd:
    """Callers in threads of their own, from `start` until `stop`, which waits for what they have begun."""

    def __init__(
        self,
        size: int,
        balancer: Balancer,
        witness: Witness,
        seed: int,
        task: Callable[[int, int], Task],
        pause_s: float,
    ) -> None:
        self._balancer, self._witness = balancer, witness
        self._seed, self._task, self._pause_s = seed, task, pause_s
        self._next = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(size)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopped.set()

    @property
    def busy(self) -> bool:
        """Somebody still waits for an answer."""
        return any(thread.is_alive() for thread in self._threads)

    def _run(self, number: int) -> None:
        pauses = random.Random(f"{self._seed}/pauses/{number}")
        caller = Caller(self._balancer, self._witness)
        with caller.http:
            while not self._stopped.wait(pauses.uniform(0.0, 2 * self._pause_s)):
                with self._lock:
                    mine, self._next = self._next, self._next + 1
                task = self._task(self._seed, mine)
                with self._witness.waiting(f"{task.kind} {task.key}"):
                    try:
                        caller.ask(task)
                    except Exception as error:  # also a defect of this program: no caller ends unheard
                        self._witness.fault(f"{task.kind} {task.key}: {error!r}")
