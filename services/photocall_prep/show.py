"""What the model sees of a stored picture, and what was done to it: made again when somebody asks, at no cost before.

The same bytes and budget make the same pixels, so nothing is kept for this while a job is prepared. `show` and `forget`
are what the queue names; both are harmless to run twice.
"""

from __future__ import annotations

import io
import time
from contextvars import ContextVar
from typing import Any

import numpy as np
import redis
from PIL import Image

from photocall import keys
from photocall.grid import PATCH_SIZE, Grid
from photocall.images import ImageStore
from photocall.scripts import Call, flat, run
from photocall.views import PLAIN, Budget, View
from photocall.wire import pack
from photocall_prep.prepare import Prep, PreparedImage
from photocall_prep.refusal import ImageRefused
from photocall_prep.shelf import PatchShelf

KEPT_S = 300
MAX_VIEWS = 8  # of one picture, kept at a time

# The queue calls these by name, with a hash only; the worker's composition root says who does the work.
SHOWROOM: ContextVar[Showroom] = ContextVar("showroom")


def show(sha256: str, view: str = "") -> None:
    """Make a picture's PNG and report, in a view."""
    SHOWROOM.get().show(sha256, View.parse(view))


def forget(sha256: str) -> None:
    """Remove what was prepared from a picture that was deleted."""
    SHOWROOM.get().forget(sha256)


class Showroom:
    """Shows pictures as one checkpoint sees them."""

    def __init__(self, client: redis.Redis, images: ImageStore, shelf: PatchShelf, prep: Prep) -> None:
        self._redis = client
        self._images = images
        self._shelf = shelf
        self._prep = prep

    def show(self, sha256: str, view: View = PLAIN) -> None:
        """Write PNG and report, or the error, for whoever waits; kept a few minutes, a few views of each picture."""
        data = self._images.get(sha256)
        if data is None:
            found: dict[str, bytes] = {"error": pack({"code": "image_expired", "message": "the picture is gone"})}
        else:
            try:
                started = time.perf_counter()
                prepared = self._prep.prepare(data, self._budget(view), view)
                took_ms = 1000 * (time.perf_counter() - started)
                found = {"png": png(prepared), "report": pack(report(data, prepared, took_ms))}
            except ImageRefused as refused:
                found = {"error": pack({"code": refused.code, "message": refused.reason})}
        args = (keys.shown_field("", str(view)), KEPT_S, MAX_VIEWS, keys.WAKE, *flat(found))
        run(self._redis, Call("keep_shown", (keys.shown(sha256),), args, bool, job=False))

    def forget(self, sha256: str) -> None:
        """Remove patch blobs and what is shown. An engine that misses one has it made again."""
        self._shelf.remove(sha256)
        self._redis.delete(keys.shown(sha256))
        self._redis.zrem(keys.FORGET, sha256)

    def _budget(self, view: View) -> Budget:
        budget = view.budget or self._shelf.budget
        reason = self._shelf.why_not(budget)
        if reason is not None:
            raise ImageRefused("budget_unsupported", reason)
        return budget


def report(data: bytes, prepared: PreparedImage, took_ms: float) -> dict[str, Any]:
    """What was done to a picture on its way to the model."""
    facts, grid = prepared.facts, prepared.grid
    height, width = grid.pixels
    return {
        "bytes": len(data),
        "decoder": facts.format,
        "mode": facts.mode,
        "frame": facts.frame,
        "frames": facts.frames,
        "orientation": facts.orientation,
        "colour": ", ".join(prepared.colour) or "as it is",
        "size_in": list(facts.size),
        "size_upright": list(facts.upright_size),
        "size_decoded": list(prepared.decoded_size),
        "size_out": [width, height],
        "grid": [grid.height, grid.width],
        "soft_tokens": grid.num_soft,
        "budget": prepared.budget,
        "budget_why": prepared.why,
        "fidelity": prepared.fidelity,
        "ms": round(took_ms, 1),
    }


def png(prepared: PreparedImage) -> bytes:
    """The patches put together again, as a PNG."""
    grid: Grid = prepared.grid
    tiles = np.frombuffer(prepared.patches, np.uint8).reshape(grid.height, grid.width, PATCH_SIZE, PATCH_SIZE, 3)
    pixels = tiles.transpose(0, 2, 1, 3, 4).reshape(*grid.pixels, 3)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", compress_level=1)
    return out.getvalue()
