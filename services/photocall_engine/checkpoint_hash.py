"""The hash of a checkpoint directory: one name for everything in it that an answer may depend on.

It is what `sha256sum` gives for the output of `sha256sum`, so that anybody can compute it without this project:
`export LC_ALL=C; sha256sum *.jinja *.json *.safetensors | sort -k2 | sha256sum`, in the directory.
"""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

PATTERNS = ("*.jinja", "*.json", "*.safetensors")
THREADS = 4  # hashing lets other threads run; more would only wait for the disk
PIECE_BYTES = 1 << 22


class CheckpointHash:
    """Hashes weights, configurations, tokenizer, template and calibration beside whatever else is done in the block.

    Leaving the block gives up what is not hashed by then: a checkpoint that cannot be loaded keeps nobody waiting.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._given_up = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="hash")

    def __enter__(self) -> Self:
        found = sorted(file.name for pattern in PATTERNS for file in self._directory.glob(pattern) if file.is_file())
        self._hashes = [(name, self._pool.submit(self._sha256, self._directory / name)) for name in found]
        return self

    def __exit__(self, *_: object) -> None:
        self._given_up.set()
        self._pool.shutdown(cancel_futures=True)

    def result(self) -> str:
        """In hex, once everything is hashed. Raises OSError."""
        lines = [f"{hashed.result()}  {name}\n" for name, hashed in self._hashes]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def _sha256(self, file: Path) -> str:
        digest = hashlib.sha256()
        with file.open("rb") as opened:
            while piece := opened.read(PIECE_BYTES):
                if self._given_up.is_set():
                    raise InterruptedError(f"{file} is not hashed to its end")
                digest.update(piece)
        return digest.hexdigest()


def checkpoint_sha256(directory: Path) -> str:
    """Of a directory, now. Raises OSError."""
    with CheckpointHash(directory) as hashing:
        return hashing.result()
