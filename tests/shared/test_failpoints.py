"""Named kill points: inert by default, once by default, and only where they are armed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from photocall import failpoints
from photocall.settings import SettingsError, SharedSettings

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os
from photocall import failpoints
from photocall.settings import SharedSettings
failpoints.arm(SharedSettings.from_env(os.environ))
failpoints.reach("prep.decode", "beef")
failpoints.reach("engine.step")
print("lived")
"""


def visit(data: Path, failpoint: str | None) -> int:
    """Visit two points in a process of its own; its exit status."""
    environ = os.environ | {"PHOTOCALL_DATA": str(data)} | ({"PHOTOCALL_FAILPOINT": failpoint} if failpoint else {})
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, check=False).returncode


def test_inert_unless_armed(tmp_path: Path) -> None:
    assert visit(tmp_path, None) == 0
    assert visit(tmp_path, "gateway.enqueue") == 0
    assert list(tmp_path.iterdir()) == []


def test_dies_once_and_leaves_a_marker(tmp_path: Path) -> None:
    assert visit(tmp_path, "engine.step") == -signal.SIGKILL
    assert failpoints.marker(tmp_path, "engine.step").exists()
    assert visit(tmp_path, "engine.step") == 0


def test_dies_as_often_as_it_is_told(tmp_path: Path) -> None:
    assert [visit(tmp_path, "prep.decode:2") for _ in range(3)] == [-signal.SIGKILL, -signal.SIGKILL, 0]


def test_dies_of_one_picture_each_time_and_of_no_other(tmp_path: Path) -> None:
    assert [visit(tmp_path, "engine.take@cafe,prep.decode@beef") for _ in range(2)] == [-signal.SIGKILL] * 2
    assert visit(tmp_path, "prep.decode@cafe") == 0


def test_stops_where_it_is_asked_to_and_goes_on_when_told(tmp_path: Path) -> None:
    assert visit(tmp_path, "asked") == 0
    failpoints.ask(tmp_path, "engine.step")
    failpoints.ask(tmp_path, "gateway.store")
    failpoints.withdraw(tmp_path, "gateway.store")
    environ = os.environ | {"PHOTOCALL_DATA": str(tmp_path), "PHOTOCALL_FAILPOINT": "asked"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=environ, stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + 30
        while (pid := failpoints.standing(tmp_path, "engine.step")) is None:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert pid == process.pid
        assert os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT) is not None
        os.kill(pid, signal.SIGCONT)
        assert process.wait(30) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "value", ["nowhere", "prep.decode:x", "prep.decode:-1", "prep.decode@no hash", "asked,nowhere"]
)
def test_an_unknown_point_stops_the_start(value: str) -> None:
    with pytest.raises(SettingsError, match="PHOTOCALL_FAILPOINT"):
        failpoints.arm(SharedSettings.from_env({"PHOTOCALL_FAILPOINT": value}))


def test_every_point_is_somewhere_in_the_services() -> None:
    source = "".join(file.read_text() for file in (ROOT / "services").rglob("*.py"))
    for name in failpoints.POINTS:
        assert len(re.findall(rf'failpoints\.reach\("{name}"[,)]', source)) == 1
