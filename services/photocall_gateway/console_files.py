"""ConsoleFiles: the web console's own files, read once. No build step, and nothing from anywhere else.

The page may load what this server serves and nothing else, runs no script but its own files, and can put no text into
itself as markup: the browser refuses that (`require-trusted-types-for`), whatever a model or a file's name says.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "console"
PAGE = "index.html"
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# Pictures that the console has in its hands (what the model saw, what is about to be sent) are blobs of its own.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script';"
    " trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "cache-control": "no-cache",  # asked for by its tag each time, so that a new version is seen at once
}


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    """One file: what it holds, its media type and its tag."""

    data: bytes
    media_type: str
    tag: str


class ConsoleFiles:
    """Every file of the folder, by its name. Raises OSError where it cannot be read."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {path.name: _read(path) for path in sorted(folder.iterdir()) if path.suffix in MEDIA_TYPES}

    def get(self, name: str) -> ConsoleFile | None:
        """None: there is no such file. Names are looked up, so no path leads out of the folder."""
        return self._files.get(name)

    @property
    def names(self) -> list[str]:
        return list(self._files)


def _read(path: Path) -> ConsoleFile:
    data = path.read_bytes()
    return ConsoleFile(data, MEDIA_TYPES[path.suffix], f'"{hashlib.sha256(data).hexdigest()[:16]}"')
