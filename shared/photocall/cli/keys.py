"""`photocall keys create|list|revoke`: the file that PHOTOCALL_API_KEYS names. Gateways notice a change in a second."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from redis.exceptions import RedisError

from photocall.api_keys import SCOPES, USUAL_SCOPES, ApiKey, KeyFile, KeyFileError
from photocall.cli.errors import Unable
from photocall.cli.output import add_json, print_json, print_table
from photocall.cli.parser import PROGRAM, warn
from photocall.connections import connect_async
from photocall.key_limits import BadLimit, KeyLimits
from photocall.key_uses import KeyUses
from photocall.local import socket_url
from photocall.settings import KeySettings

VARIABLE = "PHOTOCALL_API_KEYS"
NONE = "none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may stand behind `photocall keys`."""
    parser.add_argument("--file", type=Path, metavar="FILE", help=f"the file of keys ({VARIABLE})")
    actions = parser.add_subparsers(dest="action", required=True)
    create = actions.add_parser("create", help="make a key and print it, once")
    create.add_argument("id", metavar="ID", help="whose it is; what is asked with it belongs to this id")
    create.add_argument(
        "--scope",
        "--scopes",
        action="append",
        metavar="S,S",
        help=f"of {', '.join(SCOPES)}; {','.join(USUAL_SCOPES)} unless said",
    )
    limits = "; `none`: no limit, whatever the settings say"
    create.add_argument("--rate", metavar="N/s", help=f"calls a second (N/min, N/h) (PHOTOCALL_KEY_RATE){limits}")
    create.add_argument("--burst", metavar="N", help="calls at once, after a pause; the rate's N unless said")
    create.add_argument("--concurrency", metavar="N", help=f"unfinished jobs (PHOTOCALL_KEY_CONCURRENCY){limits}")
    listing = actions.add_parser("list", help="print ids, scopes, limits, and when each was last used")
    revoke = actions.add_parser("revoke", help="remove a key")
    revoke.add_argument("id", metavar="ID", help="whose")
    for action in (create, listing, revoke):
        add_json(action)


def run_keys(options: argparse.Namespace) -> int:
    """0 when done. Raises SettingsError, Unable, OSError."""
    settings = KeySettings.from_env(os.environ)
    named = options.file.expanduser() if options.file else settings.api_keys
    if named is None:
        raise Unable(f"name the file with --file or {VARIABLE}")
    file = KeyFile(named)
    try:
        if options.action == "create":
            scopes = USUAL_SCOPES if options.scope is None else ",".join(options.scope).split(",")
            key = file.create(options.id, scopes, _limits(options, settings))
            if options.json:
                print_json({"id": options.id, "key": key})
            else:
                print(key)
        elif options.action == "revoke":
            file.revoke(options.id)
            if options.json:
                print_json({"id": options.id, "revoked": True})
        else:
            _list(file.read(), settings, options.json)
    except (KeyFileError, BadLimit) as error:
        raise Unable(f"{file.path}: {error}") from None
    return 0


def _limits(options: argparse.Namespace, settings: KeySettings) -> KeyLimits:
    """What was said, and the settings where nothing was. Raises BadLimit."""
    rate, burst, concurrency = options.rate, options.burst, options.concurrency
    if rate is None and settings.key_rate:
        rate, burst = settings.key_rate, burst or (str(settings.key_burst) if settings.key_burst else None)
    if concurrency is None and settings.key_concurrency:
        concurrency = str(settings.key_concurrency)
    return KeyLimits.of(*(None if value == NONE else value for value in (rate, burst, concurrency)))


def _list(keys: Sequence[ApiKey], settings: KeySettings, as_json: bool) -> None:
    for_people = [
        (key.id, [scope for scope in SCOPES if scope in key.scopes], key.limits.shown, at)
        for key, at in zip(keys, _last_used([key.id for key in keys], settings), strict=True)
    ]
    if as_json:
        for name, scopes, limits, at in for_people:
            print_json({"id": name, "scopes": scopes, "limits": limits, "last_used": at})
    else:
        rows = ((name, ",".join(scopes), limits, at) for name, scopes, limits, at in for_people)
        print_table(("ID", "SCOPES", "LIMITS", "LAST USED"), rows)


def _last_used(ids: Sequence[str], settings: KeySettings) -> list[str]:
    """To the minute; `?` where the Redis that knows does not answer."""
    url = settings.redis_url if "PHOTOCALL_REDIS_URL" in os.environ else socket_url(settings.data)

    async def read() -> list[float | None]:
        client = connect_async(url or settings.redis_url)
        try:
            return await KeyUses(client).read(ids)
        finally:
            await client.aclose()
            await client.connection_pool.disconnect()

    try:
        found = asyncio.run(read())
    except (RedisError, OSError) as error:
        warn(f"{PROGRAM} keys list: when they were used is not known, Redis does not answer: {error}")
        return ["?"] * len(ids)
    return ["never" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%MZ}" for at in found]
