"""`photocall inspect`: reports, pictures, statuses and one-line errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from photocall_prep import inspect
from tests.prep.files import pdf
from tests.prep.pictures import encoded, noise, scene
from tests.prep.workshop import checkpoint

GOLDEN = """\
{file}: JPEG of {bytes:,} bytes
  stored   2100x1400 (RGB), orientation 6, 1400x2100 once upright
  decoded  2100x1400 (fast), colours as it is
  seen     288x480, 30x18 patches, 414,720 bytes
  tokens   60 of 70 (as asked for or set up)
  took     {ms} ms
"""


def main(arguments: list[str]) -> int:
    """As `python -m photocall_prep inspect` in this environment."""
    return inspect.main(arguments, os.environ)


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = checkpoint(tmp_path / "model")
    monkeypatch.setenv("PHOTOCALL_MODEL", str(folder))
    return folder


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    exif = Image.Exif()
    exif[0x0112] = 6
    file = tmp_path / "photo.jpg"
    file.write_bytes(encoded(scene(2100, 1400), "JPEG", exif=exif))
    return file


def test_a_report_for_a_person(photo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(photo), "--budget", "70"]) == 0
    printed = capsys.readouterr()
    ms = printed.out.rsplit("took", 1)[1].split()[0]
    assert printed.out == GOLDEN.format(file=photo, bytes=photo.stat().st_size, ms=ms)
    assert float(ms) > 0
    assert printed.err == ""


def test_a_report_for_a_program_and_the_picture(
    photo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "seen.png"
    assert main([str(photo), "--json", "--seen", str(out), "--budget", "auto", "--fidelity", "exact"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["file"], found["decoder"], found["orientation"]) == (str(photo), "JPEG", 6)
    assert (found["budget"], found["size_decoded"], found["fidelity"]) == (70, [2100, 1400], "exact")
    assert found["budget_why"].startswith("280 is what 2100x1400 pixels can fill; 70 loses ")
    with Image.open(out) as seen:
        assert list(seen.size) == found["size_out"]
        assert seen.getpixel((2, 2)) == (30, 40, 200), "the bottom left of the scene, turned"


def test_several_files_and_pages(tmp_path: Path, photo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paper = tmp_path / "paper.pdf"
    paper.write_bytes(pdf("1 0 0 rg 0 0 96 48 re f", "0 0 1 rg 0 0 96 48 re f"))
    folder = tmp_path / "seen"
    assert main([str(paper), str(photo), "--seen", str(folder)]) == 0
    assert sorted(file.name for file in folder.iterdir()) == ["paper.pdf.png", "photo.jpg.png"]
    capsys.readouterr()
    assert main([str(paper), "--page", "2", "--dpi", "75", "--seen", str(tmp_path / "two.png")]) == 0
    assert "number 1 (from 0) of 2\n  stored   100x50 (75 dpi)" in capsys.readouterr().out
    with Image.open(tmp_path / "two.png") as seen:
        assert np.asarray(seen).reshape(-1, 3).max(axis=0).tolist() == [0, 0, 255]


def test_what_cannot_be_prepared_is_one_line_and_status_1(
    tmp_path: Path, photo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, broken = tmp_path / "notes.txt", tmp_path / "broken.png"
    text.write_text("just text")
    broken.write_bytes(encoded(noise(64, 64), "PNG")[:900])
    assert main([str(text), str(broken), str(tmp_path / "none.jpg"), str(tmp_path), str(photo)]) == 1
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert lines[0].startswith(f"photocall inspect: {text}: it is text, not one of JPEG, PNG, ")
    assert lines[1].startswith(f"photocall inspect: {broken}: damaged PNG: ")
    assert lines[2:] == [
        f"photocall inspect: {tmp_path / 'none.jpg'}: No such file or directory",
        f"photocall inspect: {tmp_path}: Is a directory",
    ]
    assert printed.out.startswith(f"{photo}: JPEG"), "the others are shown all the same"
    assert main([str(text), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "image_unsupported"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--budget", "560"], "a budget of 560: .* has auto, 70, 140, 280"),
        (["--budget", "many"], "'many' is no whole number"),
        (["--page", "0"], "0 is less than 1"),
        (["--page", "1", "--frame", "0"], "not allowed with"),
        (["--background", "pink"], "no colour as rrggbb"),
    ],
)
def test_arguments_that_cannot_be_used_are_status_2(
    photo: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        raise SystemExit(main([str(photo), *arguments]))
    assert left.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.search(said, printed.err)


def test_settings_that_cannot_be_used_are_status_2(
    photo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PHOTOCALL_FIDELITY", "best")
    assert main([str(photo)]) == 2
    assert capsys.readouterr().err == "photocall inspect: PHOTOCALL_FIDELITY='best': expected one of fast, exact\n"
    monkeypatch.delenv("PHOTOCALL_FIDELITY")
    monkeypatch.setenv("PHOTOCALL_MODEL", "/nowhere")
    assert main([str(photo)]) == 2
    assert capsys.readouterr().err.startswith("photocall inspect: /nowhere: ")


def test_the_command_reaches_it(photo: Path) -> None:
    command = [sys.executable, "-m", "photocall.cli", "inspect", str(photo), "--json"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60, text=True)
    assert json.loads(done.stdout)["decoder"] == "JPEG"
    assert subprocess.run([*command[:4], "none.jpg"], capture_output=True, check=False, timeout=60).returncode == 1
