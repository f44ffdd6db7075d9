"""Named points at which a process kills itself, for the tests that kill. Inert unless PHOTOCALL_FAILPOINT names one.

`name` dies at its first visit of the point, `name:3` at its first three, over all restarts: each death leaves a marker
file in the state directory, which is also how a test knows that the point was reached.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from photocall.settings import SettingsError, SharedSettings

POINTS = (
    "gateway.enqueue",  # accepted and answered 202, not on the prep queue
    "batch.validate",  # some rows of a batch are noted, not all
    "batch.submit",  # rows are accepted as jobs, no answer is noted
    "batch.write",  # lines are on the disk, their end is not committed
    "batch.commit",  # it is committed, the rows' jobs are still there
    "batch.finish",  # every row is written, the batch still runs
    "prep.decode",  # leased, a picture being decoded
    "engine.step",  # leased, a forward about to run
    "engine.decode",  # a text under way, its next token about to be made
    "engine.publish",  # answered, the answer not written
)

_armed: dict[str, tuple[Path, int]] = {}


def arm(settings: SharedSettings) -> None:
    """Read the setting, once per process. Raises SettingsError for a point that does not exist."""
    _armed.clear()
    if settings.failpoint:
        name, _, times = settings.failpoint.partition(":")
        if name not in POINTS or not (times or "1").isdecimal():
            raise SettingsError("PHOTOCALL_FAILPOINT", settings.failpoint, "one of " + ", ".join(POINTS))
        _armed[name] = settings.data, int(times or 1)


def reach(name: str) -> None:
    """The process is at the named point."""
    if name not in _armed:
        return
    directory, times = _armed[name]
    for visit in range(1, times + 1):
        try:
            os.close(os.open(marker(directory, name, visit), os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            continue
        os.kill(os.getpid(), signal.SIGKILL)


def marker(directory: Path, name: str, visit: int = 1) -> Path:
    """The file a death leaves."""
    return directory / f"failpoint-{name}-{visit}"
