"""`photocall calibrate LABELS`: from labelled answers, one JSON object a line, to a calibration for requests."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from photocall.calibrating import TooLittle
from photocall.calibration_object import calibration_object
from photocall.invalid import InvalidField


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may stand behind `photocall calibrate`."""
    parser.add_argument("labels", type=Path, metavar="LABELS", help='lines of {"question", "answer", "label"}')
    parser.add_argument("--by", choices=("question", "type"), default="question")
    parser.add_argument("--diagrams", type=Path, metavar="DIR", help="write a reliability diagram of each there")


def run_calibrate(options: argparse.Namespace) -> int:
    """0 when done, 2 when it cannot be. The calibration goes to standard output, figures to standard error."""
    try:
        with options.labels.open(encoding="utf-8") as lines:
            labels = [json.loads(line) for line in lines if line.strip()]
        found = calibration_object(labels, options.by)
        for number, (name, report) in enumerate(found["reports"].items()):
            svg = report.pop("svg")
            if options.diagrams:
                options.diagrams.mkdir(parents=True, exist_ok=True)
                (options.diagrams / f"{number}.svg").write_text(svg, encoding="utf-8")
            before, after = report["before"], report["after"]
            moved = ", ".join(f"{figure} {before[figure]:.4f} -> {after[figure]:.4f}" for figure in before)
            print(f"{number}: {name} ({report['count']}): {moved}", file=sys.stderr)
        for name, why in found["refused"].items():
            print(f"{name}: {why}", file=sys.stderr)
    except (OSError, ValueError, InvalidField, TooLittle) as error:
        print(f"photocall calibrate: {error}", file=sys.stderr)
        return 2
    sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=1) + "\n")
    return 0
