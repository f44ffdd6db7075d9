"""`photocall up` as it comes, with no key: who can reach what. All of it on a running stack."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from photocall.redis_server import MAX_SOCKET_PATH
from tests.stack.local_service import MARKS, Service, pid_of, service, wait_for

ASK = {"state": "x", "questions": {"q": {"type": "noul", "instructions": "?"}}}
LISTEN = "0A"


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    with service() as found:
        yield found


def listening(pid: int) -> set[tuple[str, int]]:
    """Addresses and ports on which a process takes TCP connections."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(descriptor))
        except FileNotFoundError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = row.split()
            if words[3] == LISTEN and f"socket:[{words[9]}]" in inodes:
                address, port = words[1].split(":")
                found.add((".".join(str(byte) for byte in bytes.fromhex(address)[::-1]), int(port, 16)))
    return found


def test_only_the_gateway_listens_and_only_on_loopback(running: Service) -> None:
    port = urlsplit(running.address).port
    heard = {name: listening(pid_of(running, name)) for name in MARKS}
    assert heard == {"redis": set(), "prep-1": set(), "engine": set(), "gateway": {("127.0.0.1", port)}}


def test_it_says_where_it_is_on_a_line_of_its_own(running: Service) -> None:
    def told() -> list[str]:
        return [line for line in running.log.read_text().splitlines() if line.startswith('{"address"')]

    [line] = wait_for(told, 30, "the address to be printed", running)
    assert json.loads(line)["address"] == running.address


def test_redis_and_the_key_are_this_user_s_alone(running: Service) -> None:
    url = urlsplit(running.environ["PHOTOCALL_REDIS_URL"])
    assert url.scheme == "unix"
    assert len(url.path) <= MAX_SOCKET_PATH
    for path, mode in ((Path(url.path).parent, 0o700), (running.data / "signing.key", 0o600), (running.data, 0o700)):
        about = path.stat()
        assert (stat.S_IMODE(about.st_mode), about.st_uid) == (mode, os.getuid()), path


def test_a_page_of_somebody_else_gets_nothing(running: Service) -> None:
    with httpx.Client(base_url=running.address, trust_env=False, timeout=30) as http:
        assert http.post("/v1/jobs", json=ASK).status_code == 202
        assert http.get("/v1/models", headers={"host": "evil.example"}).status_code == 421
        assert http.post("/v1/jobs", json=ASK, headers={"host": "evil.example:80"}).status_code == 421
        foreign = http.post("/v1/jobs", json=ASK, headers={"origin": "http://evil.example"})
        assert foreign.status_code == 403
        asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
        for answer in (foreign, http.options("/v1/jobs", headers=asked), http.get("/readyz", headers=asked)):
            assert not [name for name in answer.headers if name.startswith("access-control")]
        policy = http.get("/docs").headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    address = running.address.replace("http", "ws") + "/v1/channels"
    with pytest.raises(InvalidStatus) as refused:
        connect(address, additional_headers={"Origin": "http://evil.example"}, proxy=None)
    assert refused.value.response.status_code == 403
