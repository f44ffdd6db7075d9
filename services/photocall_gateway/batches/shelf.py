"""BatchShelf: the batches on this disk, by owner, and their result files."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from photocall.errors import CodedError
from photocall_gateway.batches.batch import Batch, BatchStatus, Head
from photocall_gateway.batches.files import StoredFile, disk_error, unknown_file
from photocall_gateway.batches.ledger import DONE, FAILED, Ledger
from photocall_gateway.batches.places import (
    BATCH_ID,
    ERRORS,
    FILE_ID,
    INPUT,
    LEDGER,
    OUTPUT,
    Places,
    sync_directory,
)

SCRATCH = "input.tar"  # a compressed tar, uncompressed


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A result file as far as it is committed."""

    stored: StoredFile
    path: Path
    directory: Path
    file: int  # DONE or FAILED
    growing: bool

    def end_of(self, lines: int) -> int | None:
        """The byte behind its first `lines` lines; None when it has fewer."""
        with opened(self.directory) as ledger:
            return ledger.end_of(self.file, lines)


class BatchShelf:
    """Blocking. A batch is there whole or not at all: it is made aside and renamed."""

    def __init__(self, places: Places, ttl_s: int) -> None:
        self._places = places
        self._ttl_s = ttl_s

    def create(self, head: Head, source: Path | None, parent: Path | None = None) -> Batch:
        """A new batch of a file, or of a folder, or of the rows that `parent` did not answer.

        The input is linked, so deleting the file later takes nothing from the batch. Raises CodedError `disk_full`.
        """
        directory = self._places.batch(head.owner, head.id)
        aside = directory.with_name(f".{head.id}.{secrets.token_hex(4)}")
        marker = self._places.marker(head.owner, head.id)
        try:
            aside.mkdir(mode=0o700, parents=True)
            if source is not None:
                os.link(source, aside / INPUT)
            if parent is not None and (parent / SCRATCH).exists():
                os.link(parent / SCRATCH, aside / SCRATCH)
            ledger = Ledger.create(aside, head)
            try:
                if parent is not None:
                    ledger.copy_failed(parent)
                    ledger.set_status(BatchStatus.IN_PROGRESS)
                found = ledger.batch()
            finally:
                ledger.close()
            marker.touch(0o600)  # one without a batch is taken away by the keeper; a batch without one would never run
            sync_directory(self._places.live)
            aside.rename(directory)
            sync_directory(directory.parent)
        except BaseException as error:
            shutil.rmtree(aside, ignore_errors=True)
            if directory.exists():  # another call with the same key was quicker
                return self.get(head.owner, head.id)
            marker.unlink(missing_ok=True)
            if isinstance(error, FileNotFoundError):
                raise unknown_file(head.input_file_id) from error
            if isinstance(error, OSError | sqlite3.Error):
                raise disk_error(error) from error
            raise
        return found

    def get(self, owner: str, batch_id: str) -> Batch:
        """Raises CodedError `unknown_batch`, for another owner's too."""
        with self._opened(owner, batch_id) as ledger:
            return ledger.batch()

    def owner_of(self, batch_id: str) -> str | None:
        """Whose batch this is; None where nobody has it."""
        if not BATCH_ID.fullmatch(batch_id):
            return None
        directory = self._places.find(batch_id)
        if directory is None:
            return None
        with opened(directory) as ledger:
            return ledger.batch().head.owner

    def ask_cancel(self, owner: str, batch_id: str) -> Batch:
        """Raises CodedError `unknown_batch`, or `batch_state` for one that has ended."""
        with self._opened(owner, batch_id) as ledger:
            found = ledger.batch()
            if found.status.terminal:
                raise CodedError("batch_state", f"A batch that is {found.status} cannot be cancelled")
            ledger.ask_cancel()
            return ledger.batch()

    def delete(self, owner: str, batch_id: str) -> None:
        """Remove a batch with its results. Raises CodedError `unknown_batch`, or `batch_state` while it runs."""
        found = None  # of a damaged one nothing is known, and nothing is wanted but that it goes
        try:
            found = self.get(owner, batch_id)
        except CodedError as error:
            if error.code != "batch_damaged":
                raise
        if found is not None and not found.status.terminal:
            msg = f"A batch that is {found.shown_status} cannot be deleted: cancel it, and wait for its end"
            raise CodedError("batch_state", msg)
        directory = self._places.batch(owner, batch_id)
        aside = directory.with_name(f".{batch_id}.{secrets.token_hex(4)}")
        try:
            directory.rename(aside)  # gone at once; what a crash leaves of it is swept
        except FileNotFoundError:  # somebody else has just deleted it
            raise unknown_batch(batch_id) from None
        sync_directory(directory.parent)
        shutil.rmtree(aside, ignore_errors=True)
        self._places.marker(owner, batch_id).unlink(missing_ok=True)

    def retry_failed(self, owner: str, batch_id: str, make_head: Callable[[Batch], Head]) -> Batch:
        """A new batch of the rows that an ended one did not answer. Raises CodedError as `create`, or `batch_state`."""
        found = self.get(owner, batch_id)
        if not found.status.terminal:
            raise CodedError("batch_state", f"A batch that is {found.status} still answers its rows")
        if found.failed == 0:
            raise CodedError("batch_state", "No row of this batch has failed")
        directory = self._places.batch(owner, batch_id)
        source = directory / INPUT
        return self.create(make_head(found), source if source.exists() else None, directory)

    def listing(self, owner: str, after: str | None, limit: int) -> list[Batch]:
        """The owner's batches, newest first, behind `after`, which may be gone: ids are in order of creation.

        Raises CodedError `unknown_batch` for an id that is none.
        """
        if after is not None and not BATCH_ID.fullmatch(after):
            raise unknown_batch(after)
        names = sorted((path.name for path in self._places.batches(owner).glob("batch_*")), reverse=True)
        chosen = [name for name in names if after is None or name < after][:limit]
        return list(self._each(owner, chosen))

    def result(self, owner: str, file_id: str) -> ResultFile | None:
        """The result file of an id; None for an id that is none's. Raises CodedError `unknown_file`."""
        match = FILE_ID.fullmatch(file_id)
        if match is None or match[2] is None:
            return None
        try:
            batch = self.get(owner, f"batch_{match[1]}")
        except CodedError as error:
            raise unknown_file(file_id) from error
        found = self._result(batch, DONE if match[2] == "-output" else FAILED)
        if found is None:
            raise unknown_file(file_id)
        return found

    def results(self, owner: str) -> list[StoredFile]:
        """The result files of all batches of an owner."""
        batches = self._each(owner, [path.name for path in self._places.batches(owner).glob("batch_*")])
        found = [self._result(batch, file) for batch in batches for file in (DONE, FAILED)]
        return [result.stored for result in found if result is not None]

    def delete_result(self, owner: str, found: ResultFile) -> None:
        """Take the bytes away. Raises CodedError `file_in_use` while its batch runs."""
        if found.growing:
            raise CodedError("file_in_use", "Its batch still writes this file; cancel that first")
        found.path.unlink(missing_ok=True)

    def sweep(self, directory: Path, now: float) -> None:
        """Remove batches that ended long ago, and what a crash left of one that was being made."""
        for path in directory.iterdir():
            if path.name.startswith(".batch_") and path.stat().st_mtime < now - 3600:
                shutil.rmtree(path, ignore_errors=True)
            if not BATCH_ID.fullmatch(path.name) or _made_at(path) > now - self._ttl_s:
                continue
            try:
                with opened(path) as ledger:
                    batch = ledger.batch()
            except CodedError:  # damaged, and as old as one that has ended might be
                shutil.rmtree(path, ignore_errors=True)
                continue
            if batch.status.terminal and max(batch.times.values(), default=0) < now - self._ttl_s:
                shutil.rmtree(path, ignore_errors=True)

    def _result(self, batch: Batch, file: int) -> ResultFile | None:
        """None where there is no line of this kind, or its bytes were deleted."""
        head, ok = batch.head, file == DONE
        size, lines = (batch.output_bytes, batch.output_lines) if ok else (batch.error_bytes, batch.error_lines)
        directory = self._places.batch(head.owner, head.id)
        path = directory / (OUTPUT if ok else ERRORS)
        if not lines or not path.exists():
            return None
        file_id, name = (head.output_file_id, OUTPUT) if ok else (head.error_file_id, ERRORS)
        ended = max(batch.times.values(), default=head.created_at) if batch.status.terminal else None
        expires_at = None if ended is None else ended + self._ttl_s
        stored = StoredFile(file_id, size, head.created_at, f"{head.id}_{name}", "batch_output", expires_at)
        return ResultFile(stored, path, directory, file, not batch.status.terminal)

    def _each(self, owner: str, names: Sequence[str]) -> Iterator[Batch]:
        """Those of them that can be read when their turn comes: others are deleted meanwhile, or damaged."""
        for name in names:
            with suppress(CodedError):
                yield self.get(owner, name)

    @contextmanager
    def _opened(self, owner: str, batch_id: str) -> Iterator[Ledger]:
        directory = self._places.batch(owner, batch_id)
        if not BATCH_ID.fullmatch(batch_id) or not (directory / LEDGER).exists():
            raise unknown_batch(batch_id)
        try:
            with opened(directory) as ledger:
                yield ledger
        except sqlite3.OperationalError as error:
            raise disk_error(error) from error


def unknown_batch(batch_id: str) -> CodedError:
    """No such batch for this caller: which of the reasons, is not told."""
    return CodedError("unknown_batch", f"No such Batch object: {batch_id[:80]}")


@contextmanager
def opened(directory: Path) -> Iterator[Ledger]:
    """A batch's ledger, to read or to leave a wish in. Raises CodedError `batch_damaged` where it is no ledger."""
    try:
        ledger = Ledger(directory)
        try:
            yield ledger
        finally:
            ledger.close()
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        msg = f"The ledger of {directory.name} is damaged ({error}): the batch can only be deleted"
        raise CodedError("batch_damaged", msg) from error


def _made_at(path: Path) -> float:
    return int(path.name.removeprefix("batch_")[:12], 16) / 1000
