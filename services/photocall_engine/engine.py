"""The engine: take, schedule, run, publish. Read this first.

One process per device, one thread. Requests come from an `Intake`, outcomes go to an `Outlet`, rows go through a
`ModelRunner`; between two steps new requests join and cancelled ones leave. While the device runs a step, the outcomes
of the last one are published and new requests are composed: that is all that needs nothing of the step. What may fail
here fails one request: a bad one when it is composed, a step's requests when the runner raises (each is tried once
more, alone). Only a lost device ends the process.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from photocall import failpoints
from photocall.errors import PhotocallError
from photocall_engine.calibration import Calibration
from photocall_engine.composer import Composer
from photocall_engine.edges import (
    Answered,
    Cancelled,
    EngineRequest,
    HandedBack,
    Intake,
    Outcome,
    Outlet,
    Refused,
)
from photocall_engine.held import HeldPrefixes
from photocall_engine.limits import Limits
from photocall_engine.pages import Pages
from photocall_engine.prefix_cache import PrefixCache
from photocall_engine.prompt import PROMPT_VERSION
from photocall_engine.readout import Floats, Greedy, Letters, Logits, TextReader
from photocall_engine.rows import ints
from photocall_engine.runner import DeviceLost, ModelRunner
from photocall_engine.scheduler import Scheduler
from photocall_engine.sequence import Request, Sequence
from photocall_engine.soft_cache import SoftCache
from photocall_engine.steps import Step
from photocall_engine.tokenizer import ChatTokenizer
from photocall_engine.transcript import TurnEnd
from photocall_engine.window import BlockTable

__all__ = ["Answered", "Cancelled", "Engine", "EngineRequest", "HandedBack", "Intake", "Outcome", "Outlet", "Refused"]

log = logging.getLogger(__name__)

IDLE_WAIT_S = 0.2  # longest wait for a first request before cancellations and `stop` are looked at again


class Engine:
    """The loop over one runner."""

    def __init__(
        self,
        intake: Intake,
        outlet: Outlet,
        scheduler: Scheduler,
        composer: Composer,
        runner: ModelRunner,
        held: HeldPrefixes,
        model: str,
        clock: Callable[[], float],
    ) -> None:
        self._intake = intake
        self._outlet = outlet
        self.scheduler = scheduler
        self.composer = composer
        self._runner = runner
        self.held = held
        self._model = model
        self._clock = clock
        self.steps = 0  # forwards begun, and their rows
        self.rows = 0
        self._by_id: dict[str, Request] = {}
        self._composed: list[Request] = []  # taken while a step ran; they join before the next
        self._untold: list[Callable[[], None]] = []  # events and outcomes of the last step, in order

    def run(self, stop: Callable[[], bool], drain_s: float = 0.0) -> None:
        """Serve until `stop()`; then finish what was taken within `drain_s`, and hand back the rest."""
        while not stop():
            self.step()
        end = self._clock() + drain_s
        while (self._by_id or self._composed) and self._clock() < end:
            self.step(take=False)
        self.hand_back("the engine is shutting down")

    def step(self, take: bool = True) -> bool:
        """One round: take, schedule, run, publish. False if there was nothing to run."""
        if take and not self._composed:
            self._take(0.0 if self._by_id else IDLE_WAIT_S)
        self._join()
        self._drop_cancelled()
        self._drop_expired()
        self._let_go()
        step = self.scheduler.plan(self._clock())
        if step is None:
            self.tell()
            return False
        self.steps += 1
        self.rows += step.batch.num_rows
        failpoints.reach("engine.step")
        if step.batch.decode:
            failpoints.reach("engine.decode")
        values = self._run(step, take)
        if values is not None:
            self._account(step, values)
        if not (self._by_id and self._runner.overlaps):  # no next step to hide it behind
            self.tell()
        return True

    def _run(self, step: Step, take: bool) -> Mapping[Sequence, Floats] | None:
        """Issue a step, do what needs nothing of it, wait for it. None: it failed, and that is dealt with."""
        try:
            issue(self._runner, step)
        except Exception as error:
            self.tell()
            self._fail(step, error)
            return None
        self.tell()
        if take:
            self._take(0.0)
        try:
            return collect(self._runner, step)
        except Exception as error:
            self._fail(step, error)
            return None

    def tell(self) -> None:
        """Publish what the last step brought, if that has not been done."""
        untold, self._untold = self._untold, []
        for tell in untold:
            tell()

    def check(self) -> None:
        """Every invariant of pages, cache and arena; raises where one is broken. Between steps, and when idle."""
        self.scheduler.check()

    def hand_back(self, reason: str) -> None:
        """Give every unfinished request back to the queue."""
        self._join()
        for request in self.scheduler.requests():
            self._finish(request, HandedBack(reason))
        self.tell()

    def _take(self, wait_s: float) -> None:
        """Compose new requests, as many as there is room for; a bad one is refused here and hurts nobody."""
        limit = max(0, 2 * self.scheduler.limits.max_requests - len(self._by_id) - len(self._composed))
        if not limit:
            return
        for origin in self._intake.take(limit, wait_s):
            try:
                self._composed.append(self.composer.compose(origin))
            except PhotocallError as error:
                self._outlet.publish(origin, Refused(error.code, error.message, error.data))
            except Exception:
                log.exception("job %s cannot be composed", origin.job_id)
                self._outlet.publish(origin, Refused("internal", "the request could not be prepared"))

    def _join(self) -> None:
        """Between two steps: what was composed meanwhile takes part from now on."""
        composed, self._composed = self._composed, []
        for request in composed:
            if request.job_id in self._by_id:  # its lease was lost and taken anew: only the new ticket counts
                self._forget(self._by_id[request.job_id])
            self._by_id[request.job_id] = request
            self.held.begin(request)
            self.scheduler.submit(request)

    def _drop_cancelled(self) -> None:
        if self._by_id:
            for job_id in self._intake.cancelled(self._by_id.keys()):
                self._finish(self._by_id[job_id], Cancelled())

    def _drop_expired(self) -> None:
        now = self._clock()
        for request in self.scheduler.requests():
            if request.origin.deadline_at <= now:
                self._finish(request, Refused("deadline_exceeded", "the deadline passed before the answer"))

    def _let_go(self) -> None:
        """Whoever looks at a session sees at once when nothing is held for it any more."""
        for session_id in self.held.lapsed(self._clock()):
            self._outlet.released(session_id)

    def _fail(self, step: Step, error: Exception) -> None:
        """A step raised: its requests are tried again one by one, and who fails alone is refused. Raises DeviceLost."""
        if isinstance(error, DeviceLost):
            raise error
        log.error("a step of %d rows failed: %s", step.batch.num_rows, error, exc_info=error)
        for request in self.scheduler.abandon(step):
            reason = f"the model failed on this request: {type(error).__name__}"
            self._finish(request, Refused("internal", reason, notices=self.held.give_up(request, reason)))

    def _account(self, step: Step, values: Mapping[Sequence, Floats]) -> None:
        """What was read reaches its readers, and who is done leaves; what is to be said about it is said later."""
        answered = {request: request.num_answered for request in step.requests}
        self.held.saw(step)
        done = self.scheduler.account(step, values, self._clock())
        for request, before in answered.items():
            self._untold.append(partial(self._tell, request, before))
        for request in done:
            if request.error is not None:
                log.error("job %s: an answer cannot be read", request.job_id, exc_info=request.error)
                reason = f"an answer cannot be read: {type(request.error).__name__}"
                self._finish(request, Refused("internal", reason))
            else:
                turn = self.held.end(request, self._clock())
                self._forget(request)
                self._untold.append(partial(self._answer, request, self._timings(request), turn))

    def _answer(self, request: Request, timings: dict[str, float], turn: TurnEnd | None) -> None:
        body = request.body(self._model) | ({"session": turn.report} if turn else {})
        self._outlet.publish(request.origin, Answered(body, timings, turn))

    def _tell(self, request: Request, answered_before: int) -> None:
        """Events of one step: text as it grows, and how many questions have their answer."""
        for branch in request.branches:
            if isinstance(branch.reader, TextReader) and (news := branch.reader.news()) is not None:
                offset, text = news
                data = {"question": branch.question.name, "offset": offset, "text": text}
                self._outlet.event(request.origin, "stream", data)
        if request.num_answered > answered_before:
            counts = {"answered": request.num_answered, "questions": len(request.branches)}
            self._outlet.event(request.origin, "progress", counts)

    def _finish(self, request: Request, outcome: Outcome) -> None:
        """It leaves now; its outcome follows what is still to be said about it."""
        self._forget(request)
        self._untold.append(partial(self._outlet.publish, request.origin, outcome))

    def _forget(self, request: Request) -> None:
        self.scheduler.drop(request)
        self.held.give_up(request)
        del self._by_id[request.job_id]

    def _timings(self, request: Request) -> dict[str, float]:
        times = request.times
        assert times.admitted is not None, "who is done was admitted"
        assert times.prefilled is not None, "who is done was prefilled"
        return {
            "queue": max(0.0, times.admitted - request.origin.arrived_at),
            "prefill": times.prefilled - times.admitted,
            "readout": self._clock() - times.prefilled,
        }


class BadLogits(RuntimeError):
    """The model said something that is no number."""


def issue(runner: ModelRunner, step: Step) -> None:
    """Everything of a step up to its forward. A device works on while the caller does."""
    runner.set_sliding_map(*step.map_changes)
    if step.encode:
        runner.encode_images([image for _, image, _ in step.encode], [base for _, _, base in step.encode])
    if len(step.copy_from):
        runner.copy_pages(step.copy_from, step.copy_to)
    runner.forward(step.batch)


def collect(runner: ModelRunner, step: Step) -> dict[Sequence, Floats]:
    """Wait for an issued step; what each of its readers asked for, by sequence."""
    values = _read(runner, step)
    if not all(np.isfinite(logits).all() for logits in values.values()):
        raise BadLogits("logits that are not finite")
    return values


def _read(runner: ModelRunner, step: Step) -> dict[Sequence, Floats]:
    """One call for all letters, of the labels that anybody asked for, one for all next tokens, one for whole rows."""
    letters = {row: part.reads.ids for row, part in enumerate(step.readers) if isinstance(part.reads, Letters)}
    values: dict[Sequence, Floats] = {}
    if letters:
        labels = sorted({label for ids in letters.values() for label in ids})
        column = {label: i for i, label in enumerate(labels)}
        logits = runner.letter_logits(ints(letters), ints(labels))
        for (row, ids), of_row in zip(letters.items(), logits, strict=True):
            values[step.readers[row].sequence] = of_row[[column[label] for label in ids]]
    said = [row for row, part in enumerate(step.readers) if isinstance(part.reads, Greedy)]
    if said:
        tokens, logprobs = runner.greedy_rows(ints(said))
        for row, pair in zip(said, np.stack((tokens, logprobs), axis=1).astype(np.float32), strict=True):
            values[step.readers[row].sequence] = pair
    whole = [row for row, part in enumerate(step.readers) if isinstance(part.reads, Logits)]
    if whole:
        for row, of_row in zip(whole, runner.logits_rows(ints(whole)), strict=True):
            values[step.readers[row].sequence] = of_row
    return values


def build_engine(
    intake: Intake,
    outlet: Outlet,
    runner: ModelRunner,
    tokenizer: ChatTokenizer,
    calibration: Calibration,
    model: str,
    clock: Callable[[], float],
    *,
    token_budget: int,
    max_requests: int,
    max_encoded: int | None = None,
    numerics: str = "invariant",
) -> Engine:
    """An engine over a runner, with pools, caches and limits of its sizes. `model` stands in answers and in hashes."""
    limits = Limits.of(runner, token_budget, max_requests, max_encoded)
    runner.may_say(tokenizer.sayable())
    pages = Pages(runner.num_pages, runner.sliding_pages)
    pages.resend_map()  # whoever used the runner before has left another one
    cache = PrefixCache(pages, limits.window, max_window=runner.sliding_pages // 2)
    root = hashlib.blake2b(repr((model, PROMPT_VERSION, limits.bidirectional, numerics)).encode(), digest_size=16)
    composer = Composer(tokenizer, calibration, limits, root.digest(), lambda: BlockTable(pages, limits.window))
    scheduler = Scheduler(limits, pages, cache, SoftCache(runner.soft_capacity))
    held = HeldPrefixes(cache, runner.page_bytes, runner.sliding_page_bytes, runner.backend, limits.max_tokens)
    return Engine(intake, outlet, scheduler, composer, runner, held, model, clock)
