"""`python -m tests.prep.planted_decoder SOCKET MEMORY`: a decoder with defects, by what the picture's bytes say."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from photocall.views import PLAIN, Budget, View
from photocall_prep.decoder import run
from photocall_prep.prepare import ImagePrep, PreparedImage
from tests.prep.pictures import TestLimits

STUCK, GREEDY, CRASHING, DYING_ONCE, LYING = b"stuck", b"greedy", b"crashing", b"dying once ", b"lying"


class Planted(ImagePrep):
    """Prepares pictures but for those that ask for a defect."""

    def prepare(self, data: bytes, budget: Budget, view: View = PLAIN) -> PreparedImage:
        if data == STUCK:
            ctypes.PyDLL(None).sleep(3600)  # in C, with Python's lock held: no signal and no thread of ours gets a turn
        if data == GREEDY:
            kept = []
            while True:
                kept.append(bytes(128 << 20))
        if data == CRASHING:
            ctypes.string_at(0)
        if data.startswith(DYING_ONCE):
            path, _, data = data.removeprefix(DYING_ONCE).partition(b"\n")
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return super().prepare(data, budget, view)
            os.kill(os.getpid(), signal.SIGKILL)
        if data == LYING:
            os.write(int(sys.argv[1]), b"\xff" * 64)
        return super().prepare(data, budget, view)


KEPT = bytes(int(os.environ.get("PLANTED_BYTES", "0")))  # as libraries have for their threads

if __name__ == "__main__":
    sys.exit(run(os.environ, int(sys.argv[1]), int(sys.argv[2]), Planted(TestLimits())))
