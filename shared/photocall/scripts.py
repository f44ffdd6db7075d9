"""The Lua scripts of `lua/`: a call of one with its keys and arguments, and the two ways to run it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Generic, TypeAlias, TypeVar, cast

import redis
import redis.asyncio
from redis.exceptions import NoScriptError

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


@cache
def source(script: str, job: bool) -> tuple[str, str]:
    """The text of a script and its SHA-1."""
    folder = resources.files("photocall") / "lua"
    text = (folder / f"{script}.lua").read_text()
    if job:
        text = (folder / "_job.lua").read_text() + text
    return text, hashlib.sha1(text.encode()).hexdigest()


def run(client: redis.Redis, call: Call[R]) -> R:
    """Run a call; the server is taught the script when it does not know it."""
    text, sha = source(call.script, call.job)
    try:
        found = client.evalsha(sha, len(call.keys), *call.keys, *call.args)
    except NoScriptError:
        found = client.eval(text, len(call.keys), *call.keys, *call.args)
    return call.parse(found)


async def run_async(client: redis.asyncio.Redis, call: Call[R]) -> R:
    """`run` for an asyncio client."""
    text, sha = source(call.script, call.job)
    try:
        found = await cast(Any, client.evalsha(sha, len(call.keys), *call.keys, *call.args))
    except NoScriptError:
        found = await cast(Any, client.eval(text, len(call.keys), *call.keys, *call.args))
    return call.parse(found)
