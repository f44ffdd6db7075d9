"""`photocall batch run|ls|get|cancel|retry-failed`: many rows at once."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from photocall.cli import batch_run
from photocall.cli.errors import FAILED
from photocall.cli.inspect import at_least
from photocall.cli.output import Progress, add_json, moment, print_json, print_table
from photocall.cli.server import Server, add_server, connected
from photocall.client import Batch

HEADS = ("ID", "STATUS", "CREATED", "ROWS", "ANSWERED", "FAILED", "INPUT")


def add_arguments(parser: ArgumentParser) -> None:
    """What may stand behind `photocall batch`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    run = actions.add_parser("run", help="ask every row, and write the answers; the same command again goes on")
    batch_run.add_arguments(run)
    listing = actions.add_parser("ls", help="list your batches, newest first")
    listing.add_argument("--limit", type=at_least(1), default=20, metavar="N", help="at most (%(default)s)")
    listing.add_argument("--key", metavar="ID", help="those of another key; for a key with the scope admin")
    get = actions.add_parser("get", help="print a batch, or its rows")
    get.add_argument("id", metavar="ID", help="of a batch")
    get.add_argument("--wait", action="store_true", help="until it has ended")
    rows = get.add_mutually_exclusive_group()
    rows.add_argument("--results", action="store_true", help="print the rows that are answered, as JSON lines")
    rows.add_argument("--failures", action="store_true", help="print the rows that have failed, as JSON lines")
    cancel = actions.add_parser("cancel", help="end batches early; what is answered stays")
    cancel.add_argument("ids", metavar="ID", nargs="+", help="of a batch")
    retry = actions.add_parser("retry-failed", help="begin another batch, of the rows that one did not answer")
    retry.add_argument("id", metavar="ID", help="of a batch that has ended")
    for action in (listing, get, cancel, retry):
        add_json(action)
        add_server(action)


def run_batch(options: Namespace) -> int:
    """0 when done; 1 when the batch that was run or waited for has rows without an answer."""
    if options.action == "run":
        return batch_run.run(options)
    with connected(options) as server:
        if options.action == "get":
            return _get(server, options)
        if options.action == "ls":
            found = list(server.newest("/v1/batches", options.limit, key=options.key))
        elif options.action == "cancel":
            found = [dict(server.batches.cancel(batch_id).fields) for batch_id in options.ids]
        else:
            found = [dict(server.batches.retry_failed(options.id).fields)]
    _print(found, options.json)
    return 0


def _get(server: Server, options: Namespace) -> int:
    with Progress() as progress:
        batch = server.batches.get(options.id)
        if options.results or options.failures:
            for row in server.batches.results(options.id, failed=options.failures, follow=options.wait):
                print_json(row.line)
            return _status(server.batches.get(options.id)) if options.wait else 0
        if options.wait and not batch.ended:
            progress.show(f"waiting for {batch.id}")
            batch = server.batches.wait(options.id)
    _print([dict(batch.fields)], options.json)
    if not options.json:
        for error in (batch.fields.get("errors") or {}).get("data", ()):
            print(f"{error['code']}: {error['message']}" + (f" (line {error['line']})" if error.get("line") else ""))
    sys.stdout.flush()
    return _status(batch) if options.wait else 0


def _status(batch: Batch) -> int:
    return 0 if batch.status == "completed" and not batch.counts["failed"] else FAILED


def _print(batches: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for batch in batches:
            print_json(batch)
        return
    print_table(HEADS, (_row(batch) for batch in batches))


def _row(batch: dict[str, Any]) -> tuple[Any, ...]:
    counts, paused = batch["request_counts"], batch.get("paused")
    status = batch["status"] + (f" (paused: {paused})" if paused else "")
    made = batch.get("folder") or batch.get("input_file_id")
    created = moment(batch["created_at"])
    return batch["id"], status, created, counts["total"], counts["completed"], counts["failed"], made
