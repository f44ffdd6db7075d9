"""`photocall calibrate LABELS`: from labelled answers, one JSON object a line, to a calibration for requests."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from photocall.calibration_object import calibration_object
from photocall.cli.errors import FAILED, Unable
from photocall.cli.output import add_json, print_json
from photocall.cli.parser import warn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may stand behind `photocall calibrate`."""
    parser.add_argument("labels", type=Path, metavar="LABELS", help='lines of {"question", "answer", "label"}')
    parser.add_argument("--by", choices=("question", "type"), default="question", help="what has a correction each")
    parser.add_argument("--diagrams", type=Path, metavar="DIR", help="write a reliability diagram of each there")
    parser.add_argument(
        "--store", action="store_true", help="keep it on the server of PHOTOCALL_URL, and print its id instead"
    )
    add_json(parser, "the calibration on one line; with --store an object that has its id, null where it is not kept")


def run_calibrate(options: argparse.Namespace) -> int:
    """0 when done, 1 where nothing is kept because nothing is corrected.

    The calibration, or with `--store` its id, goes to standard output, figures to standard error.
    """
    found = calibration_object(_labels(options.labels), options.by)
    for number, (name, report) in enumerate(found["reports"].items()):
        svg = report.pop("svg")
        if options.diagrams:
            options.diagrams.mkdir(parents=True, exist_ok=True)
            (options.diagrams / f"{number}.svg").write_text(svg, encoding="utf-8")
        before, after = report["before"], report["after"]
        moved = ", ".join(f"{figure} {before[figure]:.4f} -> {after[figure]:.4f}" for figure in before)
        warn(f"{number}: {name} ({report['count']}): {moved}")
    for name, why in found["refused"].items():
        warn(f"{name}: {why}")
    if not options.store:
        if options.json:
            print_json(found)
        else:
            sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=1) + "\n")
        return 0
    kept = None if found["id"] is None else _kept(found)
    if options.json:
        print_json({"id": kept})
    elif kept is not None:
        print(kept)
    if kept is None:
        warn("no correction helps: there is nothing to keep")
        return FAILED
    return 0


def _labels(file: Path) -> list[Any]:
    """Raises OSError, or Unable for a line that is no JSON."""
    labels = []
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                if line.strip():
                    labels.append(json.loads(line))
            except ValueError as error:
                raise Unable(f"{file}, line {number}: {error}") from error
    return labels


def _kept(calibration: Mapping[str, Any]) -> str:
    """Its id on the server. Raises Unable, or SettingsError."""
    from photocall.client import Client, ClientError
    from photocall.settings import client_settings

    settings = client_settings()
    try:
        with Client(settings.url, settings.api_key) as client:
            return str(client.calibrations.keep(calibration)["id"])
    except ClientError as error:
        raise Unable(f"{settings.url} does not keep it: {error}") from error
