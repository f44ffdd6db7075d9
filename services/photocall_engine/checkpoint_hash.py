"""The hash of a checkpoint directory: one name for everything in it that an answer may depend on.

It is what `sha256sum` gives for the output of `sha256sum`, so that anybody can compute it without this project:
`LC_ALL=C; sha256sum *.jinja *.json *.safetensors | sort -k2 | sha256sum`, in the directory.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PATTERNS = ("*.jinja", "*.json", "*.safetensors")
THREADS = 4  # hashing lets other threads run; more would only wait for the disk


def checkpoint_sha256(directory: Path) -> str:
    """Weights, configurations, tokenizer, template and calibration. Raises OSError."""
    files = sorted(file.name for pattern in PATTERNS for file in directory.glob(pattern) if file.is_file())
    with ThreadPoolExecutor(THREADS, thread_name_prefix="hash") as pool:
        hashes = pool.map(lambda name: _sha256(directory / name), files)
        lines = [f"{found}  {name}\n" for name, found in zip(files, hashes, strict=True)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
