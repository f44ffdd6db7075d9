"""A Redis that a test may kill: unlike the one of the whole run, its process belongs to the test."""

from __future__ import annotations

import subprocess

from photocall.redis_server import RedisServer


def start(server: RedisServer) -> subprocess.Popen[bytes]:
    """Run it, or run it again on what it wrote, until it answers."""
    child = subprocess.Popen(server.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    server.wait_ready()
    return child
