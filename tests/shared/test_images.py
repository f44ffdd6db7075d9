"""Source pictures: stored once, known to who uploaded them, gone an hour after the last use."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
import redis

from photocall import keys
from photocall.connections import connect_async
from photocall.errors import HashMismatch
from photocall.images import AsyncImageStore, ImageStore
from photocall.redis_server import RedisServer

DATA = bytes(range(256)) * 40
SHA = hashlib.sha256(DATA).hexdigest()


def test_put_get_and_time_to_live(redis_client: redis.Redis) -> None:
    store = ImageStore(redis_client)
    assert store.get(SHA) is None
    store.put(SHA, DATA, "a")
    assert store.get(SHA) == DATA
    assert 3590 < redis_client.ttl(keys.image(SHA)) <= 3600


def test_the_hash_is_checked(redis_client: redis.Redis) -> None:
    with pytest.raises(HashMismatch) as refused:
        ImageStore(redis_client).put("0" * 64, DATA, "a")
    assert refused.value.data == {"expected": "0" * 64, "actual": SHA}
    assert redis_client.dbsize() == 0


def test_only_who_uploaded_it_knows_it(redis_client: redis.Redis) -> None:
    store = ImageStore(redis_client)
    store.put(SHA, DATA, "a")
    assert store.owned(SHA, "a")
    assert not store.owned(SHA, "b")
    store.put(SHA, DATA, "b")
    assert store.owned(SHA, "b")
    assert not store.owned("0" * 64, "a")


def test_a_second_upload_sends_no_bytes_and_starts_the_hour_again(redis_client: redis.Redis) -> None:
    store = ImageStore(redis_client, ttl_s=100)
    store.put(SHA, DATA, "a")
    redis_client.expire(keys.image(SHA), 5)
    before = redis_client.info("stats")["total_net_input_bytes"]
    store.put(SHA, DATA, "b")
    sent = redis_client.info("stats")["total_net_input_bytes"] - before
    assert sent < len(DATA)
    assert redis_client.ttl(keys.image(SHA)) > 90


def test_an_upload_of_a_picture_in_use_gives_it_no_time_to_live(redis_client: redis.Redis) -> None:
    store = ImageStore(redis_client)
    store.put(SHA, DATA, "a")
    redis_client.hincrby(keys.image(SHA), "refs", 1)
    redis_client.persist(keys.image(SHA))
    store.put(SHA, DATA, "b")
    assert redis_client.ttl(keys.image(SHA)) == -1


def test_async_store_does_the_same(redis_client: redis.Redis, redis_server: RedisServer) -> None:
    async def scenario() -> None:
        client = connect_async(redis_server.url)
        store = AsyncImageStore(client)
        with pytest.raises(HashMismatch):
            await store.put("0" * 64, DATA, "a")
        await store.put(SHA, DATA, "a")
        assert await store.get(SHA) == DATA
        assert await store.owned(SHA, "a")
        assert not await store.owned(SHA, "b")
        assert await store.get("0" * 64) is None
        await client.aclose()

    asyncio.run(scenario())
