"""A job's pictures from the lease to the engine's stream, and every way a job ends or goes back, on a real Redis."""

import errno
import hashlib
import tempfile
import threading
import time
from pathlib import Path

import pytest
import redis
from PIL import Image

from photocall import keys
from photocall.asks import Ask
from photocall.blob_store import BlobsFull
from photocall.connections import connect
from photocall.jobs import JobStatus
from photocall.messages import Prepared, Status
from photocall.records import Policy
from photocall.redis_server import RedisServer, find_binary
from photocall.views import PLAIN, Budget, View, described_name
from photocall.wire import unpack
from photocall_prep.jobs import PREPARER, prepare
from photocall_prep.lease_keeper import LeaseKeeper
from photocall_prep.prepare import ImagePrep, PreparedImage
from photocall_prep.shelf import PatchShelf
from tests.prep.pictures import TestLimits, encoded, noise, scene
from tests.prep.workshop import CountingPrep, Workshop
from tests.redis_child import start

PHOTO, OTHER = encoded(scene(64, 48), "PNG"), encoded(noise(200, 100), "JPEG")


@pytest.fixture
def shop(redis_client: redis.Redis, tmp_path: Path) -> Workshop:
    return Workshop(redis_client, tmp_path / "blobs")


def test_a_prepared_job_is_the_engines(shop: Workshop) -> None:
    job_id = shop.accept("j1", {"a": PHOTO, "b": OTHER, "again": PHOTO})
    shop.preparer().prepare(job_id)
    record = shop.records.get(job_id)
    assert (record.stage, record.status, record.lease_until) == ("running", JobStatus.PREPARING, 0)
    [message] = shop.engine_messages()
    assert isinstance(message, Prepared)
    assert message.images == record.prepared
    assert [image["sha256"] for image in message.images] == [hashlib.sha256(d).hexdigest() for d in (PHOTO, OTHER)]
    for image, data in zip(message.images, (PHOTO, OTHER), strict=True):
        expected = ImagePrep(TestLimits()).prepare(data, 140)
        assert (image["grid_height"], image["grid_width"]) == (expected.grid.height, expected.grid.width)
        assert image["num_soft"] == expected.grid.num_soft
        assert (image["budget"], image["fidelity"]) == (140, "fast")
        assert (shop.blob_dir / image["blob_key"]).read_bytes() == expected.patches


def test_the_queues_function_reaches_the_preparer(shop: Workshop) -> None:
    token = PREPARER.set(shop.preparer())
    try:
        prepare(shop.accept("j1", {"a": PHOTO}), 1)
    finally:
        PREPARER.reset(token)
    assert shop.records.get("j1").stage == "running"


def test_a_picture_is_prepared_once(shop: Workshop) -> None:
    prep = CountingPrep()
    for job_id in ("j1", "j2"):
        shop.preparer(prep).prepare(shop.accept(job_id, {"a": PHOTO}))
    assert prep.calls == 1
    first, second = shop.engine_messages()
    assert first.images == second.images
    [blob] = [path for path in shop.blob_dir.glob("[!.]*") if not path.name.endswith("-grid")]
    blob.unlink()
    shop.preparer(prep).prepare(shop.accept("j3", {"a": PHOTO}))
    assert prep.calls == 2, "a blob that vanished is made again"
    assert blob.exists()


def test_a_request_may_have_a_budget_of_its_own(shop: Workshop) -> None:
    prep = CountingPrep()
    for job_id, budget in (("j1", 70), ("j2", None), ("j3", 280), ("j4", 70)):
        shop.preparer(prep).prepare(shop.accept(job_id, {"a": PHOTO}, budget=budget))
    told = [message.images[0] for message in shop.engine_messages()]
    assert [image["budget"] for image in told] == [70, 140, 280, 70]
    soft = [image["num_soft"] for image in told]
    assert soft[0] <= 70 < soft[1] <= 140 < soft[2] <= 280
    assert soft[3] == soft[0]
    assert prep.calls == 3, "the same bytes at another budget are another picture, at the same budget the same"
    shop.shelf.remove(hashlib.sha256(PHOTO).hexdigest())
    assert list(shop.blob_dir.glob("[!.]*")) == [], "it is forgotten at every budget"


def test_one_file_in_several_views_is_several_pictures(shop: Workshop) -> None:
    """Pages, a background and a budget of their own; what is the same in all of these is prepared once."""
    pages = [Image.new("RGB", (90, 60), (n, 0, 0)) for n in range(3)]
    data = encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    sha256, prep = hashlib.sha256(data).hexdigest(), CountingPrep()
    views = {
        "b": View(frame=1),
        "c": View(frame=1),
        "d": View(budget=280),
        "e": View(budget="auto"),
        "f": View(frame=2),
    }
    job_id = shop.accept("j1", dict.fromkeys("abcdef", data), views=views)
    shop.preparer(prep).prepare(job_id)
    [message] = shop.engine_messages()
    assert isinstance(message, Prepared)
    assert prep.calls == 5
    told = [image.get("view", "") for image in message.images]
    assert told == ["", "frame=1", "budget=280", "budget=auto", "frame=2"]
    assert {image["sha256"] for image in message.images} == {sha256}
    blobs = [(shop.blob_dir / image["blob_key"]).read_bytes() for image in message.images]
    assert [blob[0] for blob in blobs] == [0, 1, 0, 0, 2]
    assert len({image["blob_key"] for image in message.images}) == 5
    assert {described_name(image) for image in message.images} == set(shop_ask(shop, job_id).pictures.values())
    shop.preparer(prep).prepare(shop.accept("j2", {"x": data}, views={"x": View(frame=2)}))
    assert prep.calls == 5, "it is on the shelf"
    shop.shelf.remove(sha256)
    assert list(shop.blob_dir.glob("[!.]*")) == [], "it is forgotten in every view"


def shop_ask(shop: Workshop, job_id: str) -> Ask:
    return Ask.from_content(unpack(shop.records.get(job_id).ask))


def test_a_view_that_a_picture_does_not_have_fails_its_job(shop: Workshop) -> None:
    for job_id, view, said in (
        ("j1", View(frame=7), "cannot decode image a: frame 7 (from 0) or page 8 was asked for; the file has 1"),
        ("j2", View(dpi=150), "cannot decode image a: dpi is for pages of a PDF, and this is a PNG"),
        ("j3", View(budget=560), "a budget of 560 soft tokens is none of this model's: 70, 140, 280"),
    ):
        shop.preparer().prepare(shop.accept(job_id, {"a": PHOTO}, views={"a": view}))
        error = shop.records.get(job_id).error
        assert error is not None
        assert error["message"].startswith(said)
        assert error["code"] == ("budget_unsupported" if job_id == "j3" else "image_view_unsupported")
        assert error["loc"] == ["assets", "a", "budget"] if job_id == "j3" else ["assets", "a"]


def test_a_budget_beyond_the_model_is_refused_with_the_numbers(shop: Workshop) -> None:
    shop.preparer().prepare(shop.accept("j1", {"a": PHOTO}, budget=560))
    error = shop.records.get("j1").error
    assert error is not None
    assert (error["code"], error["budget"], error["allowed"]) == ("budget_unsupported", 560, [70, 140, 280])
    assert error["message"] == "a budget of 560 soft tokens is none of this model's: 70, 140, 280"


def test_an_unreadable_picture_fails_its_own_job(shop: Workshop) -> None:
    broken = PHOTO[: len(PHOTO) // 2]
    preparer = shop.preparer()
    preparer.prepare(shop.accept("bad", {"fine": PHOTO, "the photo": broken}))
    preparer.prepare(shop.accept("good", {"fine": PHOTO}))
    record = shop.records.get("bad")
    assert record.status == JobStatus.FAILED
    assert record.error is not None
    assert record.error["code"] == "image_undecodable"
    assert record.error["message"].startswith("cannot decode image the photo: damaged PNG: ")
    assert record.error["asset"] == "the photo"
    assert record.error["loc"] == ["assets", "the photo"]
    assert record.error["sha256"] == hashlib.sha256(broken).hexdigest()
    assert [message.job_id for message in shop.engine_messages()] == ["good"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x89PNG\r\n\x1a\n", "image_undecodable"),
        (b"<html>not a picture</html>", "image_unsupported"),
        (encoded(noise(3000, 2000), "BMP"), "image_too_large"),
    ],
)
def test_refusals_keep_their_code(shop: Workshop, data: bytes, code: str) -> None:
    shop.preparer().prepare(shop.accept("j1", {"a": data}))
    error = shop.records.get("j1").error
    assert error is not None
    assert error["code"] == code
    assert error["message"].startswith("cannot decode image a: ")


def test_lost_bytes(shop: Workshop) -> None:
    job_id = shop.accept("j1", {"a": PHOTO})
    shop.redis.hdel(f"photocall:image:{hashlib.sha256(PHOTO).hexdigest()}", "data")
    shop.preparer().prepare(job_id)
    error = shop.records.get("j1").error
    assert error is not None
    assert (error["code"], error["message"]) == ("image_lost", "the bytes of image a are gone")


def test_running_again_changes_nothing(shop: Workshop) -> None:
    preparer = shop.preparer()
    preparer.prepare(shop.accept("j1", {"a": PHOTO}))
    before = shop.records.get("j1")
    preparer.prepare("j1")
    preparer.prepare("never accepted")
    assert shop.records.get("j1") == before
    assert len(shop.engine_messages()) == 1


class During(CountingPrep):
    """Does something while the first picture is being prepared."""

    def __init__(self, action: object) -> None:
        super().__init__()
        self.action = action

    def prepare(self, data: bytes, budget: Budget, view: View = PLAIN) -> PreparedImage:
        if self.calls == 0:
            assert callable(self.action)
            self.action()
        return super().prepare(data, budget, view)


def test_a_cancel_during_preparation_ends_the_job(shop: Workshop) -> None:
    job_id = shop.accept("j1", {"a": PHOTO})
    shop.preparer(During(lambda: shop.records.cancel(job_id))).prepare(job_id)
    assert shop.records.get(job_id).status == JobStatus.CANCELLED
    assert shop.engine_messages() == []


def test_a_delete_during_preparation_leaves_nothing(shop: Workshop) -> None:
    job_id = shop.accept("j1", {"a": PHOTO})
    shop.preparer(During(lambda: shop.records.delete(job_id))).prepare(job_id)
    assert shop.engine_messages() == []
    assert shop.redis.exists(f"photocall:job:{job_id}") == 0


def test_stopping_hands_the_job_back_after_the_current_picture(shop: Workshop) -> None:
    job_id = shop.accept("j1", {"a": PHOTO, "b": OTHER})
    shop.records.clear_outbox(job_id)
    told = threading.Event()
    prep = During(told.set)
    shop.preparer(prep, stopping=told.is_set).prepare(job_id)
    assert prep.calls == 1
    record = shop.records.get(job_id)
    assert (record.status, record.failures) == (JobStatus.QUEUED, 0)
    assert shop.sweep_outbox() == ["prep-j1-1"]
    after = CountingPrep()
    shop.preparer(after).prepare(job_id)
    assert after.calls == 1, "the picture that was finished is not prepared again"
    assert shop.records.get(job_id).stage == "running"


def test_a_defect_fails_the_job_and_not_the_process(shop: Workshop) -> None:
    def defect() -> None:
        raise RuntimeError("a defect with a secret in it")

    shop.preparer(During(defect)).prepare(shop.accept("j1", {"a": PHOTO}))
    error = shop.records.get("j1").error
    assert error == {"code": "internal", "message": "preparing the pictures failed: RuntimeError"}


def test_a_full_store_is_waited_for(shop: Workshop) -> None:
    """An error is a write like any other; the hand-over to the engine makes its own room."""
    job_id = shop.accept("j1", {"a": PHOTO[:100]})

    def fill() -> None:
        shop.redis.config_set("maxmemory", 1)
        threading.Timer(0.7, lambda: shop.redis.config_set("maxmemory", 0)).start()

    started = time.monotonic()
    shop.preparer(During(fill)).prepare(job_id)
    assert time.monotonic() - started >= 0.7
    assert shop.records.get(job_id).status == JobStatus.FAILED


def test_a_full_blob_directory_is_waited_for(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others fill the disk for a while: the job was failed as `internal`, though it had been accepted."""
    job_id = shop.accept("j1", {"a": PHOTO})
    put, full = PatchShelf.put, iter([True, True])

    def put_when_there_is_room(self: PatchShelf, sha256: str, view: View, prepared: PreparedImage) -> None:
        if next(full, False):
            raise BlobsFull(errno.ENOSPC, "no room")
        put(self, sha256, view, prepared)

    monkeypatch.setattr("photocall_prep.jobs.FULL_STORE_WAIT_S", 0.01)
    monkeypatch.setattr(PatchShelf, "put", put_when_there_is_room)
    shop.preparer().prepare(job_id)
    assert shop.records.get(job_id).stage == "running"
    assert next(full, None) is None


def test_a_blob_directory_that_stays_full_gives_the_job_back(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """To whoever has room, when this process is to stop: it is not this job's failure."""

    def never(self: PatchShelf, sha256: str, view: View, prepared: PreparedImage) -> None:
        raise BlobsFull(errno.ENOSPC, "no room")

    monkeypatch.setattr(PatchShelf, "put", never)
    asked = iter([False, True])  # before the picture, and after it found no room
    shop.preparer(stopping=lambda: next(asked)).prepare(shop.accept("j1", {"a": PHOTO}))
    record = shop.records.get("j1")
    assert (record.status, record.stage, record.failures) == (JobStatus.QUEUED, "preparing", 0)


def test_a_store_that_is_full_already_costs_no_attempt(shop: Workshop) -> None:
    """`busy` was a write of its own: refused, it left the lease to run out, and three times is poison."""
    job_id = shop.accept("j1", {"a": PHOTO})
    shop.redis.config_set("maxmemory", 1)
    try:
        shop.preparer().prepare(job_id)
    finally:
        shop.redis.config_set("maxmemory", 0)
    record = shop.records.get(job_id)
    assert (record.stage, record.lease_until) == ("running", 0)
    [busy, prepared] = shop.events(job_id)
    assert busy == Status(job_id, "busy", "preparing")
    assert isinstance(prepared, Prepared)


def test_an_outage_of_redis_is_waited_for_with_the_picture_in_hand(tmp_path: Path) -> None:
    """The job was let go instead, to wait for its lease to end, for that to be found out, and for another worker."""
    with tempfile.TemporaryDirectory(prefix="pc-o-") as directory:
        server = RedisServer(find_binary(), Path(directory), Path(directory))
        children = [start(server)]
        restart = threading.Timer(0.7, lambda: children.append(start(server)))
        try:
            client = connect(server.url)
            shop = Workshop(client, tmp_path / "blobs")
            job_id = shop.accept("j1", {"a": PHOTO, "b": OTHER})

            def outage() -> None:
                children[0].kill()
                children[0].wait(10)
                restart.start()

            prep = During(outage)
            shop.preparer(prep).prepare(job_id)
            record = shop.records.get(job_id)
            assert (record.stage, record.attempts, record.failures) == ("running", 1, 0)
            assert prep.calls == 2, "what had been prepared was found again"
            client.close()
        finally:
            if restart.is_alive():
                restart.join()
            for child in children:
                child.kill()
                child.wait(10)


def test_a_record_that_cannot_be_read_fails_its_own_job(shop: Workshop) -> None:
    job_id = shop.accept("j1", {"a": PHOTO})
    shop.redis.hset(keys.job(job_id), "metadata", b"\xc1 not msgpack")
    shop.preparer().prepare(job_id)
    shop.redis.hdel(keys.job(job_id), "metadata")
    record = shop.records.get(job_id)
    assert record.status == JobStatus.FAILED
    assert record.error is not None
    assert record.error["code"] == "internal"


def test_the_lease_is_kept_while_a_picture_takes_long(redis_client: redis.Redis, tmp_path: Path) -> None:
    shop = Workshop(redis_client, tmp_path, Policy(lease_s=1.0))
    shop.accept("j1", {"a": PHOTO})
    lease = shop.records.lease("j1", "preparing")
    assert lease is not None
    with LeaseKeeper(shop.records, lease, every_s=0.1) as keeper:
        time.sleep(1.5)  # longer than the lease
        assert shop.records.get("j1").lease_until > time.time()
        assert not keeper.lost
        shop.records.cancel("j1")
        until = time.monotonic() + 30
        while not keeper.lost:
            assert time.monotonic() < until, "it did not hear of the end"
            time.sleep(0.02)


def test_a_job_whose_time_is_over_is_not_prepared(shop: Workshop) -> None:
    """It waited in the queue past its deadline: no picture is decoded for it, and it ends as expired."""
    prep = CountingPrep()
    job_id = shop.accept("late", {"a": PHOTO}, deadline_s=-0.01)
    shop.preparer(prep).prepare(job_id)
    assert prep.calls == 0
    assert shop.engine_messages() == []
    assert shop.records.get(job_id).started_at == 0
