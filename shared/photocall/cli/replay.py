"""`photocall replay JOB`: asks again what a job asked, and compares the answers bit by bit.

Status 0: the same bits. 1: they differ, though both answers come from the same model, numbers and pixels, which must
not be. 2: nothing to compare, or the two were made differently; which fields of their provenance differ is said.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from photocall.cli.errors import Unable
from photocall.cli.output import add_json, print_json, shown
from photocall.cli.server import add_server, connected
from photocall.client import Client, JobFailed
from photocall.comparing import by_name, change, said, same_bits
from photocall.provenance import differences

SAME, DIFFERS, CANNOT = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may stand behind `photocall replay`."""
    parser.add_argument("job", metavar="JOB", help="id of a job that was asked with `provenance: true`")
    add_server(parser)
    add_json(parser, "one JSON object instead of a line for each question")


def run_replay(options: argparse.Namespace) -> int:
    """See the module. Raises what errors.py knows."""
    with connected(options) as server:
        try:
            found = replay(server, options.job)
        except JobFailed as error:
            raise Unable(f"the replay has no answer to compare: {error}") from error
    if options.json:
        print_json(found)
    else:
        for line in _lines(found):
            print(shown(line))
    if found["made_differently"]:
        return CANNOT
    return SAME if found["same"] else DIFFERS


def replay(client: Client, job_id: str) -> dict[str, Any]:
    """Ask again, wait, compare. Raises JobFailed and RequestRefused."""
    again, first = client.replay(job_id).fields, client.get(job_id).fields
    before, after = by_name(first["result"]["answers"]), by_name(again["result"]["answers"])
    questions = {name: _compared(before[name], after[name]) for name in before}
    made = differences(first["result"]["provenance"], again["result"]["provenance"])
    return {
        "job": first["id"],
        "replay": again["id"],
        "same": all(found["same"] for found in questions.values()),
        "questions": questions,
        "made_differently": {name: {"job": one, "replay": other} for name, (one, other) in made.items()},
    }


def _compared(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    moved = change(before, after)
    found = {"same": same_bits(before, after), "largest_change": moved.size, "said": said(before)}
    if moved.size:
        found |= {"of": moved.of, "before": moved.before, "after": moved.after}
    return found


def _lines(found: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, one in found["questions"].items():
        if one["same"]:
            lines.append(f"same     {name}")
        elif "of" in one:
            moved = f"{one['of']} {one['before']!r} became {one['after']!r}, a change of {one['largest_change']:.3g}"
            lines.append(f"differs  {name}: {moved}")
        else:
            lines.append(f"differs  {name}: in something else than a probability")
    for name, both in found["made_differently"].items():
        lines.append(f"made differently: {name} was {both['job']!r}, is {both['replay']!r}")
    if found["made_differently"]:
        lines.append(f"{found['job']} cannot be replayed here: what made it has changed")
    return lines
