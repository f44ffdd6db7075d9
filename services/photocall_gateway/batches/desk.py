"""BatchDesk: files and batches as the routes need them, put together once per gateway."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis.asyncio

from photocall import keys
from photocall.errors import CodedError, IdempotencyMismatch, PhotocallError
from photocall.questions import InvalidField
from photocall.records import AsyncRecords
from photocall.settings import DAY_S, GatewaySettings
from photocall_gateway.batches.batch import Batch, Head, Kind
from photocall_gateway.batches.creation import NewBatch
from photocall_gateway.batches.estimate import estimate
from photocall_gateway.batches.files import FileShelf, StoredFile
from photocall_gateway.batches.inputs import Input, InputRefused, kind_of
from photocall_gateway.batches.jsonl_input import JsonlInput
from photocall_gateway.batches.keeper import BatchKeeper
from photocall_gateway.batches.leases import BatchLeases
from photocall_gateway.batches.news import BatchNews
from photocall_gateway.batches.pace import Pace
from photocall_gateway.batches.parts import Parts
from photocall_gateway.batches.picture_inputs import FolderInput, TarInput, ZipInput
from photocall_gateway.batches.places import INPUT, Places, new_hex
from photocall_gateway.batches.shelf import SCRATCH, BatchShelf, ResultFile
from photocall_gateway.body import Limits
from photocall_gateway.dispatch import Dispatcher
from photocall_gateway.load import Load
from photocall_gateway.models import ModelNames
from photocall_gateway.waiting import WakeReader


class BatchDesk:
    """Blocking work goes to threads here; the routes only await. Errors are those of the shelves."""

    def __init__(
        self,
        settings: GatewaySettings,
        client: redis.asyncio.Redis,
        records: AsyncRecords,
        dispatcher: Dispatcher,
        wakes: WakeReader,
        models: ModelNames,
        load: Load,
        limits: Limits,
        news: BatchNews,
    ) -> None:
        self._settings = settings
        self._redis = client
        self._places = Places(settings.data)
        self._load = load
        self.files = FileShelf(
            self._places,
            max_files=settings.max_files_per_key,
            min_free_bytes=settings.min_free_bytes,
            ttl_s=settings.file_ttl_s,
        )
        self.batches = BatchShelf(self._places, settings.file_ttl_s)
        self.news = news
        self._parts = Parts(
            news=news,
            records=records,
            dispatcher=dispatcher,
            wakes=wakes,
            leases=BatchLeases(client),
            pace=Pace(client),
            models=models,
            limits=limits,
            max_in_flight=settings.batch_in_flight,
            max_rows=settings.max_batch_rows,
        )
        self.keeper = BatchKeeper(
            self._places, self.files, self.batches, self._parts.leases, self._parts, self._open_input
        )

    async def create(self, owner: str, new: NewBatch, key: str | None = None, said: bytes = b"") -> Batch:
        """Begin a batch; the one that was begun before under the same idempotency `key`, with the same body `said`."""
        batch_id, before = await self._keyed(owner, key, said)
        if before is not None:
            return before
        async with self._freed(owner, key):
            new = await self._calibrated(owner, new)
            head, source = await asyncio.to_thread(self._head, owner, new, batch_id)
            found = await asyncio.to_thread(self.batches.create, head, source)
        self.keeper.hurry()
        return found

    async def keep_file(
        self, owner: str, part: Path, filename: str, purpose: str, expires_after_s: int | None, key: str | None
    ) -> StoredFile:
        """Make an upload a file; the one that was made before of the same bytes under the same idempotency `key`."""
        file_id = None
        if key is not None:
            said = f"{purpose} {expires_after_s} {await asyncio.to_thread(_digest, part)}".encode()
            file_id = await self._bound(owner, f"file:{key}", said, f"file-{new_hex()}")
            with suppress(CodedError):
                return await asyncio.to_thread(self.files.get, owner, file_id)
        return await asyncio.to_thread(self.files.keep, owner, part, filename, purpose, expires_after_s, file_id)

    async def dry_run(self, owner: str, new: NewBatch) -> dict[str, Any]:
        """What the batch would take; nothing of it stays."""
        new = await self._calibrated(owner, new)
        head, source = await asyncio.to_thread(self._head, owner, new, f"batch_{new_hex()}")

        def link(directory: Path) -> None:
            if source is not None:
                os.link(source, directory / INPUT)

        measured, row_s = await self._parts.pace.read(), await self._load.pace_s()
        parts = self._parts
        return await asyncio.to_thread(
            estimate,
            head,
            self._places.root,
            self._open_input,
            parts.models,
            parts.max_rows,
            parts.limits,
            measured,
            row_s,
            link,
        )

    async def _calibrated(self, owner: str, new: NewBatch) -> NewBatch:
        """With the calibration that its template names in its place. Raises UnknownCalibration."""
        name = new.template.get("calibration")
        if not isinstance(name, str):
            return new
        own = await self._parts.dispatcher.calibration(owner, name, ("request", "calibration"))
        return replace(new, template={**new.template, "calibration": own.to_content()})

    async def retry_failed(self, owner: str, batch_id: str, key: str | None = None) -> Batch:
        """Begin another batch, of the rows that this one did not answer. `key`: as for `create`."""
        new_id, before = await self._keyed(owner, key, f"retry {batch_id}".encode())
        if before is not None:
            return before

        def again(old: Batch) -> Head:
            now, head = int(time.time()), old.head
            return Head(
                id=new_id,
                owner=owner,
                endpoint=head.endpoint,
                kind=head.kind,
                input_file_id=head.input_file_id,
                completion_window=head.completion_window,
                created_at=now,
                expires_at=now + head.expires_at - head.created_at,
                metadata=head.metadata,
                template=head.template,
                folder=head.folder,
                retry_of=head.id,
                webhook=head.webhook,
            )

        async with self._freed(owner, key):
            found = await asyncio.to_thread(self.batches.retry_failed, owner, batch_id, again)
        self.keeper.hurry()
        return found

    async def batch(self, owner: str, batch_id: str) -> Batch:
        """A batch as it stands. Raises CodedError `unknown_batch`."""
        return await asyncio.to_thread(self.batches.get, owner, batch_id)

    async def cancel(self, owner: str, batch_id: str) -> dict[str, Any]:
        """Ask for an early end; the batch as it is then. Raises CodedError `unknown_batch` or `batch_state`."""
        return await self.news.shown(await asyncio.to_thread(self.batches.ask_cancel, owner, batch_id))

    async def is_told(self, owner: str, batch_id: str) -> bool:
        """Whether a batch has ended and no event of it will come."""
        return not await asyncio.to_thread(self._places.marker(owner, batch_id).exists)

    async def delete_batch(self, owner: str, batch_id: str) -> None:
        """Remove a batch that has ended, with its results and its events. Its input file is a file of its own."""
        await asyncio.to_thread(self.batches.delete, owner, batch_id)
        await self.news.forget(batch_id)

    def file(self, owner: str, file_id: str) -> StoredFile:
        """An uploaded file, or a result file as it stands. Blocking."""
        result = self.batches.result(owner, file_id)
        return self.files.get(owner, file_id) if result is None else result.stored

    def content(self, owner: str, file_id: str) -> tuple[Path, int, ResultFile | None]:
        """Where a file's bytes are and how many count. Blocking."""
        result = self.batches.result(owner, file_id)
        if result is not None:
            return result.path, result.stored.bytes, result
        return self.files.path(owner, file_id), self.files.get(owner, file_id).bytes, None

    def delete(self, owner: str, file_id: str) -> None:
        """Blocking."""
        result = self.batches.result(owner, file_id)
        if result is None:
            self.files.delete(owner, file_id)
        else:
            self.batches.delete_result(owner, result)

    def listing(self, owner: str, purpose: str | None) -> list[StoredFile]:
        """Files of both kinds, newest first. Blocking."""
        found = self.files.listing(owner) if purpose != "batch_output" else []
        if purpose in (None, "batch_output"):
            found = [*found, *self.batches.results(owner)]
        wanted = [stored for stored in found if purpose in (None, stored.purpose)]
        return sorted(wanted, key=lambda stored: stored.id, reverse=True)

    async def _keyed(self, owner: str, key: str | None, said: bytes) -> tuple[str, Batch | None]:
        """The id that a batch under this key has, and the batch where it is there. Raises IdempotencyMismatch."""
        batch_id = f"batch_{new_hex()}"
        if key is None:
            return batch_id, None
        batch_id = await self._bound(owner, f"batch:{key}", said, batch_id)
        with suppress(CodedError):
            return batch_id, await self.batch(owner, batch_id)
        return batch_id, None

    async def _bound(self, owner: str, key: str, said: bytes, new_id: str) -> str:
        """The id that this key stands for, for a day: `new_id` where it stood for none. Raises IdempotencyMismatch.

        It is known before what it names is there: whoever asks again after a crash in between makes that one.
        """
        name, digest = keys.bound(owner, key), hashlib.sha256(said).hexdigest()
        if await self._redis.set(name, f"{digest} {new_id}", nx=True, ex=DAY_S):
            return new_id
        bound: Any = await self._redis.get(name)
        known, _, bound_id = (bound or b"").decode().partition(" ")
        if known != digest:
            raise IdempotencyMismatch(key.partition(":")[2])
        return bound_id

    @asynccontextmanager
    async def _freed(self, owner: str, key: str | None) -> AsyncIterator[None]:
        """A key stands for nothing when what was asked under it is refused: the corrected request may have it."""
        try:
            yield
        except PhotocallError:
            if key is not None:
                await self._redis.delete(keys.bound(owner, f"batch:{key}"))
            raise

    def _head(self, owner: str, new: NewBatch, batch_id: str) -> tuple[Head, Path | None]:
        """Raises InvalidField, or CodedError `unknown_file`."""
        source = None
        if new.folder is None:
            assert new.input_file_id is not None
            self.files.get(owner, new.input_file_id)
            source = self.files.path(owner, new.input_file_id)
            kind: Kind = kind_of(source)
        else:
            kind = "folder"
        if kind != "jsonl" and not new.template:
            raise InvalidField(("request",), "Required: what is asked of each picture", "missing")
        if kind == "jsonl" and new.template:
            raise InvalidField(
                ("request",), "Only for a zip, a tar or a folder; lines have bodies", "unsupported_field"
            )
        now = int(time.time())
        head = Head(
            id=batch_id,
            owner=owner,
            endpoint=new.endpoint,
            kind=kind,
            input_file_id=new.input_file_id or f"folder:{new.folder}",
            completion_window=new.window,
            created_at=now,
            expires_at=now + new.window_s,
            metadata=new.metadata,
            template=new.template,
            folder=new.folder,
            webhook=new.webhook,
        )
        if kind == "folder":
            self._check_folder(head)
        return head, source

    def _check_folder(self, head: Head) -> None:
        loc = ("input_folder",)
        if self._settings.batch_root is None:
            raise InvalidField(loc, "Folders are not served: PHOTOCALL_BATCH_ROOT is not set", "unsupported_field")
        try:
            self._folder(head).check()
        except (InputRefused, OSError) as refused:
            raise InvalidField(loc, "No such folder below the server's root", "not_found") from refused

    def _open_input(self, head: Head, directory: Path) -> Input:
        """The reader of a batch's input; opens nothing yet."""
        settings = self._settings
        if head.kind == "jsonl":
            return JsonlInput(directory / INPUT, head.endpoint, settings.max_body_bytes)
        if head.kind == "folder":
            return self._folder(head)
        if head.kind == "zip":
            return ZipInput(directory / INPUT, head.endpoint, head.template, settings.max_image_bytes)
        return TarInput(directory / INPUT, directory / SCRATCH, head.endpoint, head.template, settings.max_image_bytes)

    def _folder(self, head: Head) -> FolderInput:
        root = self._settings.batch_root
        if root is None:  # the operator has switched it off since: its rows fail, and say so
            root = Path("/nonexistent")
        return FolderInput(root, head.folder or "", head.endpoint, head.template, self._settings.max_image_bytes)


def _digest(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
