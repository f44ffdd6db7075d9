"""The `photocall` command: parses and calls. Reaches prep and the engine as subprocesses only."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

from photocall.cli import calibrate, keys, review


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    parser = argparse.ArgumentParser(prog="photocall", description="A self-hosted decision server for pictures.")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start everything on this machine and stay until Ctrl-C or SIGTERM")
    up.add_argument("--port", type=int, metavar="N", help="port of the gateway; 0 takes a free one (PHOTOCALL_PORT)")
    up.add_argument("--data", metavar="DIR", help="state directory (PHOTOCALL_DATA)")
    commands.add_parser("settings", help="print every setting as a table")
    verify = commands.add_parser("verify", help="compare the engine with transformers on a checkpoint of your own")
    verify.add_argument("directory", metavar="DIR", help="checkpoint directory")
    verify.add_argument("--tolerance", metavar="X", help="largest difference of a logit that passes")
    commands.add_parser("inspect", help="say what the model would see of picture files", add_help=False)
    keys.add_arguments(commands.add_parser("keys", help="make, list and revoke API keys"))
    review.add_arguments(commands.add_parser("review", help="a batch's answers for people to look at"))
    calibrate.add_arguments(commands.add_parser("calibrate", help="fit a calibration to labelled answers"))
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["inspect"]:  # its arguments are the prep room's, which alone knows them
        return subprocess.run([sys.executable, "-m", "photocall_prep", "inspect", *given[1:]], check=False).returncode
    options = parser.parse_args(given)
    if options.command == "calibrate":
        return calibrate.run_calibrate(options)
    if options.command == "review":
        return review.run_review(options)
    if options.command == "keys":
        return keys.run_keys(options)
    if options.command == "settings":
        from photocall.settings import table

        sys.stdout.write(table())
        return 0
    if options.command == "verify":
        chosen = [] if options.tolerance is None else ["--tolerance", options.tolerance]
        command = [sys.executable, "-m", "photocall_engine.verify", options.directory, *chosen]
        return subprocess.run(command, check=False).returncode
    from photocall.cli.up import run_up

    return run_up(options.port, options.data)
