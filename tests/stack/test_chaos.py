"""The crash matrix with one seed, as `make chaos SEED=11` runs it, but for the strikes with models/mini."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.timeout(600)
def test_nothing_is_lost_whatever_is_killed() -> None:
    # 20 s is for a machine of its own, as `make chaos` has it; here others may be at work.
    command = [sys.executable, "-m", "ops.chaos", "--seed", "11", "--recovery", "45", "--without-model"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    assert done.stdout.splitlines()[-1].startswith("chaos: held: seed 11, ")
