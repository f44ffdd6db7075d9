"""What the model sees, made again in the prep room; and the removal of what was made of a deleted picture."""

from __future__ import annotations

import hashlib
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import redis
from PIL import Image

from photocall import keys
from photocall.sweeper import Sweeper
from photocall.views import PLAIN, View
from photocall.wire import unpack
from photocall_prep.prepare import ImagePrep
from photocall_prep.resize import to_grid
from photocall_prep.show import MAX_VIEWS, SHOWROOM, Showroom, show
from photocall_prep.worker import PrepWorker
from tests.prep.pictures import TestLimits, encoded, noise, scene
from tests.prep.workshop import Workshop

PHOTO = encoded(scene(200, 100), "PNG")
SHA = hashlib.sha256(PHOTO).hexdigest()


@pytest.fixture
def shop(redis_client: redis.Redis, tmp_path: Path) -> Workshop:
    return Workshop(redis_client, tmp_path / "blobs")


def room(shop: Workshop) -> Showroom:
    return Showroom(shop.redis, shop.images, shop.shelf, ImagePrep(TestLimits()))


def shown(shop: Workshop, sha256: str = SHA) -> dict[str, Any]:
    raw = cast("dict[bytes, bytes]", shop.redis.hgetall(keys.shown(sha256)))
    found = {name.decode(): value for name, value in raw.items() if not name.startswith(b"made")}
    return {name: value if name.startswith("png") else unpack(value) for name, value in found.items()}


def test_the_png_has_the_pixels_of_the_patches(shop: Workshop) -> None:
    shop.images.put(SHA, PHOTO, "local")
    room(shop).show(SHA)
    found = shown(shop)
    prepared = ImagePrep(TestLimits()).prepare(PHOTO, 140)
    with Image.open(io.BytesIO(found["png"])) as image:
        assert np.array_equal(np.asarray(image), to_grid(scene(200, 100), 1, prepared.grid))
    report = found["report"]
    assert report.pop("ms") > 0
    height, width = prepared.grid.pixels
    assert report == {
        "bytes": len(PHOTO), "decoder": "PNG", "mode": "RGB", "frame": 0, "frames": 1, "orientation": 1,
        "colour": "as it is", "size_in": [200, 100], "size_upright": [200, 100], "size_decoded": [200, 100],
        "size_out": [width, height], "grid": [prepared.grid.height, prepared.grid.width],
        "soft_tokens": prepared.grid.num_soft, "budget": 140, "budget_why": "as asked for or set up",
        "fidelity": "fast",
    }  # fmt: skip
    assert 0 < shop.redis.ttl(keys.shown(SHA)) <= 300


@pytest.mark.parametrize(
    ("mode", "colour"),
    [("RGBA", "alpha over white"), ("I;16", "16 bits to 8, L to RGB"), ("L", "L to RGB"), ("P", "P to RGB")],
)
def test_the_report_says_how_colours_became_rgb(shop: Workshop, mode: str, colour: str) -> None:
    data = encoded(Image.new(mode, (60, 40)), "PNG")
    sha256 = hashlib.sha256(data).hexdigest()
    shop.images.put(sha256, data, "local")
    room(shop).show(sha256)
    assert shown(shop, sha256)["report"]["colour"] == colour


def test_every_view_is_shown_by_itself(shop: Workshop) -> None:
    """A page of a document, on another background, by size and detail; a few views of a picture are kept."""
    data = encoded(
        Image.new("RGBA", (300, 200)), "PNG", save_all=True, append_images=[Image.new("RGBA", (300, 200), "red")]
    )
    sha256 = hashlib.sha256(data).hexdigest()
    shop.images.put(sha256, data, "local")
    for view, colour in (
        (View(background="102030"), (16, 32, 48)),
        (View(frame=1, budget="auto"), (255, 0, 0)),
        (PLAIN, (255, 255, 255)),
    ):
        room(shop).show(sha256, view)
        found = shown(shop, sha256)
        with Image.open(io.BytesIO(found[keys.shown_field("png", str(view))])) as image:
            assert image.getpixel((5, 5)) == colour
    assert found["report?frame=1&budget=auto"]["budget_why"] == "300x200 pixels fill no more"
    assert found["report?frame=1&budget=auto"]["frame"] == 1
    assert len(found) == 6
    room(shop).show(sha256, View(budget=560))
    assert shown(shop, sha256)["error?budget=560"]["code"] == "budget_unsupported"
    room(shop).forget(sha256)
    assert shop.redis.exists(keys.shown(sha256)) == 0, "in every view"


def views(shop: Workshop) -> set[str]:
    """Those of which a PNG is kept; each with its report, and nothing else."""
    names = {name.decode() for name in cast("list[bytes]", shop.redis.hkeys(keys.shown(SHA)))}
    found = {name.partition("?")[2] for name in names if name.startswith("png")}
    assert names == {keys.shown_field(kind, view) for kind in ("png", "report", "made") for view in found}
    return found


def test_of_many_views_the_last_are_kept(shop: Workshop) -> None:
    """All of them went at once, and with them what somebody had just been told to look at."""
    shop.images.put(SHA, PHOTO, "local")
    asked = [View(background=f"{n:06x}") for n in range(MAX_VIEWS + 3)]
    for n, view in enumerate(asked):
        room(shop).show(SHA, view)
        assert views(shop) == {str(one) for one in asked[: n + 1][-MAX_VIEWS:]}
    room(shop).show(SHA, asked[3])  # it is there, and becomes the last
    room(shop).show(SHA, PLAIN)
    assert views(shop) == {"", str(asked[3]), *map(str, asked[-6:])}


def test_views_that_are_made_at_once_push_out_no_more_than_they_must(shop: Workshop) -> None:
    shop.images.put(SHA, PHOTO, "local")
    with ThreadPoolExecutor(4) as workers:
        list(workers.map(lambda n: room(shop).show(SHA, View(background=f"{n:06x}")), range(3 * MAX_VIEWS)))
    assert len(views(shop)) == MAX_VIEWS


def test_a_rotated_picture(shop: Workshop) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    noise(120, 60).save(out, "JPEG", exif=exif)
    sha256 = hashlib.sha256(out.getvalue()).hexdigest()
    shop.images.put(sha256, out.getvalue(), "local")
    room(shop).show(sha256)
    report = shown(shop, sha256)["report"]
    assert (report["orientation"], report["size_in"], report["size_upright"]) == (6, [120, 60], [60, 120])


def test_what_cannot_be_shown_is_said(shop: Workshop) -> None:
    room(shop).show(SHA)
    assert shown(shop)["error"]["code"] == "image_expired"
    broken = PHOTO[: len(PHOTO) // 2]
    sha256 = hashlib.sha256(broken).hexdigest()
    shop.images.put(sha256, broken, "local")
    room(shop).show(sha256)
    assert shown(shop, sha256)["error"]["code"] == "image_undecodable"


def test_the_worker_shows_and_forgets(shop: Workshop) -> None:
    """Through the queue: the sweeper asks for what was deleted until it is gone."""
    token = SHOWROOM.set(room(shop))
    try:
        shop.preparer().prepare(shop.accept("j1", {"a": PHOTO}))
        assert shop.shelf.find(SHA, PLAIN) is not None
        shop.queues.enqueue_aside(keys.SHOW_JOB, SHA)
        shop.queues.enqueue_aside(keys.SHOW_JOB, SHA)
        assert shop.queues.waiting()["interactive"] == 1
        worker = PrepWorker(shop.redis, shop.queues, "w")
        assert worker.serve(burst=True) == 1
        assert "png" in shown(shop)
        shop.redis.zadd(keys.FORGET, {SHA: 1.0})
        sweeper = Sweeper(shop.records, shop.queues)
        assert sweeper.sweep().removing == 1
        assert sweeper.sweep().removing == 0, "it has been asked for"
        PrepWorker(shop.redis, shop.queues, "w2").serve(burst=True)
    finally:
        SHOWROOM.reset(token)
    assert shop.shelf.find(SHA, PLAIN) is None
    assert list(shop.blob_dir.glob("[!.]*")) == []
    assert shop.redis.exists(keys.shown(SHA), keys.FORGET) == 0


def test_the_queue_names_functions_that_exist() -> None:
    assert f"{show.__module__}.{show.__name__}" == keys.SHOW_JOB
    assert keys.FORGET_JOB == "photocall_prep.show.forget"
