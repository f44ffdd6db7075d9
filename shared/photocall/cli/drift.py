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

from photocall.cli.calls import connect
from photocall.cli.errors import Unable
from photocall.client import ClientError
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
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")


def run_drift(options: argparse.Namespace) -> int:
    """See the module. The server is that of PHOTOCALL_URL, asked with PHOTOCALL_API_KEY."""
    try:
        questions = QUESTIONS if options.questions is None else _questions(options.questions)
        pictures = {str(file): file.read_bytes() for file in options.files}
        state = options.state if IMAGE in options.state else f"{IMAGE}\n{options.state}"
        encoded = _encoded(list(pictures))
        with connect() as calls:
            meter = Meter(calls, questions, state, options.crowd)
            found = meter.measure(pictures, encoded)
    except (ClientError, NotComparable) as error:
        raise Unable(str(error)) from error
    above = [drift for drift in found if drift.above(options.limit)]
    if options.json:
        shown = [_shown(drift) for drift in found]
        told = {"pictures": len(pictures), "questions": len(questions), "limit": options.limit}
        print(json.dumps({**told, "made_by": meter.made_by, "ok": not above, "drift": shown}, ensure_ascii=False))
    else:
        print(_table(found))
        for drift in above:
            why = "must not move an answer, and does" if drift.promised else f"moves more than {options.limit:g}"
            print(f"{drift.what} {why}", file=sys.stderr)
    return ABOVE if above else WITHIN


def _questions(file: Path) -> dict[str, Any]:
    """Raises OSError, Unable."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Unable(f"{file}: not JSON: {error}") from None
    if not isinstance(found, dict) or not found or not all(isinstance(q, dict) and "type" in q for q in found.values()):
        raise Unable(f"{file}: expected an object of questions by name, each with a type")
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


def _table(found: list[Drift]) -> str:
    heads = ("", "compared", "largest change", "mean", "said otherwise", "largest at")
    rows = [heads]
    for drift in found:
        at = drift.note
        if drift.largest.size:
            at = f"{drift.picture}: {drift.question}, {drift.largest.of}"
        cells = (drift.what, str(drift.compared), _number(drift.largest.size), _number(drift.mean))
        rows.append((*cells, str(drift.said_otherwise), at))
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}"
