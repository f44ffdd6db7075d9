"""The one place where an exception of a command becomes a line on standard error, with what to do, and a status."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Any

from photocall.cli.parser import PROGRAM, warn

FAILED, UNABLE, INTERRUPTED = 1, 2, 130
MISTAKES = {  # by module and name: importing them all would make every command slow
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


_HINTS = {  # by status of a refusal, where the server's words do not say what to do
    401: "set PHOTOCALL_API_KEY to a key of this server (`photocall keys create ID` makes one)",
    403: "call with a key that has the scope (`photocall keys list` shows them)",
    404: "check the id, and that PHOTOCALL_API_KEY is the key it was made with",
    421: "add this name to PHOTOCALL_ALLOWED_HOSTS of the server, or call it by another",
    429: "try again later, or with less at once",
    503: "try again in a moment; `photocall doctor` says what is missing",
    507: "wait until work is done, or give the server more room; `photocall doctor` says where",
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
    if names & MISTAKES:
        return UNABLE, str(error)
    if "photocall.client.errors.RequestRefused" in names:
        return UNABLE, _refusal(error)
    if "photocall.client.errors.MissingPackage" in names:
        return UNABLE, str(error)
    if "photocall.client.errors.NotAnswered" in names:
        return FAILED, f"{error}, and runs on: `{PROGRAM} jobs watch {error.job_id}` follows it"  # type: ignore[attr-defined]
    if "photocall.client.errors.ClientError" in names:
        return FAILED, str(error)
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith(PROGRAM):
        return UNABLE, f"this needs the package {error.name}: pip install 'photocall[client]' brings it"
    if isinstance(error, OSError):
        return UNABLE, _of_the_machine(error)
    return None


def _refusal(error: Any) -> str:
    """What a server said, the field it is about, when to come back, and what to do."""
    problem, status = error.problem, error.status
    if status == 0:
        return "the server does not answer any more: see whether it runs, and run the same command again"
    said = str(problem.get("detail") or "").rstrip(".") or f"refused with status {status}"
    loc = problem.get("loc") or problem.get("param")
    where = f" (at {'.'.join(map(str, loc)) if isinstance(loc, list | tuple) else loc})" if loc else ""
    after = error.retry_after_s
    hint = _HINTS.get(status, "")
    if after is not None and status in (429, 503):
        hint = f"try again in {after:g} s"
    return f"{said}{where}" + (f": {hint}" if hint else "")


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
