"""Named points at which a process dies or stops, for the tests that kill. Inert unless PHOTOCALL_FAILPOINT says so.

Several may be named, between commas:

- `engine.step` dies at its first visit of the point, `engine.step:3` at its first three, over all restarts: each death
  leaves a marker file in the state directory, which is also how a test knows that the point was reached.
- `prep.decode@HASH` dies there whenever the picture is that one: a job that kills its process each time.
- `asked` stops (SIGSTOP) at any point that was asked for with `ask`, once for each asking. Whoever asked finds the
  process standing there, kills it or something else at that very moment, and lets it go on with SIGCONT.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

from photocall.settings import SettingsError, SharedSettings

POINTS = (
    "gateway.store",  # a job's pictures are stored, the job is not accepted
    "gateway.accept",  # accepted, not answered
    "gateway.enqueue",  # accepted and answered 202, not on the prep queue
    "gateway.enqueued",  # on the queue, its outbox entry still there
    "batch.validate",  # some rows of a batch are noted, not all
    "batch.submit",  # rows are accepted as jobs, no answer is noted
    "batch.write",  # lines are on the disk, their end is not committed
    "batch.commit",  # it is committed, the rows' jobs are still there
    "batch.finish",  # every row is written, the batch still runs
    "prep.decode",  # leased, a picture being decoded
    "prep.prepared",  # the patch blobs are there, the job is not handed over
    "engine.capture",  # proved itself, about to capture its graphs; nothing is taken yet
    "engine.take",  # a job is leased, about to join the batch
    "engine.step",  # leased, a forward about to run
    "engine.decode",  # a text under way, its next token about to be made
    "engine.publish",  # answered, the answer not written
    "engine.published",  # the answer is written, the engine does not know yet
)
ASKED = "asked"

_SHAPE = re.compile(r"(?P<name>[a-z.]+)(?::(?P<times>[0-9]+)|@(?P<picture>[0-9a-f]+))?")


@dataclass(frozen=True, slots=True)
class _Trap:
    """Where to die: at the first `times` visits, or with a picture whenever it comes."""

    times: int = 1
    picture: str = ""


@dataclass(frozen=True, slots=True)
class _Armed:
    """What this process was told: by point, and whether any point may be asked for."""

    directory: Path
    traps: dict[str, _Trap]
    asked: bool


_armed: _Armed | None = None


def arm(settings: SharedSettings) -> None:
    """Read the setting, once per process. Raises SettingsError for a point that does not exist."""
    global _armed
    traps = {}
    for word in filter(None, settings.failpoint.split(",")):
        found = _SHAPE.fullmatch(word)
        if found is None or found["name"] not in (*POINTS, ASKED):
            raise SettingsError("PHOTOCALL_FAILPOINT", settings.failpoint, "one of " + ", ".join((*POINTS, ASKED)))
        traps[found["name"]] = _Trap(int(found["times"] or 1), found["picture"] or "")
    _armed = _Armed(settings.data, traps, traps.pop(ASKED, None) is not None) if traps else None


def reach(name: str, *pictures: str) -> None:
    """The process is at the named point, with the pictures that it works on."""
    if _armed is None:
        return
    if _armed.asked:
        _stop_if_asked(_armed.directory, name)
    trap = _armed.traps.get(name)
    if trap is None:
        return
    if trap.picture:
        if trap.picture in pictures:
            os.kill(os.getpid(), signal.SIGKILL)
        return
    for visit in range(1, trap.times + 1):
        try:
            os.close(os.open(marker(_armed.directory, name, visit), os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            continue
        os.kill(os.getpid(), signal.SIGKILL)


def _stop_if_asked(directory: Path, name: str) -> None:
    try:
        os.rename(_asking(directory, name), _standing(directory, name, os.getpid()))  # one process takes it
    except FileNotFoundError:
        return
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread first, and with it all of the process


def marker(directory: Path, name: str, visit: int = 1) -> Path:
    """The file a death leaves."""
    return directory / f"failpoint-{name}-{visit}"


def ask(directory: Path, name: str) -> None:
    """The next process that comes to the point stops there, if it is armed with `asked`."""
    assert name in POINTS, name
    _asking(directory, name).touch()


def withdraw(directory: Path, name: str) -> None:
    """Nobody is to stop there any more."""
    _asking(directory, name).unlink(missing_ok=True)


def standing(directory: Path, name: str) -> int | None:
    """The process that stopped at the point, told once; it may be about to stop for an instant yet."""
    for found in directory.glob(f"failpoint-{name}-standing-*"):
        found.unlink()
        return int(found.name.rpartition("-")[2])
    return None


def _asking(directory: Path, name: str) -> Path:
    return directory / f"failpoint-{name}-{ASKED}"


def _standing(directory: Path, name: str, pid: int) -> Path:
    return directory / f"failpoint-{name}-standing-{pid}"
