"""`photocall bench`: pictures that are new files, and percentiles that say no more than was seen."""

from __future__ import annotations

import io
from argparse import Namespace

import pytest
from PIL import Image

from photocall.cli.bench import Tally, figures, percentile
from photocall.cli.made_picture import HEIGHT, WIDTH, drawn, renamed


def encoded(kind: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (40, 30), (200, 30, 30)).save(out, kind)
    return out.getvalue()


@pytest.mark.parametrize("picture", [drawn(), encoded("PNG"), encoded("JPEG")], ids=["drawn", "png", "jpeg"])
def test_another_file_shows_the_same(picture: bytes) -> None:
    one, other = renamed(picture, 1), renamed(picture, 2)
    assert one is not None
    assert other is not None
    assert len({picture, one, other}) == 3
    with Image.open(io.BytesIO(picture)) as before, Image.open(io.BytesIO(one)) as after:
        assert before.tobytes() == after.tobytes()
        assert before.size == after.size


def test_what_is_drawn_is_a_picture() -> None:
    with Image.open(io.BytesIO(drawn())) as shown:
        assert shown.size == (WIDTH, HEIGHT)
        colours = shown.getcolors(WIDTH * HEIGHT)
    assert colours is not None
    assert len(colours) > 100


def test_a_format_without_comments_is_not_made_new() -> None:
    assert renamed(encoded("WEBP"), 1) is None


def test_percentiles_are_nearest_ranks_of_enough_calls() -> None:
    done = [n / 1000 for n in range(1, 101)]
    assert [percentile(done, p) for p in (50, 90, 99)] == [50.0, 90.0, 99.0]
    assert [percentile(done[:99], p) for p in (50, 90, 99)] == [50.0, 90.0, None]
    assert [percentile(done[:9], p) for p in (50, 90, 99)] == [5.0, None, None]
    assert percentile([], 50) is None


def test_figures() -> None:
    tally = Tally(0.0, [0.2, 0.1])
    tally.refused["queue_full"] += 3
    found = figures(tally, 4.0, 1.0, Namespace(callers=2, same=False))
    assert found["pictures_per_s"] == 0.5
    assert (found["p50_ms"], found["p90_ms"], found["bench_cores"]) == (100.0, None, 0.25)
    assert (found["answered"], found["refused"]) == (2, {"queue_full": 3})
