"""Probes, metrics and the description of the API."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from photocall import keys
from photocall.errors import TABLE
from photocall.settings import GatewaySettings
from photocall_gateway import readiness
from photocall_gateway.app import ROUTES, create_app
from photocall_gateway.described import Described
from photocall_gateway.openapi import document
from tests.gateway.fake_backend import FakeBackend

TEXT = {"state": "text", "questions": {"q": {"type": "noul", "instructions": "Is it?"}}}


def test_healthz_needs_nothing_but_the_process(tmp_path: Path) -> None:
    settings = GatewaySettings(redis_url=f"unix://{tmp_path}/none.sock", signing_key_hex="k")
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["redis"], ready.json()["ready"]) == (503, False, False)
        refused = client.post("/v1/jobs", json=TEXT)
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert int(refused.headers["retry-after"]) >= 1
        assert client.post("/v1/systemone", json=TEXT).status_code == 503
        assert "photocall_redis_up 0.0" in client.get("/metrics").text


def test_readyz_wants_redis_an_engine_that_is_ready_and_prep(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis
) -> None:
    def state() -> tuple[int, Any]:
        response = client.get("/readyz")
        return response.status_code, response.json()

    status, found = state()
    assert (status, found.pop("store")["faults"]) == (503, [])
    assert found == {"ready": False, "redis": True, "prep_workers": 0, "engines": [], "draining": False}
    backend.announce(ready=False)
    assert state()[0] == 503
    backend.announce(ready=True)
    status, body = state()
    assert (status, body["ready"], body["prep_workers"]) == (200, True, 1)
    assert body["engines"][0] == {
        "id": "fake", "model": "photocall-mini", "device": "cpu", "ready": True,
        "load": 0, "capacity": 8, "pages_free": 100, "pages_total": 100,
    }  # fmt: skip
    redis_client.delete("rq:worker:fake")  # the registration ran out, its name is still in the set
    assert state()[0] == 503
    backend.announce(ready=True)
    redis_client.delete(keys.heartbeat("fake"))
    assert state()[0] == 503


def test_a_heartbeat_without_our_signature_is_no_engine(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis
) -> None:
    backend.announce(ready=True)
    beat = redis_client.get(keys.heartbeat("fake"))
    assert isinstance(beat, bytes)
    redis_client.set(keys.heartbeat("fake"), bytes(32) + beat[32:])
    assert client.get("/readyz").json()["engines"] == []


def test_metrics(client: TestClient, backend: FakeBackend, redis_client: redis.Redis) -> None:
    backend.announce()
    assert client.post("/v1/systemone", json=TEXT).status_code == 200
    client.get("/v1/jobs/job_one")
    client.get("/v1/jobs/job_two")
    client.request("BREW", "/pot")
    redis_client.hincrby(keys.COUNTERS, "bad_signature", 3)
    backend.hold.set()
    client.post("/v1/jobs", json={**TEXT, "priority": "batch"})
    lines = set(client.get("/metrics").text.splitlines())
    assert lines >= {
        'photocall_http_requests_total{method="POST",route="/v1/systemone",status="200"} 1.0',
        'photocall_http_requests_total{method="GET",route="/v1/jobs/{job_id}",status="404"} 2.0',
        'photocall_http_requests_total{method="OTHER",route="other",status="404"} 1.0',
        'photocall_jobs_accepted_total{priority="interactive",shape="systemone"} 1.0',
        'photocall_jobs_accepted_total{priority="batch",shape="job"} 1.0',
        'photocall_sync_stage_seconds_count{stage="prefill"} 1.0',
        'photocall_shared_events{event="bad_signature"} 3.0',
        "photocall_unfinished_jobs 1.0",
        "photocall_engines_ready 1.0",
        "photocall_prep_workers 1.0",
        "photocall_redis_up 1.0",
    }


def test_the_description_is_true_to_the_routes(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    found = {(path, method) for path, methods in described["paths"].items() for method in methods}
    assert found == {(route.path, route.method.lower()) for route in ROUTES}


def test_a_route_without_a_description_and_a_schema_of_two_meanings_are_errors() -> None:
    async def nothing(request: Request) -> Response:
        return Response()

    with pytest.raises(ValueError, match="has no description"):
        document([Route("/hidden", nothing)])
    described = [Described(f"/{kind}", nothing, "GET", {}, {"Thing": {"type": kind}}) for kind in ("string", "null")]
    with pytest.raises(ValueError, match="schema Thing has two meanings"):
        document(described)


def test_every_reference_of_the_description_is_there() -> None:
    described = document(ROUTES)
    references = set(re.findall(r"'#/components/schemas/(\w+)'", str(described)))
    assert references <= set(described["components"]["schemas"])
    assert len(references) > 10
    for path, methods in described["paths"].items():
        in_path = set(re.findall(r"\{(\w+)\}", path))
        for operation in methods.values():
            parameters = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert parameters == in_path
            assert operation["responses"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/systemone", "/v1/decisions"])
def test_the_statuses_of_refusals_are_described(client: TestClient, path: str) -> None:
    described = document(ROUTES)["paths"][path]["post"]["responses"]
    cases = [
        (b"", {}),
        (b"{}", {}),
        (b"{}", {"content-type": "text/plain"}),
        (b"x" * (2 << 20), {}),
        (b"{}", {"origin": "http://evil.example"}),
        (b"{}", {"host": "evil.example"}),
    ]
    for body, headers in cases:
        response = client.post(path, content=body, headers={"content-type": "application/json", **headers})
        assert str(response.status_code) in described, response.text


def test_the_statuses_of_late_failures_are_described() -> None:
    paths = document(ROUTES)["paths"]
    for row in (row for row in TABLE.values() if row.late):
        assert str(row.systemone) in paths["/v1/systemone"]["post"]["responses"], row.code
        assert str(row.decisions) in paths["/v1/decisions"]["post"]["responses"], row.code


def test_an_answered_job_has_the_described_fields(client: TestClient, backend: FakeBackend) -> None:
    job = client.post("/v1/jobs", json=TEXT, headers={"prefer": "wait=10"}).json()
    schema = document(ROUTES)["components"]["schemas"]["Job"]
    assert set(job) <= set(schema["properties"])
    assert set(schema["required"]) <= set(job)
    assert set(schema["properties"]) - set(job) == {"error", "webhook"}


def test_readyz_is_quick_when_redis_hangs(
    client: TestClient, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "CHECK_TIMEOUT_S", 0.2)
    redis_client.client_pause(1500)
    started = time.monotonic()
    assert client.get("/readyz").status_code == 503
    assert time.monotonic() - started < 1.4, "it did not wait for Redis"
    redis_client.client_unpause()


def test_a_proxy_can_tell_a_gateway_that_leaves(client: TestClient) -> None:
    """`ops/proxy/haproxy.cfg` looks for these bytes, whatever else is missing."""
    answer = client.get("/readyz")
    assert answer.status_code == 503  # no engine here
    assert '"draining":false' in answer.text
