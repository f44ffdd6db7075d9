"""`make chaos SEED=n`: kill everything once, at every point, under load; then see what was lost.

`DURATION=3600` goes on for an hour. The last line is the summary; the exit status says whether everything held.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path

from ops.chaos.matrix import RECOVERY_S
from ops.chaos.run import Report, run
from ops.chaos.strikes import MATRIX, WITH_MODEL
from photocall.logs import set_up


def main(arguments: list[str] | None = None) -> int:
    """0 when it held, 1 when not."""
    parser = argparse.ArgumentParser(prog="ops.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", "1")), metavar="N")
    parser.add_argument(
        "--duration", type=float, default=float(os.environ.get("DURATION", "0")), metavar="S", help="0: the matrix once"
    )
    parser.add_argument(
        "--recovery", type=float, default=RECOVERY_S, metavar="S", help="longest recovery that holds (default 20)"
    )
    parser.add_argument("--without-model", action="store_true", help="leave out the runs with models/mini")
    parser.add_argument("--log", type=Path, metavar="FILE", help="keep the processes' lines here")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    set_up("chaos")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    report = Report(options.seed, options.recovery)
    with tempfile.TemporaryDirectory(prefix="pc-chaos-") as directory:
        log = options.log or Path(directory) / "log"
        with log.open("w") as out:
            run(report, Path(directory) / "fake", out, MATRIX, options.duration, runner="fake")
            if not options.without_model:
                run(report, Path(directory) / "model", out, WITH_MODEL, 0.0, runner="model")
        report.show(sys.stdout)
        if not report.held:
            print("".join(log.read_text().splitlines(keepends=True)[-200:]), file=sys.stderr)
    return 0 if report.held else 1


if __name__ == "__main__":
    raise SystemExit(main())
