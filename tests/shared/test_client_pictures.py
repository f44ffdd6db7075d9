"""Pictures in every form that a program may have them in; what Pillow reads of their bytes is compared."""

from __future__ import annotations

import base64
import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from photocall.client import Picture
from photocall.client.pictures import by_name, load, path_of
from photocall.client.request import body_of

RNG = np.random.default_rng(7)
SHA = "ab" * 32
QUESTION = {"q": {"type": "noul", "instructions": "Is it?"}}


def opened(image: Any) -> Pillow.Image:
    data = load(image).data
    assert data is not None
    return Pillow.open(io.BytesIO(data))


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 2), (5, 7, 3), (5, 7, 4)])
def test_arrays_of_bytes(shape: tuple[int, ...]) -> None:
    pixels = RNG.integers(0, 256, shape, np.uint8)
    assert np.array_equal(np.asarray(opened(pixels)), pixels.squeeze())
    turned = pixels[::-1, ::2]
    assert np.array_equal(np.asarray(opened(turned)), turned.squeeze()), "not contiguous"


def test_other_arrays() -> None:
    deep = RNG.integers(0, 65536, (4, 6), np.uint16)
    assert np.array_equal(np.asarray(opened(deep)), deep)
    mask = RNG.integers(0, 2, (4, 6)).astype(bool)
    assert np.array_equal(np.asarray(opened(mask)), mask * np.uint8(255))
    with pytest.raises(TypeError, match=r"float32.*astype"):
        load(np.zeros((4, 6), np.float32))
    for shape in ((4,), (4, 6, 5), (0, 6), (2, 4, 6, 3)):
        with pytest.raises(ValueError, match="shape"):
            load(np.zeros(shape, np.uint8))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "I;16"])
def test_images_of_pillow(mode: str) -> None:
    image = Pillow.fromarray(RNG.integers(0, 256, (8, 8, 3), np.uint8)).convert(mode if mode != "I;16" else "L")
    image = image.convert("I;16") if mode == "I;16" else image
    found = opened(image)
    assert found.convert("RGB").tobytes() == image.convert("RGB").tobytes()
    assert load(image).name == load(image.copy()).name, "the same picture is the same bytes"


def test_orientation_and_profile_of_an_image_of_pillow_go_with_it(tmp_path: Path) -> None:
    exif = Pillow.Exif()
    exif[0x0112] = 6
    Pillow.new("RGB", (4, 2)).save(tmp_path / "a.jpg", exif=exif, icc_profile=b"profile")
    found = opened(Pillow.open(tmp_path / "a.jpg"))
    assert (found.getexif()[0x0112], found.info["icc_profile"]) == (6, b"profile")


def test_files_and_bytes_go_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(b"whatever")
    data_url = "data:image/png;base64," + base64.b64encode(b"whatever").decode()
    with file.open("rb") as stream:
        for image in (file, str(file), b"whatever", bytearray(b"whatever"), memoryview(b"whatever"), stream, data_url):
            assert (load(image).data, load(b"whatever").name) == (b"whatever", hashlib.sha256(b"whatever").hexdigest())
    assert path_of(str(file)) == path_of(Picture(file)) == file
    assert path_of(b"x") is path_of(SHA) is path_of("https://photos.example/a") is None


def test_names_of_pictures_elsewhere() -> None:
    assert load(SHA).entry() == {"sha256": SHA}
    assert load("https://photos.example/a").entry_with_bytes() == {"url": "https://photos.example/a"}
    assert load(Picture(SHA, page=2, budget="auto")).entry() == {"sha256": SHA, "page": 2, "budget": "auto"}


def test_what_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.jpg")
    with pytest.raises(TypeError, match=r"builtins\.int is no picture"):
        load(3)
    with pytest.raises(ValueError, match="no bytes"):
        load(b"")
    with pytest.raises(ValueError, match="base64"):
        load("data:image/png;base64,?")


def test_bodies() -> None:
    one, _ = body_of(SHA, QUESTION, None, {"budget": 70, "order": None})
    assert one == {"state": "[image 1]", "questions": QUESTION, "images": [{"sha256": SHA}], "budget": 70}
    two, pictures = body_of([SHA, b"x"], QUESTION, None, {})
    assert two["state"] == "[image 1]\n[image 2]"
    assert [entry["sha256"] for entry in two["images"]] == [SHA, pictures[1].name]
    held, _ = body_of(b"x", QUESTION, {"order": 7}, {}, with_bytes=True)
    assert (held["state"], held["images"]) == ({"order": 7}, [{"data_base64": "eA=="}])
    named, _ = body_of({"front": SHA, "back": SHA}, {"q": "Is back the back of front?"}, None, {})
    assert named["assets"]["front"] == {"type": "image", "sha256": SHA}
    assert named["state"] == "As below.", "both stand in the question"
    words, _ = body_of(None, QUESTION, "Three boxes.", {})
    assert words == {"state": "Three boxes.", "questions": QUESTION}
    with pytest.raises(ValueError, match="nothing to ask about"):
        body_of(None, QUESTION, None, {})
    assert by_name((SHA, b"x")) == {"[image 1]": SHA, "[image 2]": b"x"}
