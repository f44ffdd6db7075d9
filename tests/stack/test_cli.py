"""The command line against a whole service on models/mini: right answers, a batch that is killed, figures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ops.demo import SAMPLES, read_samples

pytestmark = pytest.mark.timeout(240)

SHELF = SAMPLES / "shelf.jpg"


def start(address: str, *arguments: str | Path, stdin: Any = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "photocall.cli", *map(str, arguments)]
    environ = os.environ | {"PHOTOCALL_URL": address}
    return subprocess.Popen(command, env=environ, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def photocall(address: str, *arguments: str | Path, stdin: Any = None) -> tuple[int, str, str]:
    """Status, output and errors of the command in a process of its own."""
    with start(address, *arguments, stdin=stdin) as process:
        out, err = process.communicate(timeout=120)
    return process.returncode, out.decode(), err.decode()


def test_pictures_are_asked_and_answered_right(address: str, tmp_path: Path) -> None:
    [sample] = [sample for sample in read_samples() if sample["file"] == "street.png"]
    questions = tmp_path / "questions.json"
    questions.write_text(json.dumps(sample["questions"]))
    with (SAMPLES / "street.png").open("rb") as picture:
        status, out, err = photocall(address, "ask", "-", "--questions", questions, "--json", stdin=picture)
    assert (status, err) == (0, "")
    answers = json.loads(out)["answers"]
    assert answers["sign"]["text"] == sample["expected"]["sign"]
    assert answers["vehicle"]["choice"] == sample["expected"]["vehicle"]
    status, out, err = photocall(
        address, "ask", SAMPLES / "street.png", "README.md", "-q", "Which colour is the car? -> blue, red, green"
    )
    assert status == 1, "one of the two is no picture"
    assert out.splitlines()[1].split()[-2:-1] == [sample["expected"]["vehicle"]]
    assert err.count("\n") == 1
    assert "no picture of a supported format" in err


def batches(address: str) -> list[dict[str, Any]]:
    status, out, _ = photocall(address, "batch", "ls", "--json")
    assert status == 0
    return [json.loads(line) for line in out.splitlines()]


def test_a_batch_that_is_killed_goes_on(address: str, tmp_path: Path) -> None:
    rows, out_file = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    pictures = sorted(str(path) for path in SAMPLES.glob("*.jpg"))
    named = [{"image": picture, "id": f"{n}-{Path(picture).name}"} for n in range(2) for picture in pictures]
    rows.write_text("".join(json.dumps(row) + "\n" for row in named))
    asked = ("batch", "run", "-i", rows, "-o", out_file, "-q", "Is there a bottle?", "--name", "bottle")
    before = {batch["id"] for batch in batches(address)}
    with start(address, *asked) as process:
        until = time.monotonic() + 60
        while not out_file.exists() and process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    status, out, err = photocall(address, *asked)
    assert status == 0, err
    found = [json.loads(line) for line in out_file.read_text().splitlines()]
    assert sorted(row["custom_id"] for row in found) == sorted(row["id"] for row in named)
    assert all(row["response"]["body"]["answers"]["bottle"]["type"] == "noul" for row in found)
    [batch] = [batch for batch in batches(address) if batch["id"] not in before]
    assert batch["request_counts"] == {"total": len(named), "completed": len(named), "failed": 0}
    status, out, _ = photocall(address, *asked, "--json")
    assert (status, json.loads(out)["unanswered"]) == (0, 0)


def test_the_service_is_looked_at_and_measured(address: str) -> None:
    status, out, err = photocall(address, "doctor", "--only", "model,redis,server", "--json")
    assert (status, err) == (0, "")
    assert [json.loads(line)["state"] for line in out.splitlines()] == ["ok", "ok", "ok"]
    status, out, err = photocall(
        address, "bench", SHELF, "--seconds", "2", "--warm-up", "1", "--callers", "2", "--json"
    )
    assert status == 0, err
    found = json.loads(out)
    assert found["new_file_each_call"] is True
    assert found["answered"] > 0
    assert found["pictures_per_s"] == pytest.approx(found["answered"] / found["seconds"], abs=0.01)
