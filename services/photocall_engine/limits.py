"""What one engine can take: of a step, of a request, of a picture. Fixed once, from the runner's sizes."""

from __future__ import annotations

from dataclasses import dataclass

from photocall_engine.rows import PAGE_SIZE
from photocall_engine.runner import ModelRunner
from photocall_engine.window import pages_for

BREATHS = 3  # on a CPU
_TAILS = 2  # private tail pages on the way from a prefix over a question to a fork


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes that policy keeps to. Within them the oldest request can always run once it is alone."""

    token_budget: int  # rows of one step
    max_requests: int  # requests that hold pages at once
    max_tokens: int  # positions of the longest sequence: state, question and answer
    max_chunk: int  # rows of one sequence in one step
    max_picture: int  # soft tokens of one picture
    window: int  # sliding window; 0: none
    bidirectional: bool  # picture rows see to the end of their picture
    max_encoded: int  # soft tokens the tower makes for one step; a first picture always
    breaths: int  # steps without the tower behind one with it, while somebody is in the middle of an answer

    @classmethod
    def of(cls, runner: ModelRunner, token_budget: int, max_requests: int, max_encoded: int | None = None) -> Limits:
        """`max_encoded` None: as many as a step has rows. Raises ValueError where pools are too small for any."""
        window = runner.sliding_window if runner.sliding_pages else 0
        budget = min(token_budget, runner.max_rows)
        chunk = budget
        if window:
            chunk = min(budget, (runner.sliding_pages - pages_for(window - 1) - 1 - _TAILS) * PAGE_SIZE)
        max_tokens = min(runner.context, (runner.num_pages - 1 - _TAILS) * PAGE_SIZE)
        if chunk < 1 or max_tokens < 1 or max_requests < 1:
            raise ValueError(
                f"{runner.num_pages} pages, {runner.sliding_pages} sliding pages, window {window}, {budget} rows a "
                f"step and {max_requests} requests leave no room for a request"
            )
        bidirectional = runner.bidirectional_images and window > 0
        picture = min(runner.soft_capacity, chunk) if bidirectional else runner.soft_capacity
        encoded = budget if max_encoded is None else max_encoded
        # where a forward blocks, the tower takes as long as many steps of answers; elsewhere a step may be full of it
        breaths = 0 if runner.overlaps else BREATHS
        return cls(budget, max_requests, max_tokens, chunk, picture, window, bidirectional, encoded, breaths)
