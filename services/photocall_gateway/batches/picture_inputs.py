"""Batches of pictures under one question set: a zip, a tar, or a folder of the server; one row per picture.

Nothing is unpacked to the disk, and one picture at a time is in memory. Links are never followed.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, cast

from photocall.errors import CodedError
from photocall_gateway.batches import zip_index
from photocall_gateway.batches.batch import BatchError
from photocall_gateway.batches.inputs import (
    Input,
    InputRefused,
    bomb,
    damaged,
    expansion_limit,
    member_name,
    read_bounded,
    too_large,
    unsafe_member,
    with_picture,
)
from photocall_gateway.batches.ledger import Row

MAX_DEPTH = 32  # of a folder
MAX_HEADER_BYTES = 1 << 20  # of one tar header with its extensions
_CHUNK = 1 << 20


class PictureInput(Input):
    """What the three have in common: the template, and rows of equal pictures known by their hash."""

    def __init__(self, endpoint: str, template: dict[str, Any], max_image_bytes: int) -> None:
        self._endpoint = endpoint
        self._template = template
        self._max_bytes = max_image_bytes
        self.model = template.get("model") if isinstance(template.get("model"), str) else None

    def body(self, row: Row) -> bytes:
        return with_picture(self._endpoint, self._template, self.picture(row))

    def picture(self, row: Row) -> bytes:
        """The bytes of a row's picture. Raises CodedError."""
        raise NotImplementedError

    def _hashed(self, row: Row) -> Row:
        """With the hash of its bytes; one that cannot be read is equal to none, and fails when its turn comes."""
        try:
            digest = hashlib.sha256(self.picture(row)).digest()
        except CodedError:
            return row
        return Row(row.number, row.custom_id, row.start, row.length, row.detail, digest)


class ZipInput(PictureInput):
    """A zip file, read by its central directory."""

    def __init__(self, path: Path, endpoint: str, template: dict[str, Any], max_image_bytes: int) -> None:
        super().__init__(endpoint, template, max_image_bytes)
        self._path = path

    def scan(self) -> Iterator[Row]:
        number = stored = expanded = 0
        length = self._path.stat().st_size
        limit = expansion_limit(length)
        try:
            with self._path.open("rb") as source:
                for entry in zip_index.entries(source, length):
                    name = member_name(entry.name)
                    if entry.link:
                        raise unsafe_member(entry.name, "a link or a device")
                    stored, expanded = stored + entry.compressed, expanded + entry.size
                    if stored > length or expanded > limit:  # entries that share bytes, or expand beyond reason
                        raise bomb(limit)
                    if name is None:
                        continue
                    number += 1
                    method = -1 if entry.encrypted else entry.method
                    detail = f"{method}:{entry.size}:{entry.crc}"
                    yield self._hashed(Row(number, name, entry.offset, entry.compressed, detail))
        except zip_index.NotZipError as error:
            raise InputRefused(BatchError("invalid_archive", f"No readable zip file: {error}")) from error

    def picture(self, row: Row) -> bytes:
        method, size, crc = (int(word) for word in row.detail.split(":"))
        if size > self._max_bytes:
            raise too_large(size, self._max_bytes)
        if method not in (zip_index.STORED, zip_index.DEFLATED):
            raise CodedError("image_undecodable", "The picture is encrypted, or compressed by an unusual method")
        with self._path.open("rb") as source:
            try:
                zip_index.seek_data(source, row.start)
            except zip_index.NotZipError as error:
                raise damaged() from error
            data = read_bounded(source, row.length, size, method == zip_index.DEFLATED)
        if zlib.crc32(data) != crc:
            raise damaged()
        return data


class TarInput(PictureInput):
    """A tar file; a compressed one is uncompressed once, to `scratch`, as it cannot be read from the middle."""

    def __init__(
        self, path: Path, scratch: Path, endpoint: str, template: dict[str, Any], max_image_bytes: int
    ) -> None:
        super().__init__(endpoint, template, max_image_bytes)
        self._packed = path
        self._scratch = scratch

    def scan(self) -> Iterator[Row]:
        number = 0
        with self._plain().open("rb") as raw:
            source = cast(BinaryIO, _HeadersOnly(raw))
            try:
                with tarfile.open(fileobj=source, mode="r:") as tar:
                    while (member := tar.next()) is not None:
                        tar.members.clear()  # type: ignore[attr-defined]  # it would keep every header
                        name = member_name(member.name + "/" if member.isdir() else member.name)
                        if not (member.isdir() or (member.isreg() and not member.issparse())):
                            raise unsafe_member(member.name, "a link, a device or a sparse file")
                        if name is not None:
                            number += 1
                            yield self._hashed(Row(number, name, member.offset_data, member.size, ""))
            except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
                raise InputRefused(BatchError("invalid_archive", f"No readable tar file: {error}")) from error

    def picture(self, row: Row) -> bytes:
        if row.length > self._max_bytes:
            raise too_large(row.length, self._max_bytes)
        with self._plain().open("rb") as source:
            source.seek(row.start)
            return read_bounded(source, row.length, row.length, deflated=False)

    def _plain(self) -> Path:
        if self._scratch.exists():
            return self._scratch
        with self._packed.open("rb") as source:
            if source.read(2) != b"\x1f\x8b":
                return self._packed
        limit = expansion_limit(self._packed.stat().st_size)
        part = self._scratch.with_suffix(".part")
        try:
            with gzip.open(self._packed) as source, part.open("wb") as out:
                while piece := source.read(_CHUNK):
                    if out.tell() + len(piece) > limit:
                        raise bomb(limit)
                    out.write(piece)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputRefused(BatchError("invalid_archive", f"No readable tar file: {error}")) from error
        part.rename(self._scratch)
        return self._scratch


class FolderInput(PictureInput):
    """A folder below the operator's root, walked by descriptors, so that no link leads out of it at any time."""

    def __init__(self, root: Path, folder: str, endpoint: str, template: dict[str, Any], max_image_bytes: int) -> None:
        super().__init__(endpoint, template, max_image_bytes)
        self._root = root
        self._parts = [part for part in folder.split("/") if part not in ("", ".")]

    def check(self) -> None:
        """Raises InputRefused for a folder that is not there or not below the root."""
        os.close(self._open(self._parts, directory=True))

    def scan(self) -> Iterator[Row]:
        for number, (path, size) in enumerate(self._walk(), 1):
            member_name(path)  # a name that no result line could carry is refused
            yield self._hashed(Row(number, path, 0, size, ""))

    def picture(self, row: Row) -> bytes:
        try:
            descriptor = self._open([*self._parts, *row.custom_id.split("/")], directory=False)
        except InputRefused as refused:
            raise CodedError("image_lost", "The picture is not there any more") from refused
        with os.fdopen(descriptor, "rb") as source:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise CodedError("image_lost", "It is no plain file any more")
            if about.st_size > self._max_bytes:
                raise too_large(about.st_size, self._max_bytes)
            return source.read(self._max_bytes)

    def _walk(self) -> Iterator[tuple[str, int]]:
        """Plain files by their path, links and hidden ones left out."""
        waiting: list[list[str]] = [[]]
        while waiting:
            below = waiting.pop()
            descriptor = self._open([*self._parts, *below], directory=True)
            try:
                with closing(os.scandir(descriptor)) as found:
                    for entry in found:
                        if entry.name.startswith("."):
                            continue
                        if entry.is_dir(follow_symlinks=False) and len(below) < MAX_DEPTH:
                            waiting.append([*below, entry.name])
                        elif entry.is_file(follow_symlinks=False):
                            yield "/".join([*below, entry.name]), entry.stat(follow_symlinks=False).st_size
            finally:
                os.close(descriptor)

    def _open(self, parts: list[str], directory: bool) -> int:
        """A descriptor of what stands there, no link on the way. Raises InputRefused."""
        if any(part == ".." or "\0" in part for part in parts):
            raise self._refused()
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        for number, part in enumerate(parts, 1):
            inner = directory or number < len(parts)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_DIRECTORY if inner else 0)
            try:
                below = os.open(part, flags, dir_fd=descriptor)
            except OSError as error:
                raise self._refused() from error
            finally:
                os.close(descriptor)
            descriptor = below
        return descriptor

    def _refused(self) -> InputRefused:
        return InputRefused(BatchError("folder_not_found", "No such folder below the server's root", "input_folder"))


class _HeadersOnly:
    """A file of which only headers are read: `tarfile` would read an extended header of any size into memory."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MAX_HEADER_BYTES:
            raise ValueError(f"a header of over {MAX_HEADER_BYTES} bytes")
        return self._raw.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        return self._raw.tell()
