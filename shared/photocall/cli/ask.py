"""`photocall ask`: the same questions of each picture, or of all together; answers as they come."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from photocall.cli.asked import add_questions, marker, questions_of, state_of, words_of
from photocall.cli.errors import FAILED, Unable, explained
from photocall.cli.inspect import at_least, budget
from photocall.cli.output import Progress, add_json, print_json, print_table
from photocall.cli.parser import PROGRAM, warn
from photocall.cli.server import Server, add_server, connected
from photocall.client import ClientError, Job, Picture

STDIN = "-"
HEADS = ("PICTURE", "QUESTION", "ANSWER", "PROBABILITY")


@dataclass(frozen=True, slots=True)
class Round:
    """One request: what it is about, and its pictures."""

    name: str
    images: list[bytes | Path | str]


def add_arguments(parser: ArgumentParser) -> None:
    """What may stand behind `photocall ask`."""
    parser.add_argument(
        "images", metavar="IMG", nargs="*", help="a file, `-` for standard input, a stored sha256, a URL"
    )
    parser.add_argument(
        "--together", action="store_true", help="all pictures in one request: [image 1], [image 2], ..."
    )
    add_questions(parser)
    parser.add_argument("--page", type=at_least(1), metavar="N", help="page of a document, from 1")
    parser.add_argument("--dpi", type=at_least(1), metavar="N", help="at which a page of a PDF is drawn")
    parser.add_argument("--budget", type=budget, metavar="N", help="soft tokens a picture, or auto")
    parser.add_argument("--model", metavar="NAME", help="`photocall models` lists the names")
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds to wait for each answer; the job runs on")
    parser.add_argument("--at-once", type=at_least(1), default=8, metavar="N", help="requests under way (%(default)s)")
    add_json(parser)
    add_server(parser)


def run_ask(options: Namespace) -> int:
    """0 when everything was answered, 1 when something was not."""
    questions = questions_of(options)
    rounds = list(rounds_of(options))
    status = 0
    rows: list[tuple[Any, ...]] = []
    with connected(options) as server, Progress() as progress:
        for number, (asked, outcome) in enumerate(answered(server, rounds, questions, options), 1):
            progress.clear()
            if isinstance(outcome, BaseException):
                status = FAILED
                _, line = explained(outcome) or (FAILED, str(outcome))
                if options.json:
                    print_json({"image": asked.name, "error": line})
                warn(f"{PROGRAM} ask: {asked.name}: {line}")
            elif options.json:
                shown = {"image": asked.name, "job": outcome.id, "answers": dict(outcome.fields["result"]["answers"])}
                print_json(shown)
            else:
                rows += rows_of(asked.name, outcome)
            progress.show(f"{number} of {len(rounds)} answered")
    if rows:
        print_table(HEADS, rows)
    return status


def rounds_of(options: Namespace) -> Iterator[Round]:
    """What to ask, request by request. Raises Unable."""
    if options.images.count(STDIN) > 1:
        raise Unable("standard input can be one picture only: write `-` once")
    images = [(name, _image(name)) for name in options.images]
    if not images and not options.state:
        raise Unable("there is nothing to ask about: name a picture, or say what is known with --state")
    if options.together or not images:
        yield Round(", ".join(options.images), [image for _, image in images])
        return
    for name, image in images:
        yield Round(name, [image])


def answered(
    server: Server, rounds: list[Round], questions: dict[str, Any], options: Namespace
) -> Iterator[tuple[Round, Job | Exception]]:
    """Each request with its job or what became of it, in order; the next ones are under way meanwhile."""
    waiting = deque(rounds)
    under_way: deque[tuple[Round, Job | Exception]] = deque()
    while waiting or under_way:
        while waiting and len(under_way) < options.at_once:
            asked = waiting.popleft()
            under_way.append((asked, _tried(lambda asked=asked: _submit(server, asked, questions, options))))
        asked, job = under_way.popleft()
        if isinstance(job, Job):
            found = job
            job = _tried(lambda found=found: _ended(server, found, options.timeout))
        yield asked, job


def rows_of(name: str, job: Job) -> Iterator[tuple[Any, ...]]:
    """A line of the table for each question."""
    for question, answer in job.fields["result"]["answers"].items():
        said, probability = words_of(answer)
        doubt = f" ({answer['answer_status']})" if answer.get("answer_status") in ("untrained", "abstained") else ""
        yield name, question, said + doubt, "" if probability is None else f"{probability:.2f}"


def _submit(server: Server, asked: Round, questions: dict[str, Any], options: Namespace) -> Job:
    views = {"page": options.page, "dpi": options.dpi}
    images = {marker(number): Picture(image, **views) for number, image in enumerate(asked.images, 1)}
    state = state_of(options, len(images))
    return server.submit(state=state, questions=questions, images=images, budget=options.budget, model=options.model)


def _ended(server: Server, job: Job, timeout_s: float | None) -> Job:
    found = job if job.ended else server.wait(job.id, timeout_s)
    _ = found.answers  # raises JobFailed
    return found


def _tried(call: Any) -> Any:
    """What a call gives, or what it raises of that which is one picture's matter."""
    try:
        return call()
    except (ClientError, OSError) as error:
        if getattr(error, "status", None) in (0, 401, 403, 421):  # no picture will do better
            raise
        return error


def _image(name: str) -> bytes | Path | str:
    if name == STDIN:
        return sys.stdin.buffer.read()
    stored = len(name) == 64 and all(char in "0123456789abcdef" for char in name)
    return name if stored or name.startswith("https://") else Path(name)
