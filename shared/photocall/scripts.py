"""The Lua scripts of `lua/`: a call of one with its keys and arguments, and the two ways to run it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Generic, TypeAlias, TypeVar, cast

import redis
import redis.asyncio
from redis.exceptions import NoScriptError, OutOfMemoryError, ResponseError

R = TypeVar("R")
Argument: TypeAlias = "str | bytes | int | float"


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """One run of a script, and how to read what it gives. Every job script has `_job.lua` before it."""

    script: str
    keys: tuple[str, ...]
    args: tuple[Argument, ...]
    parse: Callable[[Any], R]
    job: bool = True


def flat(fields: Mapping[str, Argument]) -> tuple[Argument, ...]:
    """Fields and values by turns, as HSET takes them."""
    return tuple(part for pair in fields.items() for part in pair)


@cache
def source(script: str, job: bool) -> tuple[str, str]:
    """The text of a script and its SHA-1."""
    folder = resources.files("photocall") / "lua"
    text = (folder / f"{script}.lua").read_text()
    if job:
        text = (folder / "_job.lua").read_text() + text
    return text, hashlib.sha1(text.encode()).hexdigest()


def run(client: redis.Redis, call: Call[R]) -> R:
    """Run a call; the server is taught the script when it does not know it. Raises OutOfMemoryError when it is full."""
    text, sha = source(call.script, call.job)
    try:
        try:
            found = client.evalsha(sha, len(call.keys), *call.keys, *call.args)
        except NoScriptError:
            found = client.eval(text, len(call.keys), *call.keys, *call.args)
    except ResponseError as error:
        raise _named(error) from error
    return call.parse(found)


async def run_async(client: redis.asyncio.Redis, call: Call[R]) -> R:
    """`run` for an asyncio client."""
    text, sha = source(call.script, call.job)
    try:
        try:
            found = await cast(Any, client.evalsha(sha, len(call.keys), *call.keys, *call.args))
        except NoScriptError:
            found = await cast(Any, client.eval(text, len(call.keys), *call.keys, *call.args))
    except ResponseError as error:
        raise _named(error) from error
    return call.parse(found)


async def run_all_async(client: redis.asyncio.Redis, calls: Sequence[Call[R]]) -> list[R]:
    """Several calls in one round trip; they must be ones that may run twice, as all do where a script is not known."""
    try:
        async with client.pipeline(transaction=False) as pipe:
            for call in calls:
                _, sha = source(call.script, call.job)
                pipe.evalsha(sha, len(call.keys), *call.keys, *call.args)
            found = await pipe.execute()
    except NoScriptError:
        return [await run_async(client, call) for call in calls]
    except ResponseError as error:
        raise _named(error) from error
    return [call.parse(one) for call, one in zip(calls, found, strict=True)]


def _named(error: ResponseError) -> ResponseError:
    """A refusal inside a script is wrapped in a nameless error: of a full disk always, of full memory by Redis 6.2."""
    full = any(words in str(error) for words in ("OOM command not allowed", "-MISCONF "))
    return OutOfMemoryError(str(error)) if full else error
