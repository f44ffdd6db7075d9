"""`photocall batch run`: one batch from its rows to a file of answers, whatever is interrupted on the way.

The rows are the server's as soon as the batch has begun. What is kept here is how far the answers are written
(run_state.py), so the same command goes on where it was; after an end it asks again what was not answered.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from photocall.cli.asked import add_questions, questions_of, state_of
from photocall.cli.batch_rows import given_again, is_lines, rows_of, spool_file, spooled
from photocall.cli.errors import FAILED, Unable
from photocall.cli.follower import Detached, Follower, Interrupts
from photocall.cli.output import Progress, add_json, print_json
from photocall.cli.parser import PROGRAM, warn
from photocall.cli.run_state import RunState, failures_file, fingerprint, state_file
from photocall.cli.server import Server, add_server, connected
from photocall.client import Batch, RequestRefused

ENDPOINTS = ("/v1/systemone", "/v1/decisions", "/v1/jobs")
STDIN = "-"


def add_arguments(parser: ArgumentParser) -> None:
    """What may stand behind `photocall batch run`."""
    rows = "a JSONL file, `-` for one on standard input, or a folder, zip or tar of pictures"
    parser.add_argument("-i", "--input", required=True, metavar="ROWS", help=rows)
    answers = "where the answers go; rows without one go to OUT.errors.jsonl"
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="OUT.jsonl", help=answers)
    parser.add_argument("--endpoint", choices=ENDPOINTS, default=ENDPOINTS[0], help="that rows of a JSONL file are for")
    parser.add_argument("--window", metavar="T", help="90m, 24h, 7d: what is not answered by then is not asked")
    add_questions(parser)
    add_json(parser, "the summary as a JSON object")
    add_server(parser)


def run(options: Namespace) -> int:
    """0 when every row is answered; 1 when one is not, and when the batch was cancelled or left running."""
    given = options.question or options.questions or options.state
    request = {"state": state_of(options, 1), "questions": questions_of(options)} if given else None
    source = None if options.input == STDIN else Path(options.input)
    asked = {"request": request, "endpoint": options.endpoint, "input": options.input}
    state = _state(options.output, fingerprint(source, asked), piped=source is None)
    if state.unanswered == 0:
        return _summary(options, state, "everything is answered already")
    if state.unanswered is not None:
        warn(f"{PROGRAM} batch run: asking the {state.unanswered} rows again that were not answered")
        state = state.again()
    with connected(options) as server, Progress() as progress:
        if state.batch_id is None:
            batch = _begin(server, state, source, request, options)
            state = replace(state, batch_id=batch.id)
            state.write(state_file(options.output))
        if source is None:
            spool_file(options.output).unlink(missing_ok=True)  # only now: until its id is kept, it may be needed again
        assert state.batch_id is not None
        interrupts = Interrupts(state.batch_id)
        try:
            with interrupts:
                follower = Follower(server, state, options.output, progress)
                batch = follower.to_the_end(interrupts)
        except Detached:
            progress.clear()
            batch_id, what = state.batch_id, "is being cancelled" if interrupts.cancelled else "runs on"
            later = f"`{PROGRAM} batch get {batch_id} --wait --results` prints its answers"
            warn(
                f"{PROGRAM} batch run: {batch_id} {what}: {later}, and the same command as now writes the rest of them"
            )
            return FAILED
        except RequestRefused as refused:
            if refused.code != "unknown_batch":
                raise
            forgotten = f"the server does not know {state.batch_id} any more"
            raise Unable(f"{forgotten}: remove {state_file(options.output)} and the output to begin anew") from None
    return _ended(options, follower.state, batch)


def _state(output: Path, wanted: str, *, piped: bool) -> RunState:
    """Of the run that goes on, or of a new one. Rows that are `piped` in are read here. Raises Unable and OSError."""
    file = state_file(output)
    state = RunState.read(file)
    if state is None:
        if output.exists() and output.stat().st_size:
            raise Unable(f"{output} is there already, and no run's that could go on: name another with -o")
        return RunState.begin(wanted, spooled(output) if piped else None)
    rows = given_again() if piped else None  # none: it goes on with those that it has
    if state.fingerprint != wanted or (rows is not None and rows != state.rows):
        raise Unable(f"{output} is of other rows or questions: name another with -o, or remove it and {file}")
    if state.lost:
        raise Unable(f"whether this run has begun is not known any more: see `{PROGRAM} batch ls`, and remove {file}")
    return state


def _begin(
    server: Server, state: RunState, source: Path | None, request: Mapping[str, Any] | None, options: Namespace
) -> Batch:
    """The batch of this state's key: begun now, or when this was tried before. Raises Unable and OSError."""
    if state.retry_of is not None:
        state.write(state_file(options.output))
        return server.batches.retry_failed(state.retry_of, idempotency_key=state.key)
    rows = spool_file(options.output) if source is None else source
    tried_before = state_file(options.output).exists()  # and nobody knows what came of it
    try:
        lines = is_lines(rows)
        if request is None and not lines:
            raise Unable("pictures need a question: ask one with -q 'Is it damaged?'")
        state.write(state_file(options.output))
        how = {"completion_window": options.window, "idempotency_key": state.key}
        template = None if lines else request
        return server.batches.create(rows_of(rows, request), template, endpoint=options.endpoint, **how)
    except (Unable, ValueError, RequestRefused) as error:
        if _nothing_begun(error) and not tried_before:  # what is corrected is a run of its own
            state_file(options.output).unlink(missing_ok=True)
            if source is None:
                rows.unlink(missing_ok=True)
        if isinstance(error, ValueError):
            raise Unable(str(error)) from None
        raise


def _nothing_begun(error: Exception) -> bool:
    """Not so where the server is silent, fails, or already knows the key."""
    if not isinstance(error, RequestRefused):
        return True
    status = error.status
    return not error.repeated and (status == 507 or (400 <= status < 500 and status not in (408, 409)))


def _ended(options: Namespace, state: RunState, batch: Batch) -> int:
    """Say how it ended. Raises Unable for rows that cannot be run at all."""
    errors = (batch.fields.get("errors") or {}).get("data") or []
    if batch.status == "failed" and not state.failures.lines and not state.answers.lines:
        state_file(options.output).unlink()
        first = errors[0] if errors else {"message": "no reason given"}
        where = f"line {first['line']}: " if first.get("line") else ""
        more = f" (and {len(errors) - 1} more: `{PROGRAM} batch get {batch.id}`)" if len(errors) > 1 else ""
        raise Unable(f"{options.input} cannot be run: {where}{first['message'].rstrip('.')}{more}: correct it")
    return _summary(options, state, batch.status)


def _summary(options: Namespace, state: RunState, status: str) -> int:
    unanswered = state.unanswered or 0
    failures = failures_file(options.output) if state.failures.lines else None
    if options.json:
        found = {"batch": state.batch_id, "status": status, "unanswered": unanswered, "output": str(options.output)}
        print_json({**found, "failures": None if failures is None else str(failures)})
    else:
        rest = f"{unanswered:,} not ({failures}); the same command asks these again" if unanswered else "none left"
        print(f"{options.output}: {status}; {state.answers.lines:,} rows answered now, {rest}")
    return FAILED if unanswered else 0
