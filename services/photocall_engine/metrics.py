"""What Prometheus reads of an engine: its tally, and how pools, scheduler and outlet are at that moment.

Read from the exporter's thread, while the engine runs: single numbers, which may be a step apart from each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.metrics_core import Metric as Family

from photocall import metrics
from photocall.exporter import Collector, counts, values
from photocall_engine.canary import Canary
from photocall_engine.engine import Engine
from photocall_engine.tally import Distribution


class EngineMetrics(Collector):
    """`about`: engine, model, device, numerics. `batches`: forwards by bucket; `passes`: likewise of the tower."""

    def __init__(
        self,
        engine: Engine,
        about: tuple[str, str, str, str],
        canary: Canary,
        unwritten: Callable[[], int],
        blob_bytes: Callable[[], int],
        batches: Callable[[], Mapping[str, int]] = dict,
        passes: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._engine = engine
        self._about = about
        self._canary = canary
        self._unwritten = unwritten
        self._blob_bytes = blob_bytes
        self._batches = batches
        self._passes = passes

    def collect(self) -> Iterable[Family]:
        """Every metric of the table, those without a value yet too."""
        tally, scheduler, canary = self._engine.tally, self._engine.scheduler, self._canary
        yield values(metrics.ENGINE_INFO, {self._about: 1})
        yield counts(metrics.ENGINE_STEP_ROWS, {(): _shown(tally.step_rows)})
        yield counts(metrics.ENGINE_STEP_SECONDS, {(): _shown(tally.step_seconds)})
        yield values(metrics.ENGINE_FAILED_STEPS, {(): tally.failed_steps})
        yield values(metrics.ENGINE_GRAPH_BATCHES, _by_label(self._batches()))
        yield values(metrics.ENGINE_TOWER_PASSES, _by_label(self._passes()))
        yield values(metrics.ENGINE_ENCODED_PICTURES, {(): tally.encoded_pictures})
        yield values(metrics.ENGINE_PREEMPTIONS, {(): scheduler.preemptions})
        yield values(metrics.ENGINE_PAGES, self._pages())
        yield values(metrics.ENGINE_HELD, {("running",): len(scheduler.running), ("waiting",): len(scheduler.waiting)})
        yield values(metrics.ENGINE_CAPACITY, {(): scheduler.limits.max_requests})
        yield values(metrics.ENGINE_OUTCOMES, dict(list(tally.outcomes.items())))
        yield values(metrics.ENGINE_PICTURES, {(): tally.pictures})
        yield values(metrics.ENGINE_QUESTIONS, dict(list(tally.questions.items())))
        yield values(metrics.ENGINE_TOKENS, _by_label(tally.tokens))
        yield values(metrics.ENGINE_PREFIX_LOOKUPS, _by_label(tally.lookups))
        yield counts(metrics.ENGINE_STAGE_SECONDS, _distributions(tally.stages))
        yield counts(metrics.ENGINE_LABEL_MASS, _distributions(tally.label_mass))
        yield values(metrics.ENGINE_UNWRITTEN, {(): self._unwritten()})
        yield values(metrics.ENGINE_CANARY_RUNS, _by_label(canary.runs))
        yield values(metrics.ENGINE_CANARY_SAME, {(): float(canary.same)})
        yield values(metrics.ENGINE_CANARY_SECONDS, {(): canary.took_s})
        yield values(metrics.BLOB_BYTES, {(): self._blob_bytes()})

    def _pages(self) -> dict[tuple[str, ...], float]:
        pages = self._engine.scheduler.pages
        found: dict[tuple[str, ...], float] = {}
        for pool, total, free, cached in (
            ("full", pages.num_pages - 1, pages.free, pages.holds.idle),
            ("sliding", pages.sliding_pages, pages.free_sliding, pages.window_holds.idle),
        ):
            if total:
                used = max(0, total - free - cached)
                found |= {(pool, "free"): free, (pool, "cached"): cached, (pool, "used"): used}
        return found


def _shown(distribution: Distribution) -> tuple[list[int], float]:
    return list(distribution.counts), distribution.total


def _distributions(found: Mapping[str, Distribution]) -> dict[tuple[str, ...], tuple[list[int], float]]:
    return {(label,): _shown(distribution) for label, distribution in list(found.items())}


def _by_label(found: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {(label,): count for label, count in list(found.items())}
