"""The health checks: alive only while the room itself says so."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import redis

from photocall import keys
from photocall.liveness import main
from photocall.redis_server import RedisServer

HOST = socket.gethostname()


def check(room: str, server: RedisServer, **more: str) -> int:
    return main([room], {"PHOTOCALL_REDIS_URL": server.url, **more})


def test_prep_lives_while_its_registration_does(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    assert check("prep", redis_server) == 1
    redis_client.sadd("rq:workers", f"rq:worker:prep-{HOST}-7-abc", "rq:worker:prep-elsewhere-7-abc")
    redis_client.set("rq:worker:prep-elsewhere-7-abc", "")
    assert check("prep", redis_server) == 1, "another host's worker does not count"
    redis_client.set(f"rq:worker:prep-{HOST}-7-abc", "")
    assert check("prep", redis_server) == 0


def test_engine_lives_while_its_heartbeat_does(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    redis_client.zadd(keys.ENGINES, {f"{HOST}-7": 1, "named": 2})
    assert check("engine", redis_server) == 1
    redis_client.set(keys.heartbeat("named"), "")
    assert check("engine", redis_server) == 1
    assert check("engine", redis_server, PHOTOCALL_ENGINE_ID="named") == 0
    redis_client.set(keys.heartbeat(f"{HOST}-7"), "")
    assert check("engine", redis_server) == 0


def test_gateway_lives_while_it_answers() -> None:
    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        port = str(server.server_address[1])
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert main(["gateway"], {"PHOTOCALL_PORT": port}) == 0
        thread.join()
    assert main(["gateway"], {"PHOTOCALL_PORT": port}) == 1


@pytest.mark.parametrize("arguments", [[], ["kitchen"], ["prep", "engine"]])
def test_unknown_rooms(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments, {}) == 2
    assert "usage" in capsys.readouterr().err


def test_redis_away(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prep"], {"PHOTOCALL_REDIS_URL": "unix:///nowhere/redis.sock"}) == 1
    assert "prep: " in capsys.readouterr().err


def test_bad_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prep"], {"PHOTOCALL_REDIS_URL": "nonsense"}) == 2
    assert "PHOTOCALL_REDIS_URL" in capsys.readouterr().err
