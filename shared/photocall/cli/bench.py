"""`photocall bench`: how many pictures a running server answers in a second, and how long one takes, seen from here.

Every call is about a file that the server has not seen, unless `--same` asks for its memory; the first seconds do not
count. What this program itself takes of a core is said beside it: at the end of that, it is the bench that is measured.
"""

from __future__ import annotations

import itertools
import json
import secrets
import threading
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from photocall.cli.asked import IMAGE, add_questions, questions_of, state_of
from photocall.cli.errors import FAILED
from photocall.cli.inspect import at_least
from photocall.cli.made_picture import drawn, renamed
from photocall.cli.output import Progress, add_json, print_json
from photocall.cli.parser import PROGRAM, warn
from photocall.cli.server import add_server, client_settings, probe
from photocall.client.transport import options as connection

QUESTIONS = {"red": {"type": "noul", "instructions": "Is there anything red?"}}
LEAST = {50: 1, 90: 10, 99: 100}  # calls that a percentile needs to say anything
WAIT_S = 60
BUSY = 0.8  # of a core: from there on the figures are the bench's
PAUSE_S = 0.5  # after a refusal


@dataclass
class Tally:
    """What the callers saw while it counted."""

    began: float
    latencies: list[float] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


def add_arguments(parser: ArgumentParser) -> None:
    """What may stand behind `photocall bench`."""
    parser.add_argument("image", metavar="IMG", nargs="?", type=Path, help="a picture of yours; one is drawn otherwise")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="that count (%(default)g)")
    parser.add_argument("--warm-up", type=float, default=2.0, metavar="S", help="that do not, before (%(default)g)")
    parser.add_argument("--callers", type=at_least(1), default=8, metavar="N", help="calls at once (%(default)s)")
    parser.add_argument("--same", action="store_true", help="the same file each time: what the server remembers of it")
    add_questions(parser)
    add_json(parser, "the figures as a JSON object")
    add_server(parser)


def run_bench(options: Namespace) -> int:
    """0 when figures could be taken and nothing was refused; else 1."""
    picture = options.image.read_bytes() if options.image else drawn()
    asked = questions_of(options) if options.question or options.questions else QUESTIONS
    settings = client_settings(options)
    probe(settings)
    if not options.same and renamed(picture, 0) is None:
        warn(f"{PROGRAM} bench: only PNG and JPEG can be made new each time: this measures --same")
        options.same = True
    body = json.dumps({"state": state_of(options, 1), "questions": asked, "assets": {IMAGE: _part()}}).encode()
    with httpx.Client(
        **connection(settings.url, settings.api_key), limits=_limits(options), timeout=WAIT_S + 30
    ) as http:
        served = http.get("/readyz").json()
        tally, seconds, cpu_s = _measured(http, body, picture, options)
    found = figures(tally, seconds, cpu_s, options)
    found["server"] = [f"{engine['model']} on {engine['device']}" for engine in served.get("engines", ())]
    found["prep_workers"], found["picture_bytes"], found["questions"] = (
        served.get("prep_workers"),
        len(picture),
        len(asked),
    )
    _tell(found, options)
    return FAILED if tally.refused or not tally.latencies else 0


def figures(tally: Tally, seconds: float, cpu_s: float, options: Namespace) -> dict[str, Any]:
    """Rates and percentiles; None for one that so few calls say nothing about."""
    done = sorted(tally.latencies)
    return {
        "callers": options.callers,
        "new_file_each_call": not options.same,
        "seconds": round(seconds, 3),
        "answered": len(done),
        "refused": dict(tally.refused),
        "pictures_per_s": round(len(done) / seconds, 2),
        **{f"p{p}_ms": percentile(done, p) for p in LEAST},
        "bench_cores": round(cpu_s / seconds, 2),
    }


def percentile(done: list[float], percent: int) -> float | None:
    """The nearest rank of sorted seconds, in ms."""
    if len(done) < LEAST[percent]:
        return None
    return round(1000 * done[-(-len(done) * percent // 100) - 1], 1)


def _measured(http: httpx.Client, body: bytes, picture: bytes, options: Namespace) -> tuple[Tally, float, float]:
    """What was seen, in how many seconds, and the processor time that this program took for it."""
    tally = Tally(time.monotonic() + options.warm_up)
    ends = tally.began + options.seconds
    numbers = itertools.count(secrets.randbits(48))
    lock = threading.Lock()
    failures: list[Exception] = []

    def calling() -> None:
        while time.monotonic() < ends and not failures:
            shown = picture if options.same else renamed(picture, next(numbers)) or picture
            started = time.perf_counter()
            try:
                why = _call(http, body, shown)
            except httpx.TransportError as error:
                failures.append(error)
                return
            took, now = time.perf_counter() - started, time.monotonic()
            if tally.began <= now < ends:
                with lock:
                    if why is None:
                        tally.latencies.append(took)
                    else:
                        tally.refused[why] += 1
            if why is not None:
                time.sleep(PAUSE_S)

    threads = [threading.Thread(target=calling, daemon=True) for _ in range(options.callers)]
    for thread in threads:
        thread.start()
    cpu = time.process_time()
    with Progress() as progress:
        while (left := ends - time.monotonic()) > 0 and not failures:
            if time.monotonic() < tally.began:
                cpu = time.process_time()
            progress.show(f"{len(tally.latencies)} answered, {left:.0f} s left")
            time.sleep(min(0.2, left))
    cpu = time.process_time() - cpu
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return tally, options.seconds, cpu


def _call(http: httpx.Client, body: bytes, picture: bytes) -> str | None:
    """One question about one picture, asked and answered in one call; why not, where it was not."""
    parts = {
        "request": ("request", body, "application/json"),
        "picture": ("picture", picture, "application/octet-stream"),
    }
    answer = http.post("/v1/jobs", files=parts, headers={"prefer": f"wait={WAIT_S}"})
    found = answer.json() if answer.headers.get("content-type", "").partition(";")[0].endswith("json") else {}
    if answer.status_code == 200 and found.get("status") == "succeeded":
        return None
    error = found.get("error")
    return str(found.get("code") or (error or {}).get("code") or found.get("status") or answer.status_code)


def _part() -> dict[str, str]:
    return {"type": "image", "part": "picture"}


def _limits(options: Namespace) -> httpx.Limits:
    return httpx.Limits(max_connections=options.callers, max_keepalive_connections=options.callers)


def _tell(found: dict[str, Any], options: Namespace) -> None:
    if options.json:
        print_json(found)
    else:
        what = "new files" if found["new_file_each_call"] else "the same file"
        print(f"server   {', '.join(found['server']) or 'no engine'}, {found['prep_workers']} prep workers")
        print(f"asked    {found['questions']} questions of each picture ({found['picture_bytes']:,} bytes, {what})")
        print(f"callers  {found['callers']}, for {found['seconds']:g} s")
        print(f"rate     {found['pictures_per_s']:.2f} pictures/s ({found['answered']} answered)")
        shown = (f"p{p} {'-' if found[f'p{p}_ms'] is None else found[f'p{p}_ms']}" for p in LEAST)
        print(f"latency  {', '.join(shown)} ms" + (" (-: too few calls)" if found["p99_ms"] is None else ""))
        if found["refused"]:
            print("refused  " + ", ".join(f"{count} {why}" for why, count in found["refused"].items()))
    if found["bench_cores"] > BUSY:
        warn(f"{PROGRAM} bench: this program took {found['bench_cores']} of a core: run several, on another machine")
