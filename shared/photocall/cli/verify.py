"""`photocall verify DIR`: runs the engine room's comparison with transformers, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser, Namespace

from photocall.cli.output import add_json


def add_arguments(parser: ArgumentParser) -> None:
    """What may stand behind `photocall verify`."""
    parser.add_argument("directory", metavar="DIR", help="checkpoint directory")
    parser.add_argument("--tolerance", metavar="X", help="largest difference of a logit that passes")
    add_json(parser, "the verdicts as a JSON object")


def run_verify(options: Namespace) -> int:
    """The comparison's status: 0 where every sample agrees, 1 where one does not, 2 where it cannot be made."""
    chosen = [] if options.tolerance is None else ["--tolerance", options.tolerance]
    chosen += ["--json"] if options.json else []
    command = [sys.executable, "-m", "photocall_engine.verify", options.directory, *chosen]
    return subprocess.run(command, check=False).returncode
