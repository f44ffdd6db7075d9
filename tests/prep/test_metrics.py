"""What a prep worker counts, by what becomes of its jobs and pictures."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
import redis

from photocall import keys
from photocall.grid import PATCH_BYTES
from photocall.logs import LineFormatter
from photocall_prep.entries import Entries
from photocall_prep.guarded_prep import GuardedPrep
from photocall_prep.metrics import PrepMetrics
from photocall_prep.refusal import ImageRefused
from tests.prep.pictures import encoded, scene
from tests.prep.planted_decoder import CRASHING, STUCK
from tests.prep.workshop import Workshop, checkpoint

PHOTO = encoded(scene(64, 48), "PNG")


def value(metrics: PrepMetrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(f"photocall_prep_{name}", labels) or 0.0


def test_jobs_and_pictures_are_counted(redis_client: redis.Redis, tmp_path: Path) -> None:
    shop, metrics = Workshop(redis_client, tmp_path / "blobs"), PrepMetrics()
    preparer = shop.preparer(metrics=metrics)
    for job_id in ("j1", "j2"):
        preparer.prepare(shop.accept(job_id, {"a": PHOTO}))
    preparer.prepare(shop.accept("j3", {"a": b"no picture"}))
    preparer.prepare("j1")  # a replay
    assert value(metrics, "jobs_total", outcome="prepared") == 2
    assert value(metrics, "jobs_total", outcome="refused") == 1
    assert value(metrics, "jobs_total", outcome="nothing") == 1
    [code] = [s.labels["code"] for s in next(iter(metrics.refusals.collect())).samples if s.name.endswith("_total")]
    assert code == shop.records.get("j3").error["code"]  # type: ignore[index]
    assert value(metrics, "pictures_total", source="made") == 2  # the one that is none was tried
    assert value(metrics, "pictures_total", source="shelf") == 1
    assert value(metrics, "picture_seconds_count") == 2
    assert value(metrics, "picture_bytes_total") == len(PHOTO) + len(b"no picture")
    [described] = shop.engine_messages()[0].images
    assert value(metrics, "blob_bytes_total") == described["grid_height"] * described["grid_width"] * PATCH_BYTES
    assert value(metrics, "queue_seconds_count") == value(metrics, "job_seconds_count") == 3


def test_a_job_that_is_cancelled_meanwhile_is_lost(redis_client: redis.Redis, tmp_path: Path) -> None:
    shop, metrics = Workshop(redis_client, tmp_path / "blobs"), PrepMetrics()

    class Cancelling:
        def prepare(self, *asked: Any) -> Any:
            shop.records.delete("j1")
            raise ImageRefused("image_undecodable", "gone")

    shop.preparer(Cancelling(), metrics=metrics).prepare(shop.accept("j1", {"a": PHOTO}))
    assert value(metrics, "jobs_total", outcome="lost") == 1
    assert value(metrics, "jobs_total", outcome="refused") == 0


def test_decoders_that_are_lost_are_counted(tmp_path: Path) -> None:
    environ = dict(os.environ) | {"PHOTOCALL_MODEL": str(checkpoint(tmp_path / "model"))}
    metrics = PrepMetrics()
    prep = GuardedPrep(environ, 2.0, "tests.prep.planted_decoder", metrics)
    for data in (STUCK, CRASHING):
        with pytest.raises(ImageRefused):
            prep.prepare(data, 140)
    prep.close()
    assert value(metrics, "decoders_lost_total", why="too_slow") == 1
    assert value(metrics, "decoders_lost_total", why="died") == 2


def test_an_entry_that_cannot_be_run_names_its_job(
    redis_client: redis.Redis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines about an entry had its id alone, in which nobody looks for a job."""
    shop = Workshop(redis_client, tmp_path / "blobs")
    entry_id = shop.queues.enqueue("job_1", 1, "interactive")
    redis_client.delete(f"rq:job:{entry_id}")
    with caplog.at_level(logging.WARNING):
        assert Entries(redis_client, [shop.queues.queue(lane) for lane in keys.LANES]).take() is None
    [record] = caplog.records
    assert f"entry={entry_id} job=job_1" in LineFormatter("prep").format(record)
