"""The supervisor on real processes: start in order, restart, prefix, end what it started and nothing else."""

from __future__ import annotations

import io
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from photocall import supervisor
from photocall.supervisor import LAUNCHER, ProcessSpec, Supervisor, SupervisorError

FOREVER = "import time, signal; print('up', flush=True); time.sleep(600)"
STUBBORN = "import time, signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


def spec(name: str, code: str, **options: object) -> ProcessSpec:
    return ProcessSpec(name, [sys.executable, "-S", "-c", code], dict(os.environ), **options)  # type: ignore[arg-type]


@contextmanager
def kept(*specs: ProcessSpec) -> Iterator[tuple[Supervisor, io.StringIO]]:
    out = io.StringIO()
    keeper = Supervisor(specs, out)
    try:
        yield keeper, out
    finally:
        keeper.stop()


def until(look: Callable[[], object], what: str, within_s: float = 10.0) -> None:
    end = time.monotonic() + within_s
    while not look():
        assert time.monotonic() < end, f"waited {within_s:.0f} s for {what}"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_lines_are_prefixed_and_whole() -> None:
    code = "import sys; print('one'); sys.stderr.write('two\\n'); sys.stdout.buffer.write(b'\\xff end'); " + FOREVER
    with kept(spec("a", code), spec("longer", FOREVER)) as (keeper, out):
        keeper.start()
        until(lambda: out.getvalue().count("up") == 2, "both to print")
    lines = sorted(out.getvalue().splitlines())
    assert lines == sorted(["a      | one", "a      | two", "a      | \ufffd endup", "longer | up"])


def test_a_killed_process_is_started_again() -> None:
    with kept(spec("a", FOREVER)) as (keeper, out):
        keeper.start()
        first = keeper.pid("a")
        assert first is not None
        until(lambda: "up" in out.getvalue(), "the first to run")
        os.kill(first, signal.SIGKILL)
        until(lambda: another(keeper, first), "a second one")
        until(lambda: out.getvalue().count("up") == 2, "it to run")


def test_one_that_goes_on_dying_is_started_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[float] = []
    with kept(spec("a", "raise SystemExit(7)")) as (keeper, _):
        spawn = Supervisor._spawn

        def noted(self: Supervisor, child: supervisor._Child) -> None:
            started.append(time.monotonic())
            spawn(self, child)

        monkeypatch.setattr(Supervisor, "_spawn", noted)
        keeper.start()
        until(lambda: keeper.poll() or len(started) == 4, "four starts")
    pauses = [after - before for before, after in itertools.pairwise(started)]
    for pause, least in zip(pauses, (0.2, 0.4, 0.8), strict=True):
        assert pause >= least


def test_one_that_lived_long_is_started_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STEADY_S", 0.0)
    with kept(spec("a", FOREVER)) as (keeper, _):
        keeper.start()
        for _ in range(3):
            pid = keeper.pid("a")
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            until(partial(another, keeper, pid), "it again", 2.0)


def another(keeper: Supervisor, before: int) -> bool:
    return keeper.poll() == 0 and keeper.pid("a") not in (None, before)


def test_settings_that_cannot_be_used_end_the_whole() -> None:
    with kept(spec("good", FOREVER), spec("bad", "raise SystemExit(2)")) as (keeper, _):
        keeper.start()
        good = keeper.pid("good")
        assert keeper.run() == 2
        assert good is not None
        assert not alive(good)


def test_stages_start_in_order_and_end_in_reverse(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def code(name: str) -> str:
        return (
            f"import signal, sys\nlog = open({str(log)!r}, 'a', buffering=1)\nlog.write('+{name}\\n')\n"
            f"signal.signal(15, lambda *a: (log.write('-{name}\\n'), sys.exit(0)))\nsignal.pause()"
        )

    def ready() -> bool:
        return log.exists() and "+redis" in log.read_text()

    specs = [spec("gateway", code("gateway"), stage=1), spec("redis", code("redis"), ready=ready)]
    with kept(*specs) as (keeper, _):
        keeper.start()
        until(lambda: "+gateway" in log.read_text(), "both to start")
    assert log.read_text().split() == ["+redis", "+gateway", "-gateway", "-redis"]


def test_a_stage_that_is_never_ready_ends_the_start() -> None:
    with kept(spec("a", FOREVER, ready=lambda: False, ready_s=0.2)) as (keeper, _):
        with pytest.raises(SupervisorError, match="a was not ready within 0 s"):
            keeper.start()
        assert keeper.pid("a") is None


def test_a_stage_that_dies_ends_the_start() -> None:
    with (
        kept(spec("a", "raise SystemExit(1)", ready=lambda: False)) as (keeper, _),
        pytest.raises(SupervisorError, match="a ended before it was ready"),
    ):
        keeper.start()


def test_what_outstays_its_time_is_killed() -> None:
    with kept(spec("a", STUBBORN, stop_s=0.3)) as (keeper, out):
        keeper.start()
        pid = keeper.pid("a")
        until(lambda: "up" in out.getvalue(), "it to run")
        began = time.monotonic()
        keeper.stop()
        assert 0.3 <= time.monotonic() - began < 5
        assert pid is not None
        assert not alive(pid)


def test_it_ends_what_its_children_started_and_nothing_else() -> None:
    stranger = subprocess.Popen([sys.executable, "-S", "-c", FOREVER], stdout=subprocess.DEVNULL)
    grandchild = "[sys.executable, '-S', '-c', 'import time; time.sleep(600)']"
    family = f"import subprocess, sys; print(subprocess.Popen({grandchild}).pid, flush=True); "
    with kept(spec("a", family + FOREVER)) as (keeper, out):
        keeper.start()
        until(lambda: "up" in out.getvalue(), "it to run")
        pid = int(out.getvalue().split()[2])
        assert alive(pid)
        keeper.stop()
        until(lambda: not alive(pid), "the grandchild to end")
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


RUN = """
import os, sys
from photocall.supervisor import ProcessSpec, Supervisor
command = [sys.executable, "-S", "-c", {code!r}]
keeper = Supervisor([ProcessSpec("a", command, dict(os.environ), stop_s={stop_s})], sys.stdout)
keeper.start()
print("pid", keeper.pid("a"), flush=True)
sys.exit(keeper.run())
"""


def run_supervisor(code: str, stop_s: float = 10.0) -> tuple[subprocess.Popen[str], int]:
    """A supervisor in a process of its own, and the pid of its child, once that runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN.format(code=code, stop_s=stop_s)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    seen = [process.stdout.readline(), process.stdout.readline()]
    pid = next(int(line.split()[1]) for line in seen if line.startswith("pid"))
    assert any("up" in line for line in seen)
    return process, pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything_with_status_0(number: signal.Signals) -> None:
    process, child = run_supervisor(FOREVER)
    with process:
        process.send_signal(number)
        assert process.wait(10) == 0
    assert not alive(child)


def test_a_second_signal_does_not_wait() -> None:
    process, child = run_supervisor(STUBBORN, stop_s=600)
    with process:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert not alive(child)


def test_a_killed_supervisor_leaves_no_orphan() -> None:
    process, child = run_supervisor(STUBBORN)
    with process:
        process.kill()
        process.wait(10)
    until(lambda: not alive(child), "the child to end")


def test_the_launcher_does_not_start_for_a_parent_that_is_gone() -> None:
    command = [sys.executable, "-I", "-S", str(LAUNCHER), "1", sys.executable, "-c", "print('ran')"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""
