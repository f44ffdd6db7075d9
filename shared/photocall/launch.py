"""Run a command that ends with its parent: `python launch.py PARENT_PID COMMAND...`.

The kernel kills the process when the parent that started it dies, however it dies (Linux's PR_SET_PDEATHSIG, which
survives the exec). Standard library only, run by path, so that it starts in a few milliseconds.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Becomes the command; ends instead when the parent is gone before the kernel was told."""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() == parent:
        os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
