"""Session: one conversation on a borrowed runner, forward by forward.

For whoever has the model to themselves between two steps of the engine: comparisons, scoring, a prompt at a time. It
takes its pages from the shared pools until `close`. Turns that come over the queue run in the scheduler's batches
instead and are held in `held.py`, by the same rules. It knows tokens, and neither prompts nor pictures nor tensors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from photocall.errors import PhotocallError
from photocall_engine.pages import Pages
from photocall_engine.readout import Floats
from photocall_engine.rows import PAGE_SIZE, RowBatch, ints
from photocall_engine.runner import ModelRunner
from photocall_engine.window import first_in_window, pages_for

log = logging.getLogger(__name__)


class NotReserved(RuntimeError):
    """A forward before a reserve, or of more positions than were reserved: a defect of the caller."""


class DoesNotFit(PhotocallError):
    """More positions than there is room for; nothing was done. `needed` and `room` are the two numbers."""

    code = "prompt_too_long"

    def __init__(self, what: str, needed: int, room: int) -> None:
        super().__init__(f"{what} needs {needed} positions, there is room for {room}", needed=needed, room=room)


@dataclass(frozen=True, slots=True)
class TurnReport:
    """The reply of one turn, and how it came about."""

    tokens: tuple[int, ...]
    reused: int  # positions of the prefix held from before
    context_capped: bool  # the reservation was cut to the context
    batched_prefills: int  # forwards of more than one row


class Session:
    """`make_room` may free pages that only a cache holds, and says whether it freed any."""

    def __init__(
        self, runner: ModelRunner, pages: Pages, make_room: Callable[[int], bool] = lambda pages: False
    ) -> None:
        self._runner = runner
        self._pool = pages
        self._make_room = make_room
        self._window = runner.sliding_window if runner.sliding_pages else 0
        self._pages: list[int] = []
        self._covered = range(0)  # indices of the pages that have a sliding page
        self._tokens: list[int] = []  # those held
        self._reserved = 0
        self.context = min(runner.context, (pages.num_pages - 1) * PAGE_SIZE)
        self.context_capped = False
        self.batched_prefills = 0  # since the session began
        self.notices: list[str] = []
        self._note(f"Backend: {runner.backend}")

    @property
    def held(self) -> int:
        """Positions whose K/V are there."""
        return len(self._tokens)

    @property
    def held_bytes(self) -> int:
        """Bytes of the pages that are reserved."""
        return len(self._pages) * self._runner.page_bytes + len(self._covered) * self._runner.sliding_page_bytes

    def reserve(self, positions: int) -> int:
        """Room for so many positions, at least 1 and at most the context; gives how many.

        More than the device holds now raises DoesNotFit. Growing drops what was held; shrinking keeps it.
        """
        wanted = min(max(1, positions), self.context)
        self.context_capped = positions > self.context
        needed = pages_for(wanted)
        if needed > len(self._pages):
            if self.held:
                self._note(f"growing from {self._reserved} to {wanted} positions drops the {self.held} held")
            self.close()
            while (pages := self._pool.reserve_bare(needed)) is None:
                if not self._make_room(needed):
                    raise DoesNotFit("a reservation", wanted, self._pool.free * PAGE_SIZE)
            self._pages = pages
        self._reserved = wanted
        return wanted

    def forward(self, tokens: Sequence[int], start: int) -> Floats:
        """Logits behind the last of `tokens`, of which the first `start` are held; [vocabulary].

        start is at most what is held, and 0 begins anew. Raises NotReserved, or what the runner raises.
        """
        self._run(tokens, start, [len(tokens) - 1])
        return np.asarray(self._runner.logits_rows(ints([0]))[0])

    def forward_greedy(self, tokens: Sequence[int], start: int, exclude: Sequence[int] = ()) -> int | None:
        """The token that follows, without moving logits. None: the device ran, but chose nothing; nothing is held."""
        self._run(tokens, start, [len(tokens) - 1])
        chosen = int(self._runner.argmax_rows(ints([0]), [list(exclude)])[0])
        if chosen < 0:
            self._tokens = []
            return None
        return chosen

    def score(self, tokens: Sequence[int]) -> list[float]:
        """Log-probability of each token behind the first, given those before it."""
        if len(tokens) < 2:
            return []
        found: list[float] = []
        chunk = self._chunk()
        for first in range(0, len(tokens) - 1, chunk):
            end = min(first + chunk, len(tokens) - 1)
            self._run(tokens[:end], first, list(range(first, end)))
            logits = self._runner.logits_rows(ints(range(end - first))).astype(np.float64)
            logits -= logits.max(axis=1, keepdims=True)
            chosen = logits[np.arange(end - first), list(tokens[first + 1 : end + 1])]
            found += (chosen - np.log(np.exp(logits).sum(axis=1))).tolist()
        return found

    def turn(self, prompt: Sequence[int], most: int, end: int, exclude: Sequence[int] = ()) -> TurnReport:
        """Answer a prompt greedily, with at most `most` tokens, up to `end`.

        The prefix held is reused exactly when the prompt strictly extends it. Room for prompt and answer is taken
        before the first forward: as much of the answer as the context has; a prompt that leaves room for none raises
        DoesNotFit, whole.
        """
        if len(prompt) >= self.context:
            raise DoesNotFit("the prompt with room to answer", len(prompt) + 1, self.context)
        room = min(most, self.context - len(prompt))
        reserved = self._reserved
        if len(prompt) + most > reserved:
            reserved = self.reserve(len(prompt) + most)
        extends = 0 < self.held < len(prompt) and list(prompt[: self.held]) == self._tokens
        start = reused = self.held if extends else 0
        before, reply = self.batched_prefills, list[int]()
        while len(reply) < room:
            tokens = [*prompt, *reply]
            chosen = self.forward_greedy(tokens, start, exclude)
            if chosen is None:
                self._note("the device chose no token: replayed from the start")
                logits = self.forward(tokens, 0)
                logits[list(exclude)] = -np.inf
                chosen = int(logits.argmax())
            if chosen == end:
                break
            reply.append(chosen)
            start = self.held
        capped = len(prompt) + most > self.context
        return TurnReport(tuple(reply), reused, capped, self.batched_prefills - before)

    def close(self) -> None:
        """Give up everything; a reserve begins again."""
        self._pool.release_window([self._pages[i] for i in self._covered])
        self._pool.release(self._pages)
        self._pages, self._covered, self._tokens, self._reserved = [], range(0), [], 0

    def _run(self, tokens: Sequence[int], start: int, read: list[int]) -> None:
        """Rows for the positions from `start` on; `read` can be asked for then. Held is set on success only."""
        if not self._reserved or len(tokens) > self._reserved:
            raise NotReserved(f"a forward of {len(tokens)} positions with {self._reserved} reserved")
        if not tokens:
            raise ValueError("a forward without tokens")
        start = min(start, self.held, len(tokens) - 1)
        if start < self.held and first_in_window(start, self._window or self.context) < self._covered.start:
            start = 0  # what a row there would see has left the window
        self._tokens = []
        try:
            while start < len(tokens):
                rows = min(self._chunk(), len(tokens) - start)
                self._step(tokens, start, start + rows, [at for at in read if start <= at < start + rows])
                start += rows
        except Exception as error:
            self._note(f"{self._runner.backend} failed, nothing is held: {type(error).__name__}: {error}")
            raise
        self._tokens = list(tokens)

    def _step(self, tokens: Sequence[int], start: int, end: int, read: list[int]) -> None:
        self._cover(start, end)
        self._runner.set_sliding_map(*self._pool.take_map_changes())
        pos = np.arange(start, end, dtype=np.int32)
        table = ints(self._pages[: pages_for(end)])
        rows = end - start
        self.batched_prefills += rows > 1
        self._runner.forward(
            RowBatch(
                tokens=ints(tokens[start:end]),
                pos=pos,
                slot=table[pos // PAGE_SIZE] * PAGE_SIZE + pos % PAGE_SIZE,
                bt_off=np.zeros(rows, dtype=np.int32),
                kv_hi=pos + 1,
                kv_hi_sliding=pos + 1,
                block_tables=table,
                extra_row=ints([]),
                extra_slot=ints([]),
                soft_idx=np.full(rows, -1, dtype=np.int32),
                read=ints([at - start for at in read]),
                decode=rows == 1,
            )
        )

    def _cover(self, start: int, end: int) -> None:
        """Sliding pages for what rows [start, end) see and write, and for nothing else."""
        if not self._window:
            return
        wanted = range(first_in_window(start, self._window), pages_for(end))
        kept = range(max(wanted.start, self._covered.start), min(wanted.stop, self._covered.stop))
        self._pool.release_window([self._pages[i] for i in self._covered if i not in kept])
        self._covered = kept if len(kept) else range(0)
        missing = [self._pages[i] for i in wanted if i not in kept]
        while not self._pool.cover(missing):
            if not self._make_room(len(missing)):
                raise DoesNotFit("a step", len(missing) * PAGE_SIZE, self._pool.free_sliding * PAGE_SIZE)
        self._covered = wanted

    def _chunk(self) -> int:
        """Rows of one forward at most."""
        if not self._window:
            return self._runner.max_rows
        room = (self._runner.sliding_pages - pages_for(self._window - 1) - 1) * PAGE_SIZE
        return max(1, min(self._runner.max_rows, room))

    def _note(self, line: str) -> None:
        log.info("session: %s", line)
        self.notices.append(line)
