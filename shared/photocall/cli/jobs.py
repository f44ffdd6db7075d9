"""`photocall jobs ls|get|watch|cancel`: what was asked, what becomes of it, and its end before the end."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from typing import Any
from urllib.parse import quote

from photocall.cli.errors import FAILED
from photocall.cli.inspect import at_least
from photocall.cli.output import Progress, add_json, moment, print_json, print_table
from photocall.cli.server import PAGE, Server, add_server, connected
from photocall.jobs import JobStatus

POLL_S = 20  # one long poll; proxies cut longer ones
GLANCE_S = 0.3  # between two looks at several jobs
UNFINISHED = ("queued", "preparing", "running", "cancelling")
HEADS = ("ID", "STATUS", "CREATED", "PRIORITY", "QUEUE", "WHAT BECAME OF IT")


def add_arguments(parser: ArgumentParser) -> None:
    """What may stand behind `photocall jobs`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("ls", help="list your jobs, newest first")
    listing.add_argument("--status", choices=[status.value for status in JobStatus], help="only those")
    listing.add_argument("--limit", type=at_least(1), default=20, metavar="N", help="at most (%(default)s)")
    listing.add_argument("--key", metavar="ID", help="those of another key; for a key with the scope admin")
    get = actions.add_parser("get", help="print jobs, whole, as JSON")
    watch = actions.add_parser("watch", help="follow jobs to their end; without ID, those that are unfinished now")
    cancel = actions.add_parser("cancel", help="end jobs early")
    for action, many in ((get, "+"), (watch, "*"), (cancel, "+")):
        action.add_argument("ids", metavar="ID", nargs=many, help="of a job")
    for action in (listing, get, watch, cancel):
        add_json(action)
        add_server(action)


def run_jobs(options: Namespace) -> int:
    """0 when done; `watch`: 1 when a job ended without answers."""
    with connected(options) as server:
        if options.action == "watch":
            return _watch(server, options)
        if options.action == "ls":
            found = list(server.newest("/v1/jobs", options.limit, status=options.status, key=options.key))
        elif options.action == "get":
            found = [server.call("GET", path(job_id)).body for job_id in options.ids]
        else:
            found = [server.call("POST", f"{path(job_id)}/cancel").body for job_id in options.ids]
    if options.json or options.action == "get":
        for job in found:
            print_json(job)
    else:
        print_table(HEADS, (row(job) for job in found))
    return 0


def path(job_id: str) -> str:
    """Of a job; an id that is none stays one word of it."""
    return f"/v1/jobs/{quote(job_id, safe='')}"


def row(job: dict[str, Any]) -> tuple[Any, ...]:
    """A job as a line of a table."""
    queue = job.get("queue") or {}
    place = f"{queue['position']}" if queue.get("position") is not None else ""
    return job["id"], job["status"], moment(job["created_at"]), job["priority"], place, outcome(job)


def outcome(job: dict[str, Any]) -> str:
    """How it ended, or how far it is."""
    if job.get("error"):
        return f"{job['error'].get('code', '')}: {job['error'].get('message', '')}"
    if job.get("result"):
        return f"{len(job['result'].get('answers', ()))} answered"
    return f"attempt {job['attempts']}" if (job.get("attempts") or 0) > 1 else ""


def _watch(server: Server, options: Namespace) -> int:
    ids = list(dict.fromkeys(options.ids)) or [
        job["id"] for status in UNFINISHED for job in server.newest("/v1/jobs", PAGE, status=status)
    ]
    seen: dict[str, str] = {}
    tags: dict[str, str] = {}
    ended_badly = False
    with Progress() as progress:
        while ids:
            for job_id in list(ids):
                headers = {"if-none-match": tags[job_id]} if job_id in tags else {}
                headers |= {"prefer": f"wait={POLL_S}"} if len(ids) == 1 and job_id in tags else {}
                reply = server.call("GET", path(job_id), headers=headers, read_s=30.0 + POLL_S)
                if reply.status == 304:
                    continue
                job = reply.body
                tags[job_id] = reply.headers.get("etag", "")
                if seen.get(job_id) != job["status"]:
                    seen[job_id] = job["status"]
                    progress.clear()
                    _tell(job, options.json)
                if job["status"] not in UNFINISHED:
                    ids.remove(job_id)
                    ended_badly = ended_badly or job["status"] != "succeeded"
            progress.show(f"{len(ids)} unfinished")
            if len(ids) > 1:
                time.sleep(GLANCE_S)
    return FAILED if ended_badly else 0


def _tell(job: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(job)
    else:
        print(f"{moment(time.time())}  {job['id']}  {job['status']}  {outcome(job)}".rstrip(), flush=True)
