"""The one place where an exception of a command becomes a line on standard error, with what to do, and a status."""

from __future__ import annotations

import contextlib
import errno
import os
import sys

from photocall.cli.parser import PROGRAM, warn

FAILED, UNABLE, INTERRUPTED = 1, 2, 130
_MISTAKES = {  # by module and name: importing them all would make every command slow
    "photocall.settings.SettingsError",
    "photocall.api_keys.KeyFileError",
    "photocall.key_limits.BadLimit",
    "photocall.redis_server.NoRedisError",
    "photocall.local.AlreadyRunning",
    "photocall.supervisor.SupervisorError",
    "photocall.grid.ProcessorConfigError",
    "photocall.calibrating.TooLittle",
    "photocall.invalid.InvalidField",
}


class Unable(Exception):
    """A command cannot do what it was asked for; the message says why and what to do, in a line."""


def told(command: str, error: BaseException) -> int:
    """Say it, and give the status. What is no mistake of the caller's or of the machine's is raised again: a defect."""
    found = explained(error)
    _finish_output()
    if found is None:
        raise error
    status, line = found
    if line:
        warn(f"{PROGRAM} {command}: {' '.join(line.split())}".replace(" :", ":"))
    return status


def explained(error: BaseException) -> tuple[int, str] | None:
    """Status and line for what can go wrong; None for a defect. An empty line: there is nobody to tell."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, BrokenPipeError):  # whoever read our output has seen enough, as `head` does
        return FAILED, ""
    if isinstance(error, Unable):
        return UNABLE, str(error)
    names = {f"{cls.__module__}.{cls.__name__}" for cls in type(error).__mro__}
    if names & _MISTAKES:
        return UNABLE, str(error)
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith(PROGRAM):
        return UNABLE, f"this needs the package {error.name}: pip install 'photocall[client]' brings it"
    if isinstance(error, OSError):
        return UNABLE, _of_the_machine(error)
    return None


def _of_the_machine(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}the disk is full: free some room, and run the same command again"
    if isinstance(error, FileNotFoundError):
        return f"{where}there is no such file: check the path"
    if isinstance(error, PermissionError):
        return f"{where}{reason}: check who may read and write it"
    return f"{where}{reason}"


def _finish_output() -> None:
    """Write out what can be. What cannot is dropped, or Python would try again at its end, in its own words."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
