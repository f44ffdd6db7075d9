"""Why a picture is not prepared, and what one picture may be."""

from __future__ import annotations

from typing import Protocol


class ImageRefused(Exception):
    """A picture that is not prepared: a code of the error table, and the reason for a person."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Limits(Protocol):
    """What one picture may be; settings satisfy it."""

    @property
    def max_image_bytes(self) -> int: ...
    @property
    def max_pixels(self) -> int:
        """Width times height as stored."""

    @property
    def max_frames(self) -> int:
        """Frames or pages of one file."""
