"""`photocall up`: the whole service on this machine, in the foreground."""

from __future__ import annotations

import os
import threading
import time
import urllib.error
import urllib.request
from argparse import ArgumentParser, Namespace

from photocall.cli.output import add_json, print_json
from photocall.local import LocalStack
from photocall.logs import set_up
from photocall.supervisor import Supervisor

READY_POLL_S = 0.2
CURL = """curl -s {address}/v1/systemone -H 'content-type: application/json' -d '{{"state": "The parcel arrived with a \
torn corner.", "questions": {{"damaged": {{"type": "noul", "instructions": "Is the parcel damaged?"}}}}}}'"""


def add_arguments(parser: ArgumentParser) -> None:
    """What may stand behind `photocall up`."""
    parser.add_argument("--port", type=int, metavar="N", help="of the gateway; 0 takes a free one (PHOTOCALL_PORT)")
    parser.add_argument("--data", metavar="DIR", help="state directory (PHOTOCALL_DATA)")
    add_json(parser, "one JSON object once it is ready, instead of words; logs go to standard error as ever")


def run_up(options: Namespace) -> int:
    """Start, say where, stay; 0 when stopped. Raises SettingsError, NoRedisError, AlreadyRunning or SupervisorError."""
    environ = dict(os.environ)
    if options.port is not None:
        environ["PHOTOCALL_PORT"] = str(options.port)
    if options.data is not None:
        environ["PHOTOCALL_DATA"] = options.data
    stack = LocalStack.plan(environ)
    with stack.held():
        stack.check()
        set_up("up")
        return _keep(stack, options.json)


def _keep(stack: LocalStack, as_json: bool) -> int:
    supervisor = Supervisor(stack.specs)
    stopped = threading.Event()
    threading.Thread(target=_announce, args=(stack.address, stopped, as_json), daemon=True).start()
    try:
        supervisor.start()
        return supervisor.run()
    finally:
        stopped.set()
        supervisor.stop()


def _announce(address: str, stopped: threading.Event, as_json: bool) -> None:
    """Say where, once everything is ready; nothing when it is stopped before."""
    began = time.monotonic()
    while not ready(address):
        if stopped.wait(READY_POLL_S):
            return
    after_s = round(time.monotonic() - began, 1)
    if as_json:
        print_json({"address": address, "ready_after_s": after_s})
    else:
        print(f"photocall is ready at {address} after {after_s} s", flush=True)
        print(CURL.format(address=address), flush=True)


def ready(address: str) -> bool:
    """The gateway says that it, Redis, prep and the engine can answer. Proxies do not matter on loopback."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{address}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False
