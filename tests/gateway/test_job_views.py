"""What pollers are shown: as new as the question, encoded once, bounded, and the same as the route gives."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import redis
from starlette.testclient import TestClient

from photocall import keys
from photocall.connections import connect_async
from photocall.errors import JobGone, UnknownJob
from photocall.jobs import Answered, JobRecord, JobStatus, NewJob, Refused, Webhook
from photocall.messages import Progress
from photocall.records import AsyncRecords, Records
from photocall.redis_server import RedisServer
from photocall.standings import Standings
from photocall.wire import Wire, pack
from photocall_gateway.job_object import job_object
from photocall_gateway.job_views import JobView, JobViews
from photocall_gateway.load import Load
from tests.gateway.conftest import KEY
from tests.gateway.fake_backend import FakeBackend

TEXT = {"state": "text", "questions": {"q": {"type": "noul", "instructions": "Is it?"}}}
WIRE = Wire(KEY.encode(), "test")


def new_job(job_id: str, **changes: Any) -> NewJob:
    now = time.time()
    job = NewJob(job_id, "local", "job", b"ask", (), "interactive", now, now + 60, "hash", metadata={"row": '"queue":'})
    return replace(job, **changes)


class Counted(AsyncRecords):
    """Counts the reads of whole records."""

    looks = 0

    async def look(self, job_id: str) -> Any:
        self.looks += 1
        return await super().look(job_id)


def with_views(
    server: RedisServer, scenario: Callable[[JobViews, Counted], Awaitable[Any]], kept_bytes: int = 1 << 20
) -> Any:
    async def run() -> Any:
        client = connect_async(server.url)
        records = Counted(client, WIRE)
        try:
            return await scenario(JobViews(records, Standings(client), Load(client, 3600), kept_bytes), records)
        finally:
            await client.aclose()
            await client.connection_pool.disconnect()

    return asyncio.run(run())


def test_a_look_is_never_older_than_what_was_written_before_it(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    """Each change is made by another process' client, as an event or a webhook would have told of it."""
    other = Records(redis_client, WIRE)

    async def scenario(views: JobViews, records: Counted) -> None:
        other.accept(new_job("j"))
        seen = [(await views.look("j")).status]
        lease = other.lease("j", "running")
        assert lease is not None
        seen.append((await views.look("j")).status)
        for tokens in range(50):
            early = asyncio.create_task(views.look("j"))  # under way, maybe, as the next value is written
            await asyncio.sleep(0)
            assert other.progress(lease, Progress("j", "prefill", tokens, 50), {"tokens": tokens})
            view, queue = await views.look_with_queue("j")
            assert json.loads(view.body(queue))["progress"] == {"tokens": tokens}
            await early
        other.publish(lease, Answered({"answers": {}, "usage": {}}))
        seen.append((await views.look("j")).status)
        assert seen == [JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.SUCCEEDED]
        other.delete("j")
        with pytest.raises(JobGone):
            await views.look("j")
        with pytest.raises(UnknownJob):
            await views.look("never")

    with_views(redis_server, scenario)


def test_a_version_is_read_and_encoded_once(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    async def scenario(views: JobViews, records: Counted) -> None:
        for name in ("a", "b"):
            Records(redis_client, WIRE).accept(new_job(name))
        first = await views.look("b")
        found = await asyncio.gather(*(views.look_with_queue("b") for _ in range(20)))
        assert all(view is first for view, _ in found)
        assert {json.loads(queue)["position"] for _, queue in found} == {1}
        assert records.looks == 1
        await records.cancel("a")  # moves the place of b, not its version
        view, queue = await views.look_with_queue("b")
        assert view is first
        place = json.loads(view.body(queue))["queue"]
        assert place["position"] == 0
        assert json.loads(view.body(queue)) == {**job_object(await records.get("b")), "queue": place}

    with_views(redis_server, scenario)


def test_what_is_kept_is_bounded_and_the_oldest_goes(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    async def scenario(views: JobViews, records: Counted) -> None:
        for i in range(20):
            Records(redis_client, WIRE).accept(new_job(f"j{i}"))
        size = (await views.look("j0")).size
        assert size < 2000  # so that five fit
        for i in range(20):
            await views.look(f"j{i}")
            await views.look("j0")  # asked for all the time, so it stays
        before = records.looks
        await views.look("j0")
        await views.look("j19")
        assert records.looks == before
        await views.look("j1")
        assert records.looks == before + 1

    with_views(redis_server, scenario, kept_bytes=10_000)


def test_deliveries_of_a_webhook_are_not_kept(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    """They go on after the job's last version."""

    async def scenario(views: JobViews, records: Counted) -> None:
        other = Records(redis_client, WIRE)
        other.accept(new_job("j", webhook=Webhook("https://example.org/")))
        assert (await views.look("j")).hooked is None
        await records.cancel("j")
        for _ in range(2):
            hooked = (await views.look("j")).hooked
            assert hooked is not None
            assert hooked.status is JobStatus.CANCELLED
        assert records.looks == 3

    with_views(redis_server, scenario)


def test_a_record_is_the_same_around_its_place_in_the_queue() -> None:
    """A caller's own words may look like the place where the object is cut."""
    record = _record({b"metadata": pack({"row": '"queue":'})})
    view = JobView.of(record)
    assert json.loads(view.body(b'{"position":3,"eta_s":null}')) == {
        **job_object(record),
        "queue": {"position": 3, "eta_s": None},
    }


def _record(more: Mapping[bytes, bytes]) -> JobRecord:
    raw = {b"owner": b"local", b"shape": b"job", b"status": b"queued", b"version": b"7", b"created_at": b"1.5", **more}
    return JobRecord.from_hash("j", raw)


def _shown(response: Any) -> tuple[Any, ...]:
    headers = {name: value for name, value in response.headers.items() if name not in ("x-request-id", "date")}
    return response.status_code, response.content, headers


@pytest.mark.parametrize("end", [None, "succeeded", "failed", "deleted", "unknown"])
def test_a_poll_gives_what_the_route_gives(client: TestClient, backend: FakeBackend, end: str | None) -> None:
    """`Prefer` with nothing to wait for takes the way through the router."""
    if end is None:
        backend.hold.set()
    if end == "failed":
        backend.respond = lambda ask, record: Refused("prompt_too_long", "too long", {"length": 9, "limit": 5})
    job_id = "job_none" if end == "unknown" else client.post("/v1/jobs", json=TEXT).json()["id"]
    path = f"/v1/jobs/{job_id}"
    if end in ("succeeded", "failed"):
        assert client.get(path, headers={"prefer": "wait=10"}).json()["status"] == end
    if end == "deleted":
        client.delete(path)
    polled, routed = client.get(path), client.get(path, headers={"prefer": "handling=strict"})
    if end in ("deleted", "unknown"):  # the request's own id is in the problem
        assert polled.status_code == routed.status_code == (410 if end == "deleted" else 404)
        assert {**polled.json(), "instance": ""} == {**routed.json(), "instance": ""}
        return
    assert _shown(polled) == _shown(routed)
    assert polled.headers["x-request-id"] != routed.headers["x-request-id"]
    assert ("retry-after" in polled.headers) == (end is None)
    tag = {"if-none-match": polled.headers["etag"]}
    same = client.get(path, headers=tag), client.get(path, headers={**tag, "prefer": "handling=strict"})
    assert same[0].status_code == 304
    assert _shown(same[0]) == _shown(same[1])


def test_polls_are_counted_under_their_route(client: TestClient, backend: FakeBackend) -> None:
    job_id = client.post("/v1/jobs", json=TEXT).json()["id"]
    for _ in range(3):
        client.get(f"/v1/jobs/{job_id}")
    client.get(f"/v1/jobs/{job_id}/nothing")
    text = client.get("/metrics").text
    count = 'photocall_http_requests_total{method="GET",route="/v1/jobs/{job_id}",status="200"} 3.0'
    assert count in text
    assert job_id not in text


def test_polls_are_answered_while_the_store_is_full(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis
) -> None:
    backend.hold.set()
    job_id = client.post("/v1/jobs", json=TEXT).json()["id"]
    redis_client.config_set("maxmemory", 1)
    assert client.get(f"/v1/jobs/{job_id}").json()["status"] == "queued"
    assert redis_client.exists(keys.job(job_id))
