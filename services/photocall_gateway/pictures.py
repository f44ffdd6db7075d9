"""One picture of a request: its bytes as they were sent, in base64 or as a data URL, its hash, or its URL.

Nothing here opens a file or a connection: a path is never read, and what stands at a URL is fetched by prep, where that
is switched on. A picture never appears in an error.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from dataclasses import dataclass, replace
from urllib.parse import unquote_to_bytes

from photocall.errors import CodedError
from photocall.formats import picture_format, what_it_is
from photocall.questions import InvalidField, Json, Loc
from photocall.views import PLAIN, View

MAX_GATHERED = 128  # each key is looked for at every place of the text
_SHA256 = re.compile(r"[0-9a-f]{64}")
MAX_ESCAPED_CHARS = 1 << 20  # of a data URL without base64: taking one apart costs fifty times its size
_SCHEME_CHARS = 16  # as far as a URL's scheme is looked for


@dataclass(frozen=True, slots=True)
class Remote:
    """A picture that stands at a URL. `parsing.checked` refuses it where URLs are not fetched."""

    url: str
    loc: Loc


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture by the hash of its bytes, and the bytes; None for one that was uploaded before, or is `remote`."""

    sha256: str  # of a remote one: that of its URL, until it is fetched
    data: bytes | None
    remote: Remote | None = None
    view: View = PLAIN

    @property
    def named(self) -> str:
        """What the ask holds of it: hash or URL."""
        return self.sha256 if self.remote is None else self.remote.url


def picture(data: bytes | Remote, shown: str, loc: Loc, limit: int) -> Picture:
    """Check bytes that were sent. `shown` names the picture in a refusal: "Asset 'img'".

    Raises InvalidField, or CodedError `image_too_large` and `image_unsupported`.
    """
    if isinstance(data, Remote):
        return Picture(hashlib.sha256(data.url.encode()).hexdigest(), None, data)
    if not data:
        raise InvalidField(loc, "The picture has no bytes", "too_short")
    if len(data) > limit:
        msg = f"{shown} has {len(data)} bytes, limit {limit}"
        raise CodedError("image_too_large", msg, asset=place(loc), bytes=len(data), limit=limit)
    if picture_format(data) is None:
        msg = f"{shown} is no picture of a supported format: it is {what_it_is(data)}"
        raise CodedError("image_unsupported", msg, asset=place(loc))
    return Picture(hashlib.sha256(data).hexdigest(), data)


def stored(sha256: Json, loc: Loc) -> Picture:
    """A picture that was uploaded before, by its hash. Raises InvalidField."""
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise InvalidField(loc, "Expected a SHA-256 in 64 lower-case hex digits", "sha256")
    return Picture(sha256, None)


def place(loc: Loc) -> str:
    """How a picture is called in an error's data: the key of an asset, else the path to it."""
    return str(loc[1])[:80] if loc[:1] == ("assets",) else path(loc)


def path(loc: Loc) -> str:
    """A field's path from the body as a person writes it: questions[0].choices[3].value."""
    found = ""
    for part in loc:
        found += f"[{part}]" if isinstance(part, int) else f".{part}" if found else part
    return found


def from_base64(text: Json, loc: Loc) -> bytes:
    """The bytes of a base64 string. Raises InvalidField."""
    if not isinstance(text, str):
        raise InvalidField(loc, "Expected a string", "string_type")
    return _base64(text, loc)


def from_text(text: Json, loc: Loc) -> bytes | Remote:
    """The bytes of a string that is base64 or a URL. Raises InvalidField."""
    if not isinstance(text, str):
        raise InvalidField(loc, "Expected a string, base64 or a data URL", "string_type")
    return from_url(text, loc) if ":" in text[:_SCHEME_CHARS] else _base64(text, loc)


def from_url(url: Json, loc: Loc) -> bytes | Remote:
    """The bytes of a data URL, or an http(s) URL as it is; every other one is refused. Raises InvalidField."""
    if not isinstance(url, str):
        raise InvalidField(loc, "Expected a data URL", "string_type")
    scheme = url[:_SCHEME_CHARS].lstrip().partition(":")[0].lower()
    if scheme in ("http", "https"):
        return Remote(url.strip(), loc)
    head, comma, data = url.lstrip().partition(",")
    if scheme != "data" or not comma:
        raise InvalidField(loc, "Expected a data URL: data:image/...;base64,...", "data_url")
    if head.lower().endswith(";base64"):
        return _base64(data, loc)
    if len(data) > MAX_ESCAPED_CHARS:
        raise InvalidField(loc, f"A data URL of over {MAX_ESCAPED_CHARS} characters is sent as base64", "data_url")
    return unquote_to_bytes(data)


class Gathered:
    """Pictures that stand among the words of a request, each under a key made for it, to be put in its place.

    The key holds part of the picture's hash, so that a text of somebody else's does not stand for it by chance.
    """

    def __init__(self, kind: str, max_bytes: int) -> None:
        self.pictures: dict[str, Picture] = {}
        self._kind = kind
        self._max_bytes = max_bytes
        self._count = 0

    def add(self, data: bytes | Remote, loc: Loc, view: View = PLAIN) -> str:
        """The key of a picture that was sent. Raises as `picture` does."""
        return self.put(picture(data, f"Picture {path(loc)}", loc, self._max_bytes), loc, view)

    def put(self, found: Picture, loc: Loc, view: View = PLAIN) -> str:
        """The key of a picture that has been checked. Raises InvalidField for one too many."""
        if self._count == MAX_GATHERED:
            raise InvalidField(loc, f"At most {MAX_GATHERED} pictures among the words", "too_long")
        self._count += 1
        key = f"<{self._kind}:{self._count}:{found.sha256[:12]}>"
        self.pictures[key] = replace(found, view=view)
        return key


def _base64(text: str, loc: Loc) -> bytes:
    try:
        # Wrapped base64 is common (`base64 photo.jpg`); any other foreign character is a fault.
        return binascii.a2b_base64("".join(text.split()).encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise InvalidField(loc, "Not valid base64", "base64") from error
