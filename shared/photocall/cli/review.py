"""`photocall review RESULTS`: the answers of a batch that a person should look at, for Label Studio or as CSV."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path

from photocall.cli.errors import Unable
from photocall.cli.output import add_json, print_json
from photocall.review import BELOW, CONFIG, doubtful, label_studio, write_csv


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may stand behind `photocall review`."""
    parser.add_argument("results", type=Path, nargs="?", metavar="RESULTS", help="the output file of a batch")
    parser.add_argument("--input", type=Path, metavar="FILE", help="its input file: for the words and the pictures")
    written = parser.add_mutually_exclusive_group()
    written.add_argument(
        "--format", choices=("label-studio", "csv"), default="label-studio", help="label-studio unless said"
    )
    add_json(written, "one JSON object a line for each answer, with what the columns of csv are")
    written.add_argument("--config", action="store_true", help="print Label Studio's labeling configuration instead")
    parser.add_argument("--below", type=float, default=BELOW, metavar="P", help=f"confidence to look below ({BELOW})")
    parser.add_argument("--server", default="http://127.0.0.1:8080", metavar="URL", help="that keeps the pictures")


def run_review(options: argparse.Namespace) -> int:
    """0 when done. Raises Unable and OSError. What is written goes to standard output."""
    if options.config:
        sys.stdout.write(CONFIG)
        return 0
    if options.results is None:
        raise Unable("name the output file of a batch")
    try:
        with ExitStack() as files:
            inputs = files.enter_context(options.input.open(encoding="utf-8")) if options.input else []
            results = files.enter_context(options.results.open(encoding="utf-8"))
            queue = doubtful(results, inputs, options.server.rstrip("/"), options.below)
    except ValueError as error:
        raise Unable(str(error)) from None
    if options.json:
        for one in queue:
            print_json(one.row)
    elif options.format == "csv":
        write_csv(queue, sys.stdout)
    else:
        sys.stdout.write(json.dumps(label_studio(queue), ensure_ascii=False, indent=1) + "\n")
    return 0
