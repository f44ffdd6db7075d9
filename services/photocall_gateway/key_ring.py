"""KeyRing: the API keys of a file as this process knows them, read again when the file has changed."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable
from pathlib import Path

from photocall.api_keys import NO_LIMITS, ApiKey, KeyFile, KeyFileError, digest_of
from photocall.key_limits import KeyLimits
from photocall.logs import fields
from photocall.settings import SettingsError
from photocall_gateway.caller import Caller

log = logging.getLogger(__name__)

LOOK_S = 1.0  # between two looks at the file


class KeyRing:
    """Without a file there are no keys, and none is wanted."""

    def __init__(self, file: Path | None) -> None:
        """Raises SettingsError for a file that cannot be used, or holds no key."""
        self._file = None if file is None else KeyFile(file)
        self._keys: tuple[ApiKey, ...] = ()
        self._limits: dict[str, KeyLimits] = {}
        self._callers: dict[tuple[str, frozenset[str]], Caller] = {}  # that have called, by digest and scopes
        self._revoked: Callable[[], None] = lambda: None
        self._looked_at = time.monotonic()
        self._seen = None if file is None else _version(file)
        self._told = self._seen  # the last version that could not be read and was said to be so
        if self._file is None:
            return
        try:
            self._take(self._file.read())
        except KeyFileError as error:
            raise SettingsError("PHOTOCALL_API_KEYS", str(file), str(error)) from error
        if not self._keys:
            raise SettingsError("PHOTOCALL_API_KEYS", str(file), "at least one `id:sha256` line")

    @property
    def wanted(self) -> bool:
        """Whoever calls needs a key."""
        return self._file is not None

    @property
    def keys(self) -> tuple[ApiKey, ...]:
        """Every key, as the file has them now."""
        self._look()
        return self._keys

    def find(self, key: str) -> Caller | None:
        """Whose key it is. Every entry is compared: the time does not tell which one matched."""
        self._look()
        digest, found = digest_of(key), None
        for known in self._keys:
            if hmac.compare_digest(known.digest, digest):
                found = known
        if found is None:
            return None
        caller = self._callers.get((found.digest, found.scopes))
        if caller is None:
            gone = asyncio.get_running_loop().create_future()
            caller = self._callers[found.digest, found.scopes] = Caller(found.id, found.scopes, gone)
        return caller

    def limits_of(self, owner: str) -> KeyLimits:
        """What an id may do. One that has no key any more is not limited: what it has asked for is still answered."""
        return self._limits.get(owner, NO_LIMITS)

    async def watch(self, revoked: Callable[[], None]) -> None:
        """Until cancelled: look at the file even when nobody calls, and call `revoked` when a caller is gone."""
        self._revoked = revoked
        while True:
            await asyncio.sleep(LOOK_S)
            self._look()

    def _look(self) -> None:
        """Read a file that has changed; one that cannot be read changes nothing, and is told of in the log."""
        if self._file is None or time.monotonic() - self._looked_at < LOOK_S:
            return
        self._looked_at = time.monotonic()
        version = _version(self._file.path)
        if version == self._seen:
            return
        try:
            self._take(self._file.read())
        except KeyFileError as error:  # tried again at every look, told of once
            if version != self._told:
                log.error("the file of API keys cannot be used, the keys stay as they were: %s", error)
            self._told = version
            return
        self._seen = version
        log.info("API keys read again", extra=fields(keys=len(self._keys)))

    def _take(self, found: tuple[ApiKey, ...]) -> None:
        self._keys = found
        self._limits = {key.id: key.limits for key in found}
        still = {(key.digest, key.scopes): key.id for key in found}
        gone = [name for name, caller in self._callers.items() if still.get(name) != caller.id]
        for name in gone:
            ended = self._callers.pop(name).gone
            if ended is not None and not ended.done():
                ended.set_result(None)
        if gone:
            self._revoked()


def _version(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
