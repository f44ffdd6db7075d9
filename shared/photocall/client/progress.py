"""How far a batch is, as a bar: tqdm's, in a notebook its widget where there are widgets."""

from __future__ import annotations

import sys
import warnings
from types import TracebackType
from typing import Any, Self

from photocall.client.batch_flows import Batch
from photocall.client.packages import installed, needed


class Progress:
    """A bar that is shown while its block lasts. `wanted` None: where somebody looks on and tqdm is installed."""

    def __init__(self, wanted: bool | None, already_ended: bool = False) -> None:
        watched = sys.stderr.isatty() or in_notebook()
        self._bar: Any = None
        if wanted or (wanted is None and watched and not already_ended and installed("tqdm")):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that there are no widgets: then it is a line of text
                self._bar = needed("tqdm.auto", "a progress bar").tqdm(unit="row", desc="batch")

    def show(self, batch: Batch) -> None:
        """What the server says of it now."""
        if self._bar is None:
            return
        counts = batch.counts
        self._bar.total = counts["total"] or None
        self._bar.n = counts["completed"] + counts["failed"]
        failed = {"failed": counts["failed"]} if counts["failed"] else {}
        paused = {"paused": batch.fields["paused"]} if batch.fields.get("paused") else {}
        self._bar.set_description("batch" if batch.status == "in_progress" else batch.status, refresh=False)
        self._bar.set_postfix({**failed, **paused}, refresh=False)
        self._bar.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def in_notebook() -> bool:
    """Whether this is a kernel that draws what it is given. IPython is not imported for it."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")
