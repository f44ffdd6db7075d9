"""Progress: what a step that was issued has done already, and what its values do when they come.

Between the two, one more step may be planned: on a state in which everything issued has run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from photocall_engine.limits import Limits
from photocall_engine.prefix_cache import PrefixCache
from photocall_engine.readout import Floats
from photocall_engine.sequence import Request
from photocall_engine.soft_cache import SoftCache
from photocall_engine.steps import Part, Step
from photocall_engine.waiting import WaitingLine


class Progress:
    """Of all requests, step by step. Who leaves, and who has to start over, is the scheduler's to decide."""

    def __init__(self, limits: Limits, cache: PrefixCache, soft: SoftCache, waiting: WaitingLine) -> None:
        self._limits = limits
        self._cache = cache
        self._soft = soft
        self._waiting = waiting

    def advance(self, step: Step) -> None:
        """The step was issued: rows have their K/V, windows move on, prefixes are found, texts go on."""
        for key in step.pinned:
            self._soft.unpin(key)
        served = Counter[str]()
        for part in step.parts:
            sequence = part.sequence
            sequence.computed += part.rows
            served[part.request.origin.owner] += part.rows
            if part.branch is None:
                self._cache_rows(part, step.number)
            sequence.table.advance(part.end)
        self._waiting.serve(served)
        for pick, row in enumerate(step.asked.reads.greedy.tolist()):
            part = step.readers[row]
            assert part.branch is not None, "nothing is read at the end of a prefix"
            part.branch.expect(part.sequence, pick)
        for request in step.requests:
            _release_prefix(request)

    def account(self, step: Step, values: Iterable[Floats], now: float) -> list[Request]:
        """The step has run; `values` is what its readers read, in their order. Returns those done or in error.

        What was run for somebody who needs it no more counts for nothing.
        """
        counted: set[Request] = set()
        for part in step.parts:
            if part.counts:
                part.request.usage.add(part.rows, part.prompt_rows)
                counted.add(part.request)
        for request in counted:
            request.usage.steps += 1
        ended: dict[Request, None] = {}
        for part, value in zip(step.readers, values, strict=True):
            request, branch = part.request, part.branch
            if request.left or request.error is not None or not part.awaited:
                continue
            assert branch is not None, "nothing is read at the end of a prefix"
            try:
                branch.take(part.sequence, value)
                if branch.done:
                    request.took(branch)
            except Exception as error:  # a reader's defect is one request's, never its neighbours'
                request.error = error
            if branch.done or request.error is not None:
                ended[request] = None
        for request in step.requests:
            if request.times.prefilled is None and all(branch.begun for branch in request.branches):
                request.times.prefilled = now
                request.state_read = request.prefix.computed
        for request in ended:
            _release_prefix(request)
        return [request for request in ended if request.done or request.error is not None]

    def _cache_rows(self, part: Part, step: int) -> None:
        """Whoever has the same prefix finds it from now on."""
        request, prefix = part.request, part.sequence
        checkpoints = request.checkpoints(part.end - part.rows, part.end, self._limits.bidirectional)
        self._cache.insert(request.keys, prefix.table.pages, part.end, checkpoints, step)
        prefix.release_tail_source()


def _release_prefix(request: Request) -> None:
    """Once every question has begun, the prefix lives on in their block tables and in the cache."""
    prefix = request.prefix
    if prefix.table.pages and not prefix.remaining and all(b.done or b.base.computed for b in request.branches):
        prefix.table.release()
