"""`photocall drift FILE...`: how far answers about your own pictures move, by what should and what may move them.

Status 0: nothing moved that must not, and nothing by more than `--limit`. 1: something did. 2: it cannot be measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from photocall.cli.asked import read_object
from photocall.cli.errors import Unable
from photocall.cli.output import Progress, add_json, print_json, print_table
from photocall.cli.server import add_server, connected
from photocall.client import JobFailed
from photocall.drift import IMAGE, Drift, Meter, NotComparable

WITHIN, ABOVE = 0, 1

# Asked where nothing else is: one of each type whose answer is a distribution over labels, about any picture at all.
QUESTIONS: Mapping[str, Mapping[str, Any]] = {
    "shows": {
        "type": "choice",
        "instructions": "What does the picture show most of?",
        "criteria": ["people or animals", "things", "text or numbers", "a chart or a drawing", "a place"],
    },
    "text": {"type": "noul", "instructions": "Is there any text in the picture?"},
    "crowded": {
        "type": "score",
        "instructions": "How much is there in the picture?",
        "criteria": ["nothing", "one thing", "a few things", "many things"],
    },
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may stand behind `photocall drift`."""
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="pictures to ask about")
    parser.add_argument("--questions", type=Path, metavar="FILE", help="JSON, as `questions` of a request")
    parser.add_argument("--state", default=IMAGE, metavar="TEXT", help=f"around the picture, which is {IMAGE} in it")
    parser.add_argument(
        "--limit", type=float, default=1.0, metavar="P", help="largest change that is fine where one may be (1: any)"
    )
    parser.add_argument("--crowd", type=int, default=24, metavar="N", help="requests at once for batch mates (24)")
    add_server(parser)
    add_json(parser, "one JSON object instead of a table")


def run_drift(options: argparse.Namespace) -> int:
    """See the module. Raises what errors.py knows."""
    questions = QUESTIONS if options.questions is None else _questions(options.questions)
    pictures = {str(file): file.read_bytes() for file in options.files}
    state = options.state if IMAGE in options.state else f"{IMAGE}\n{options.state}"
    encoded = _encoded(list(pictures))
    with connected(options) as server, Progress() as progress:
        meter = Meter(server, questions, state, options.crowd, progress.show)
        try:
            found = meter.measure(pictures, encoded)
        except (JobFailed, NotComparable) as error:
            raise Unable(f"it cannot be measured: {error}") from error
    above = [drift for drift in found if drift.above(options.limit)]
    if options.json:
        told = {"pictures": len(pictures), "questions": len(questions), "limit": options.limit}
        drifts = [_shown(drift) for drift in found]
        print_json({**told, "made_by": meter.made_by, "ok": not above, "drift": drifts})
    else:
        print_table(("", "compared", "largest change", "mean", "said otherwise", "largest at"), map(_row, found))
        for drift in above:
            why = "must not move an answer, and does" if drift.promised else f"moves more than {options.limit:g}"
            print(f"{drift.what} {why}", file=sys.stderr)
    return ABOVE if above else WITHIN


def _questions(file: Path) -> dict[str, Any]:
    """Raises OSError, Unable."""
    found = read_object(file, "questions")
    for name, question in found.items():
        if not isinstance(question, dict) or not isinstance(question.get("type"), str):
            raise Unable(f"{file}: {name} is no question with a type: correct it")
    return found


def _encoded(files: list[str]) -> dict[str, dict[str, bytes]]:
    """The files encoded anew, by kind and name: prep does it, which has the decoders. Raises Unable."""
    with tempfile.TemporaryDirectory(prefix="photocall-drift-") as directory:
        command = [sys.executable, "-m", "photocall_prep", "variants", "--into", directory, "--", *files]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:] or ["photocall_prep cannot encode pictures anew"]
            raise Unable(said[0])
        found: dict[str, dict[str, bytes]] = {}
        for line in map(json.loads, done.stdout.splitlines()):
            for kind, path in line["variants"].items():
                found.setdefault(kind, {})[line["file"]] = Path(path).read_bytes()
    return found


def _shown(drift: Drift) -> dict[str, Any]:
    largest = drift.largest
    found = {
        "what": drift.what,
        "promised": drift.promised,
        "compared": drift.compared,
        "unequal_bits": drift.unequal,
        "largest_change": largest.size,
        "mean_change": drift.mean,
        "said_otherwise": drift.said_otherwise,
        "note": drift.note or None,
    }
    if largest.size:
        where = {"picture": drift.picture, "question": drift.question, "of": largest.of}
        found["largest"] = {**where, "before": largest.before, "after": largest.after}
    return found


def _row(drift: Drift) -> tuple[Any, ...]:
    at = f"{drift.picture}: {drift.question}, {drift.largest.of}" if drift.largest.size else drift.note
    return drift.what, drift.compared, _number(drift.largest.size), _number(drift.mean), drift.said_otherwise, at


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}"
