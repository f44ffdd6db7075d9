"""`photocall up`: the whole service on this machine, in the foreground."""

from __future__ import annotations

import os
import sys
import threading
import time
import urllib.error
import urllib.request

from photocall.local import AlreadyRunning, LocalStack
from photocall.logs import set_up
from photocall.redis_server import NoRedisError
from photocall.settings import SettingsError
from photocall.supervisor import Supervisor, SupervisorError

READY_POLL_S = 0.2
CURL = """curl -s {address}/v1/systemone -H 'content-type: application/json' -d '{{"state": "The parcel arrived with a \
torn corner.", "questions": {{"damaged": {{"type": "noul", "instructions": "Is the parcel damaged?"}}}}}}'"""


def run_up(port: int | None, data: str | None) -> int:
    """Start, say where, stay. 0 when stopped, 2 for settings that cannot be used."""
    set_up("up")
    environ = dict(os.environ)
    if port is not None:
        environ["PHOTOCALL_PORT"] = str(port)
    if data is not None:
        environ["PHOTOCALL_DATA"] = data
    try:
        stack = LocalStack.plan(environ)
        with stack.held():
            stack.check()
            return _keep(stack)
    except (SettingsError, NoRedisError, AlreadyRunning, SupervisorError) as error:
        print(f"photocall: {error}", file=sys.stderr)
        return 2


def _keep(stack: LocalStack) -> int:
    supervisor = Supervisor(stack.specs)
    stopped = threading.Event()
    threading.Thread(target=_announce, args=(stack.address, stopped), daemon=True).start()
    try:
        supervisor.start()
        return supervisor.run()
    finally:
        stopped.set()
        supervisor.stop()


def _announce(address: str, stopped: threading.Event) -> None:
    """Print the address once everything is ready."""
    began = time.monotonic()
    while not ready(address):
        if stopped.wait(READY_POLL_S):
            return
    print(f"photocall is ready at {address} after {time.monotonic() - began:.1f} s", flush=True)
    print(CURL.format(address=address), flush=True)


def ready(address: str) -> bool:
    """The gateway says that it, Redis, prep and the engine can answer. Proxies do not matter on loopback."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{address}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False
