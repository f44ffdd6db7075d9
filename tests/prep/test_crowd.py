"""The first picture on a host gets its cores, later ones a thread, and whoever dies is not counted any more."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from photocall_prep.crowd import Crowd

HOLD = "import sys; from pathlib import Path; from photocall_prep.crowd import Crowd\n"
HOLD += "with Crowd(Path(sys.argv[1]), 4).joined() as threads: print(threads, flush=True); sys.stdin.read()"


def test_the_first_gets_all_and_later_ones_one(tmp_path: Path) -> None:
    crowd, others = Crowd(tmp_path, 4), Crowd(tmp_path, 4)
    with crowd.joined() as first, others.joined() as second, others.joined() as third:
        assert (first, second, third) == (4, 1, 1)
    with others.joined() as alone:
        assert alone == 4


def test_who_comes_when_the_first_has_left_is_not_the_first(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path, 4)
    first, second = crowd.joined(), crowd.joined()
    assert first.__enter__() == 4
    assert second.__enter__() == 1
    first.__exit__(None, None, None)
    with crowd.joined() as third:
        assert third == 1, "the second is still at it"
    second.__exit__(None, None, None)


@pytest.mark.parametrize("end", ["leave", "kill"])
def test_another_process_counts_until_it_ends_however(tmp_path: Path, end: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "4\n"
        with Crowd(tmp_path, 4).joined() as threads:
            assert threads == 1
        if end == "kill":
            child.send_signal(signal.SIGKILL)
        child.stdin.close()
        child.wait(10)
    with Crowd(tmp_path, 4).joined() as threads:
        assert threads == 4


def test_an_error_inside_leaves_the_crowd(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path, 4)
    with pytest.raises(ValueError, match="a picture"), crowd.joined():
        raise ValueError("a picture")
    with crowd.joined() as threads:
        assert threads == 4


def test_a_directory_that_is_gone_spreads_nothing(tmp_path: Path) -> None:
    with Crowd(tmp_path / "gone", 4).joined() as threads:
        assert threads == 1
