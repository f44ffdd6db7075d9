"""Pictures encoded anew: the same pixels, upright, in other files."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from photocall_prep.colour import WHITE
from photocall_prep.variants import main, variants
from tests.prep.pictures import TestLimits, encoded, scene


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def test_each_kind() -> None:
    picture = scene(64, 48)
    made = variants(encoded(picture, "PNG"), TestLimits(), WHITE)
    assert [(opened(data).format, opened(data).size) for data in made.values()] == [
        ("PNG", (64, 48)),
        ("JPEG", (64, 48)),
        ("JPEG", (64, 48)),
        ("PNG", (60, 44)),
    ]
    assert np.array_equal(np.asarray(opened(made["as PNG"])), np.asarray(picture.convert("RGB")))
    errors = [
        float(np.abs(np.asarray(opened(made[kind])).astype(int) - np.asarray(picture.convert("RGB"))).mean())
        for kind in ("as JPEG q90", "as JPEG q75")
    ]
    assert 0 < errors[0] < errors[1], "less quality is further away"


def test_a_turned_photograph_is_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    made = variants(encoded(scene(64, 48), "JPEG", exif=exif), TestLimits(), WHITE)
    assert {opened(data).size for kind, data in made.items() if kind.startswith("as")} == {(48, 64)}
    assert all(opened(data).getexif().get(0x0112, 1) == 1 for data in made.values())


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, broken = tmp_path / "a picture.png", tmp_path / "broken.png"
    file.write_bytes(encoded(scene(64, 48), "PNG"))
    broken.write_bytes(b"\x89PNG\r\n\x1a\nno more")
    (tmp_path / "out").mkdir()
    assert main(["--into", str(tmp_path / "out"), "--", str(file)], {}) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(file)
    assert {opened(Path(path).read_bytes()).format for path in told["variants"].values()} == {"PNG", "JPEG"}
    assert main(["--into", str(tmp_path / "out"), "--", str(broken)], {}) == 1
    assert str(broken) in capsys.readouterr().err
    assert main(["--into", str(tmp_path), "--", str(file)], {"PHOTOCALL_MAX_PIXELS": "x"}) == 2
