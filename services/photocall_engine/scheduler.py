"""Scheduler: who runs in the next step. Four beats: admit, plan, advance, account.

Charter. Policy only: no tensors, no model, no queue, no clock of its own. Nothing is added here that the answer to "who
runs next, on which pages" does not need; what rows look like is `steps.py`, what a step has done is `progress.py`, what
answers mean is `readout.py`.

Whose turn it is to enter, `waiting.py` says, and whether there is room, `room.py`. Once admitted, a request keeps its
seniority, and pages are taken from the youngest for the oldest: the oldest can always run (`Limits` refuses what could
not run alone), so there is no deadlock. A request that loses its pages keeps what it has decoded and computes its rows
again. One that could fill whole steps alone leaves a share of each to those behind it.

`advance` follows when a step was issued, `account` when its values are there, and one more step may be planned between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter

from photocall_engine.limits import Limits
from photocall_engine.pages import Pages
from photocall_engine.prefix_cache import PrefixCache
from photocall_engine.progress import Progress
from photocall_engine.readout import Floats
from photocall_engine.room import Room
from photocall_engine.rows import PAGE_SIZE
from photocall_engine.sequence import Branch, Request, Sequence
from photocall_engine.soft_cache import SoftCache
from photocall_engine.steps import Draft, Part, Step
from photocall_engine.waiting import WaitingLine
from photocall_engine.wants import has_more, rows_wanted, smallest_piece

_RANK = attrgetter("rank")
SHARE = 4  # of a step, one part in so many goes to those behind a request that could fill it alone


class Scheduler:
    """Requests waiting and running, and the pages they run on."""

    def __init__(self, limits: Limits, pages: Pages, cache: PrefixCache, soft: SoftCache) -> None:
        self.limits = limits
        self.pages = pages
        self.cache = cache
        self.soft = soft
        self._room = Room(limits, pages, cache)
        self.waiting = WaitingLine()
        self._progress = Progress(limits, cache, soft, self.waiting)
        self.running: dict[Request, None] = {}  # in the order of admission
        self._suspects: list[Request] = []  # took part in a step that failed: each runs alone, once
        self._admissions = 0
        self._planned = 0  # steps
        self.preemptions = 0  # so far
        self._breaths = limits.breaths  # steps planned since one with the tower

    def submit(self, request: Request) -> None:
        """A composed request joins those that wait."""
        self.waiting.join(request, self.running)

    def drop(self, request: Request) -> None:
        """It leaves now, whatever it was doing: cancelled, expired, failed or done. Its rows in a step that was issued
        still run, on pages that others may have only behind it."""
        request.left = True
        self._free(request, None)
        self.waiting.leave(request)
        self.running.pop(request, None)
        if request in self._suspects:
            self._suspects.remove(request)

    def requests(self) -> list[Request]:
        """Everyone who has no outcome yet."""
        return [*self.running, *self.waiting]

    def worth_ahead(self, step: Step) -> bool:
        """Whether to plan the next step while this one runs: whoever comes meanwhile is too late for it, so only where
        somebody goes on decoding, or where half of it would be full."""
        if self._suspects:
            return False
        if len(step.asked.reads.greedy):
            return True
        half = self.limits.token_budget // 2
        for request in chain(self.running, self.waiting):
            half -= rows_wanted(request, half)
            if half <= 0:
                return True
        return False

    # --- admit ---------------------------------------------------------------------------------------------------

    def plan(self, now: float) -> Step | None:
        """The next step, or None if nobody can run."""
        self._admit(now)
        draft = Draft(self.limits.token_budget)
        self._breaths += 1
        running = sorted(self.running, key=_RANK)
        if self._suspects:
            running = [request for request in running if request is self._suspects[0]]
        others = self._plan_decodes(draft, running)
        for place, request in enumerate(running, 1):
            if not (draft.left and others):
                break
            if request in others and request in self.running and has_more(draft, request):
                kept = self._share_of_those_behind(draft, request, running[place:])
                draft.left -= kept
                self._plan_prompt(draft, request)
                draft.left += kept
        if not draft.parts:
            for key in draft.pictures:
                self.soft.unpin(key)
            for key, _, _ in draft.encode:
                self.soft.forget(key)
            return None
        if draft.encode:
            self._breaths = 0
        self._planned += 1
        return draft.build(self._planned, self.pages.take_map_changes(), self.limits.bidirectional)

    def _admit(self, now: float) -> None:
        if not len(self.waiting):
            return
        promised = self._room.outstanding(self.running)
        while (request := self._next_waiting()) is not None:
            self._room.find_prefix(request)
            full, sliding = self._room.outstanding([request])
            promised = promised[0] + full, promised[1] + sliding
            while request not in self._suspects and not self._room.has_room(len(self.running), *promised):
                victim = self._youngest_batch() if request.origin.priority == "interactive" else None
                if victim is None:
                    self._free(request, None)
                    return
                self._preempt(victim, None)
                promised = self._room.outstanding([*self.running, request])
            self.waiting.leave(request)
            self.running[request] = None
            if request.order < 0:
                request.admit(self._admissions)
                self._admissions += 1
                request.times.admitted = now
                request.usage.cached_rows = request.prefix.computed

    def _next_waiting(self) -> Request | None:
        if self._suspects:
            return self._suspects[0] if self._suspects[0] in self.waiting else None
        return self.waiting.next({request.prefix_key for request in self.running if request.prefix.remaining})

    # --- plan ----------------------------------------------------------------------------------------------------

    def _plan_decodes(self, draft: Draft, running: list[Request]) -> set[Request]:
        """One row for everyone who is decoding, except rows that the oldest needs to get on with its prompt. Returns
        those who may have other rows."""
        others = set()
        kept = smallest_piece(running[0], self.limits.bidirectional) if running else 0
        for request in running:
            if request.prefix.remaining:
                others.add(request)
            for branch in request.branches:
                base, end = branch.base, branch.base.end
                if base.position + 1 == end > base.question_end and base.live and request in self.running:
                    if draft.left > kept and (base.table.holds(end) or self._grow(draft, request, base, end)):
                        draft.add(Part(request, branch, base, 1, end))
                elif not branch.done:
                    others.add(request)
        return others

    def _share_of_those_behind(self, draft: Draft, request: Request, behind: list[Request]) -> int:
        """Rows that a request of more than a whole step leaves to younger ones of its class, as far as they want any.

        Without it a thousand questions keep everybody else waiting until the last of them.
        """
        budget = self.limits.token_budget
        if not behind or rows_wanted(request, budget + 1) <= budget:
            return 0
        share = min(draft.left // SHARE, draft.left - smallest_piece(request, self.limits.bidirectional))
        wanted = 0
        for other in behind:
            if wanted >= share or other.origin.priority != request.origin.priority:
                break
            wanted += rows_wanted(other, share)
        return max(0, min(share, wanted))

    def _plan_prompt(self, draft: Draft, request: Request) -> None:
        """The next rows of the prefix, then, behind a prefix that is complete by then, of the questions."""
        todo = [(branch, sequence) for branch, sequence in request.pending() if sequence not in draft.parts]
        prefix = request.prefix
        if not prefix.live and not prefix.remaining and any(s is b.base and not s.computed for b, s in todo):
            self._room.find_prefix(request)
        if prefix.remaining and self._schedule(draft, request, None, prefix) < prefix.remaining:
            return
        for branch, sequence in todo:
            if not draft.left or request not in self.running:
                return
            behind = prefix if sequence is branch.base else branch.base
            if not (sequence.live or behind.live):
                continue  # it lost its pages to an earlier question just now, and what it stands on is gone too
            if sequence is branch.base or not draft.unplanned(branch.base):
                self._schedule(draft, request, branch, sequence)

    def _schedule(self, draft: Draft, request: Request, branch: Branch | None, sequence: Sequence) -> int:
        """Plan the next rows of a sequence, as many as budget, pictures and pages allow; returns how many."""
        limit = min(draft.left, self.limits.max_chunk)
        rows = sequence.chunk(limit, self.limits.bidirectional)
        rows = self._pin_pictures(draft, request, sequence, rows)
        if not rows or not self._grow(draft, request, sequence, sequence.position + rows):
            return 0
        draft.add(Part(request, branch, sequence, rows, sequence.position + rows))
        return rows

    def _pin_pictures(self, draft: Draft, request: Request, sequence: Sequence, rows: int) -> int:
        """Rows up to the first picture that has no place in the arena now, or that the tower has no time for."""
        end = sequence.position + rows
        for span in sequence.spans:
            if span.start >= end or span.end <= sequence.position or span.key in draft.pictures:
                continue
            count = span.end - span.start
            waits = span.key not in self.soft and not self._may_encode(draft, count)
            place = None if waits else self.soft.pin(span.key, count)
            if place is None:
                return max(0, span.start - sequence.position)
            draft.pictures[span.key], fresh = place
            if fresh:
                draft.encode.append((span.key, request.picture(span), place[0]))
                draft.encoded += count
        return rows

    def _may_encode(self, draft: Draft, count: int) -> bool:
        """Whether the tower may run for one more picture in this step. It takes as long as many steps of answers."""
        if draft.encode:
            return draft.encoded + count <= self.limits.max_encoded
        return self._breaths > self.limits.breaths or all(request.times.prefilled is None for request in self.running)

    def _grow(self, draft: Draft, request: Request, sequence: Sequence, end: int) -> bool:
        """Give a sequence the pages for positions up to `end`, taken from younger ones if need be."""
        parent = sequence.parent
        if parent is not None and not sequence.live:
            sequence.table.adopt(parent.table.pages[: sequence.start // PAGE_SIZE], sequence.start)
        missing = sequence.table.missing(end)
        while (pages := self.pages.reserve(missing)) is None:
            if not self.cache.make_room(missing) and not self._take_from_younger(draft, request, sequence):
                if not sequence.computed:
                    self._reset(sequence, draft)
                return False
        sequence.table.append(pages)
        return True

    # --- preemption ----------------------------------------------------------------------------------------------

    def _take_from_younger(self, draft: Draft, request: Request, sequence: Sequence) -> bool:
        """Preempt the youngest other request, else a later question of this one; False if there is none."""
        for other in sorted(self.running, key=self._seniority, reverse=True):
            if self._seniority(other) > self._seniority(request) and any(s.live for s in other.sequences()):
                self._preempt(other, draft)
                return True
        for later in self._later(request, sequence):
            if later.live:
                self._reset(later, draft)
                return True
        return False

    def _later(self, request: Request, sequence: Sequence) -> Iterator[Sequence]:
        """What comes behind a sequence in its request, last first; its own ancestors never do."""
        for other in reversed(list(request.sequences())):
            if other is sequence:
                return
            yield other

    def _preempt(self, request: Request, draft: Draft | None) -> None:
        self.preemptions += 1
        self._free(request, draft)
        del self.running[request]
        self.waiting.rejoin(request)

    def _free(self, request: Request, draft: Draft | None) -> None:
        for sequence in request.sequences():
            self._reset(sequence, draft)

    def _reset(self, sequence: Sequence, draft: Draft | None) -> None:
        """Back to no pages and no rows."""
        if draft is not None:
            draft.remove(sequence)
        sequence.table.release()
        sequence.computed = 0
        sequence.release_tail_source()

    def _seniority(self, request: Request) -> tuple[bool, bool, int]:
        suspect = bool(self._suspects) and request is self._suspects[0]
        return not suspect, *request.rank

    def _youngest_batch(self) -> Request | None:
        batch = [request for request in self.running if request.origin.priority == "batch"]
        return max(batch, key=lambda request: request.order, default=None)

    # --- advance, account ----------------------------------------------------------------------------------------

    def advance(self, step: Step) -> None:
        """The step was issued: from here on all is planned as if it had run. Its values are still to come."""
        self._progress.advance(step)

    def account(self, step: Step, values: Iterable[Floats], now: float) -> list[Request]:
        """The step has run; `values` is what its readers read, in their order. Returns those done or in error, who
        have left."""
        done = self._progress.account(step, values, now)
        for request in done:
            self.drop(request)
        return done

    def abandon(self, step: Step, behind: Step | None) -> list[Request]:
        """The step raised, so neither it counts nor what was issued behind it: their requests run again, each alone.

        Whoever else runs may stand on what they have cached, and computes again. Returns who failed alone.
        """
        for one in (step, behind):
            for key, _, _ in one.encode if one else ():
                self.soft.forget(key)
        doubtful = set(self.cache.forget_since(step.number))
        for request in list(self.running):
            if any(not doubtful.isdisjoint(sequence.held_pages) for sequence in request.sequences()):
                self._preempt(request, None)
        self.pages.resend_map()
        failed = []
        for request in dict.fromkeys([*step.requests, *(behind.requests if behind else ())]):
            if request.left:
                continue
            if request in self.running:
                self._preempt(request, None)
            for sequence in request.sequences():
                sequence.forget_expected()
            request.failures += request in step.requests
            if request.failures > 1:
                self.drop(request)
                failed.append(request)
            elif request not in self._suspects:
                self._suspects.append(request)
        return failed

    def check(self) -> None:
        """Every invariant of pages and arena; PageError or AssertionError names what is broken. Between steps."""
        sequences = [sequence for request in self.requests() for sequence in request.sequences()]
        sources = [s.tail_source for s in sequences if s.tail_source is not None]
        held, windows = self.cache.holders()
        self.pages.check(
            [*held, sources, *(s.table.pages for s in sequences)],
            [*windows, sources, *(s.table.windowed for s in sequences)],
        )
        self.soft.check()
        assert not self.soft.pinned, "a picture stayed pinned after its step"
