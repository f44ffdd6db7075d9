"""The engine: take, schedule, run, publish. Read this first.

One process per device, one thread. Requests come from an `Intake`, outcomes go to an `Outlet`, rows go through a
`ModelRunner`; between two steps new requests join and cancelled ones leave. While the device runs a step, the outcomes
of the last one are published, new requests are composed, and the next step is planned and issued: nothing of that needs
what the step reads. What may fail here fails one request: a bad one when it is composed, a step's requests when the
runner raises (each is tried once more, alone). Only a lost device ends the process.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial

from photocall import failpoints
from photocall.errors import PhotocallError
from photocall.logs import about_job, fields
from photocall.recalibration import FittedFor
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
from photocall_engine.flight import Flight, collect, issue
from photocall_engine.held import HeldPrefixes
from photocall_engine.limits import Limits
from photocall_engine.pages import Pages
from photocall_engine.prefix_cache import PrefixCache
from photocall_engine.prompt import PROMPT_VERSION
from photocall_engine.provenance import Origin
from photocall_engine.readout import Floats, TextReader
from photocall_engine.runner import DeviceLost, ModelRunner
from photocall_engine.scheduler import Scheduler
from photocall_engine.sequence import Request
from photocall_engine.soft_cache import SoftCache
from photocall_engine.steps import Step
from photocall_engine.tally import Tally
from photocall_engine.tokenizer import ChatTokenizer
from photocall_engine.transcript import TurnEnd
from photocall_engine.window import BlockTable

__all__ = ["Answered", "Cancelled", "Engine", "EngineRequest", "HandedBack", "Intake", "Outcome", "Outlet", "Refused"]

log = logging.getLogger(__name__)

TAKEN_AT_ONCE = 8  # requests, between two looks at how much they fill
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
        made_by: Origin,
        clock: Callable[[], float],
        tally: Tally,
    ) -> None:
        self._intake = intake
        self._outlet = outlet
        self.scheduler = scheduler
        self.composer = composer
        self._runner = runner
        self.held = held
        self._made_by = made_by
        self._clock = clock
        self.tally = tally
        self.steps = 0  # forwards begun, and their rows
        self.rows = 0
        self._by_id: dict[str, Request] = {}
        self._ahead: Flight | None = None  # issued, and not collected
        self._untold: list[Callable[[], None]] = []  # events and outcomes of the last step, in order

    def run(self, stop: Callable[[], bool], drain_s: float = 0.0) -> None:
        """Serve until `stop()`; then finish what was taken within `drain_s`, and hand back the rest."""
        while not stop():
            self.step()
        end = self._clock() + drain_s
        while self._by_id and self._clock() < end:
            self.step(take=False)
        self.hand_back("the engine is shutting down")

    def step(self, take: bool = True) -> bool:
        """One round: take, schedule, run, publish. False if there was nothing to run.

        Collects one step. Where the device works by itself, the next one is on its way by then.
        """
        flight = self._ahead or self._launch(take, None)
        if flight is None:
            self.tell()
            return False
        self._ahead = None
        self.tell()  # what the last round has left
        if self._runner.overlaps and flight.error is None:
            self._ahead = self._launch(take, flight)
        self._settle(flight)
        if self._ahead or not (self._by_id and self._runner.overlaps):
            self.tell()
        return True  # else there is a next step to hide it behind

    def _launch(self, take: bool, behind: Flight | None) -> Flight | None:
        """Take, schedule, and issue the next step, behind the one that runs. None: there is nothing to run now."""
        if take:
            self._take(0.0 if self._by_id or behind else IDLE_WAIT_S)
        if behind is not None and not self.scheduler.worth_ahead(behind.step):
            return None
        self._drop_cancelled()
        self._drop_expired()
        self._let_go()
        step = self.scheduler.plan(self._clock())
        if step is None:
            return None
        self.steps += 1
        self.rows += step.batch.num_rows
        self.tally.began(step)
        failpoints.reach("engine.step")
        if step.batch.decode:
            failpoints.reach("engine.decode")
        flight = issue(self._runner, step)
        self.scheduler.advance(step)
        return flight

    def _settle(self, flight: Flight) -> None:
        """Wait for a step and account for it, or for its failure. Raises DeviceLost."""
        try:
            values = collect(self._runner, flight)
        except Exception as error:
            self.tell()
            self._fail(flight.step, error)
        else:
            self.tally.ended(time.perf_counter() - flight.issued_at)
            self._account(flight.step, values)

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
        while self._ahead is not None:
            flight, self._ahead = self._ahead, None
            self._settle(flight)
        for request in self.scheduler.requests():
            self._finish(request, HandedBack(reason))
        self.tell()

    def _take(self, wait_s: float) -> None:
        """Compose new requests, as many as there is room for, a few at a time until they fill two steps: while the
        device waits for its first step, nothing is composed that it cannot begin with."""
        limits = self.scheduler.limits
        rows = 0
        while rows < 2 * limits.token_budget and (room := 2 * limits.max_requests - len(self._by_id)) > 0:
            asked = min(room, TAKEN_AT_ONCE)
            taken = self._intake.take(asked, wait_s)
            rows += sum([self._compose(origin) for origin in taken])
            wait_s = 0.0
            if len(taken) < asked:
                return

    def _compose(self, origin: EngineRequest) -> int:
        """A new request joins; a bad one is refused here and hurts nobody. Its rows, were none of them cached."""
        try:
            with about_job(origin.job_id):
                request = self.composer.compose(origin)
        except PhotocallError as error:
            self._outlet.publish(origin, Refused(error.code, error.message, error.data))
        except Exception:
            log.exception("a request cannot be composed", extra=fields(job=origin.job_id))
            self._outlet.publish(origin, Refused("internal", "the request could not be prepared"))
        else:
            self._join(request)
            return request.input_tokens
        return 0

    def _join(self, request: Request) -> None:
        """It takes part from the next step on."""
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
        """A step raised: its requests are tried again one by one, with those of the step behind it, and who fails
        alone is refused. Raises DeviceLost."""
        if isinstance(error, DeviceLost):
            raise error
        self.tally.failed_steps += 1
        jobs = ",".join(request.job_id for request in step.requests)
        log.error("a step of %d rows failed: %s", step.batch.num_rows, error, exc_info=error, extra=fields(jobs=jobs))
        behind, self._ahead = self._ahead, None
        for request in self.scheduler.abandon(step, behind.step if behind else None):
            reason = f"the model failed on this request: {type(error).__name__}"
            self._finish(request, Refused("internal", reason, notices=self.held.give_up(request, reason)))

    def _account(self, step: Step, values: Iterable[Floats]) -> None:
        """What was read reaches its readers, and who is done leaves; what is to be said about it is said later."""
        served = [request for request in step.requests if not request.left]
        self.held.saw(step)
        done = self.scheduler.account(step, values, self._clock())
        self._untold.append(partial(self._tell_news, served))
        for request in done:
            if request.error is not None:
                log.error("an answer cannot be read", exc_info=request.error, extra=fields(job=request.job_id))
                reason = f"an answer cannot be read: {type(request.error).__name__}"
                self._finish(request, Refused("internal", reason))
            else:
                turn = self.held.end(request, self._clock())
                self._forget(request)
                self._untold.append(partial(self._answer, request, self._timings(request), turn))

    def _answer(self, request: Request, timings: dict[str, float], turn: TurnEnd | None) -> None:
        body = request.body(self._made_by.model) | ({"session": turn.report} if turn else {})
        if request.origin.ask.provenance:
            body["provenance"] = self._made_by.of(request, body["answers"])
        self._outlet.publish(request.origin, Answered(body, timings, turn))

    def _tell_news(self, requests: list[Request]) -> None:
        """Events of one step: text as it grows, and how many questions have their answer."""
        for request in requests:
            for branch in request.branches:
                if isinstance(branch.reader, TextReader) and (news := branch.reader.news()) is not None:
                    offset, text = news
                    data = {"question": branch.question.name, "offset": offset, "text": text}
                    self._outlet.event(request.origin, "stream", data)
            answered = request.num_answered
            if answered > request.told:
                request.told = answered
                counts = {"answered": answered, "questions": len(request.inquiries)}
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
    tally: Tally | None = None,
    model_sha256: str = "",
) -> Engine:
    """An engine over a runner, with pools, caches and limits of its sizes. `model` stands in answers and in hashes,
    `model_sha256` in the provenance of those who ask for it."""
    limits = Limits.of(runner, token_budget, max_requests, max_encoded)
    runner.may_say(tokenizer.sayable())
    pages = Pages(runner.num_pages, runner.sliding_pages)
    pages.resend_map()  # whoever used the runner before has left another one
    cache = PrefixCache(pages, limits.window, max_window=runner.sliding_pages // 2)
    root = hashlib.blake2b(repr((model, PROMPT_VERSION, limits.bidirectional, numerics)).encode(), digest_size=16)
    identity = FittedFor(model_sha256, PROMPT_VERSION)
    composer = Composer(
        tokenizer, calibration, limits, root.digest(), lambda: BlockTable(pages, limits.window), identity
    )
    scheduler = Scheduler(limits, pages, cache, SoftCache(runner.soft_capacity))
    held = HeldPrefixes(cache, runner.page_bytes, runner.sliding_page_bytes, runner.backend, limits.max_tokens)
    made_by = Origin(model, model_sha256, runner.arithmetic)
    return Engine(intake, outlet, scheduler, composer, runner, held, made_by, clock, tally or Tally())
