"""What a request could have of a step: asked by the scheduler, which decides what it gets."""

from __future__ import annotations

from photocall_engine.sequence import Request
from photocall_engine.steps import Draft


def has_more(draft: Draft, request: Request) -> bool:
    """Whether it could have rows beside those it has been given."""
    if request.prefix.remaining:
        return True
    for branch in request.branches:
        for sequence in branch.pending():
            if sequence not in draft.parts:
                return True
    return False


def rows_wanted(request: Request, most: int) -> int:
    """Rows it could have in a step now; counted up to `most` only."""
    rows = request.prefix.remaining
    for _, sequence in request.pending():
        if rows >= most:
            break
        rows += sequence.remaining
    return rows


def smallest_piece(request: Request, bidirectional: bool) -> int:
    """Rows without which its prompt does not move: a picture that cannot be cut, else one; 0 if it has none to come."""
    prefix = request.prefix
    first = prefix if prefix.remaining else next((s for _, s in request.pending()), None)
    if first is None or first.decoding:
        return 0
    position = first.position
    spans = first.spans if bidirectional else ()
    return next((span.end - span.start for span in spans if span.start == position), 1)
