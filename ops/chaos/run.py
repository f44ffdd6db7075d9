"""One run: a world, a load, a schedule of strikes, an audit; and the report of one run or more."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TextIO

from ops.chaos.audit import Audit, settled
from ops.chaos.balancer import Balancer
from ops.chaos.batch_caller import BatchCaller
from ops.chaos.callers import Caller, Crowd, Lost
from ops.chaos.matrix import RECOVERY_S, Hit, Matrix
from ops.chaos.strikes import Strike, schedule
from ops.chaos.tasks import task
from ops.chaos.witness import Witness
from ops.chaos.world import World, world
from photocall.connections import connect
from photocall.wire import Wire

POLL_S = 0.02
CALLERS, PAUSE_S = {"fake": 8, "model": 3}, {"fake": 0.6, "model": 2.0}
STOPPED = (0,)  # exit statuses after SIGTERM


@dataclass
class Report:
    """What came of it."""

    seed: int
    limit_s: float = RECOVERY_S  # of one recovery
    hits: list[Hit] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def held(self) -> bool:
        return not self.faults and all(self._held(hit) for hit in self.hits)

    @property
    def slowest_s(self) -> float:
        return max((hit.recovery_s or 0.0 for hit in self.hits), default=0.0)

    def show(self, out: TextIO) -> None:
        """The table, what was wrong, and one line at the end."""
        by_name: dict[str, list[Hit]] = {}
        for hit in self.hits:
            by_name.setdefault(hit.strike.name, []).append(hit)
        print(f"{'killed':<46} {'times':>5} {'waited':>6} {'recovery':>8}  held", file=out)
        for name, hits in by_name.items():
            waited, slowest = sum(len(hit.waiting) for hit in hits), max(hit.recovery_s or 0.0 for hit in hits)
            held = next((hit.fault or "too slow" for hit in hits if not self._held(hit)), "yes")
            print(f"{name:<46} {len(hits):>5} {waited:>6} {slowest:>6.1f} s  {held}", file=out)
        for fault in self.faults:
            print(f"FAULT {fault}", file=out)
        print(self.summary, file=out)

    @property
    def summary(self) -> str:
        ends = ", ".join(f"{count} {end}" for end, count in sorted(self.outcomes.items()))
        return (
            f"chaos: {'held' if self.held else 'DID NOT HOLD'}: seed {self.seed}, {len(self.hits)} strikes in "
            f"{self.took_s:.0f} s; {ends}, {self.rows} batch rows, {self.retries.total()} calls made again; "
            f"{len(self.faults)} faults; slowest recovery {self.slowest_s:.1f} of {self.limit_s:.0f} s"
        )

    def _held(self, hit: Hit) -> bool:
        return hit.recovery_s is not None and hit.recovery_s <= self.limit_s


def run(
    report: Report, directory: Path, log: IO[str], strikes: tuple[Strike, ...], duration_s: float, *, runner: str
) -> None:
    """Go through the strikes once, or for `duration_s`, and add what came of it to the report."""
    began, witness, seed = time.monotonic(), Witness(), report.seed
    with world(directory, log, PHOTOCALL_RUNNER=runner, PHOTOCALL_BATCH_IN_FLIGHT="16") as made:
        balancer = Balancer(made.addresses)
        batches = BatchCaller(balancer, witness, seed) if runner == "fake" else None
        crowd = Crowd(CALLERS[runner], balancer, witness, seed, task, PAUSE_S[runner])
        plan = schedule(seed, strikes, None if duration_s else 1)
        matrix = Matrix(made, plan, seed, lambda: witness.open, lambda: batches.moved if batches else object())
        balancer.start()
        crowd.start()
        if batches is not None:
            batches.start()
        while not matrix.over:
            if duration_s and time.monotonic() - began > duration_s:
                matrix.end()
            made.poll()
            matrix.poll()
            time.sleep(POLL_S)
        crowd.stop()
        if batches is not None:
            batches.stop()
        while crowd.busy or (batches is not None and batches.busy):
            made.poll()
            time.sleep(POLL_S)
        _audit(made, balancer, witness, batches.pictures if batches else frozenset())
        balancer.stop()
        for name, status in made.stop().items():
            if status not in STOPPED:
                witness.fault(f"{name} ended with {status} after SIGTERM")
    deaths = [status for _, status in made.ended if status == -9]
    if len(deaths) != len(made.killed):
        witness.fault(f"{len(deaths)} processes were killed, {len(made.killed)} by this program")
    witness.faults += [f"{name} ended with {status} by itself" for name, status in made.ended if status not in (0, -9)]
    witness.faults += made.log.defects
    report.hits += matrix.hits
    report.outcomes += witness.outcomes
    report.rows += batches.rows if batches else 0
    report.retries += witness.retries
    report.faults += witness.faults
    report.took_s += time.monotonic() - began


def _audit(made: World, balancer: Balancer, witness: Witness, kept: frozenset[str]) -> None:
    client = connect(made.stack.redis_url)
    wire = Wire(made.stack.settings.signing_key(), "chaos")
    caller = Caller(balancer, witness)
    audit = Audit(client, wire, caller, witness, made.stack.blob_dir, kept)
    with caller.http:
        witness.faults += settled(audit.outcomes, made.poll)
        witness.faults += settled(audit.unfinished, made.poll)
        try:
            audit.delete_all()
        except Lost as lost:
            witness.fault(f"cannot delete: {lost}")
        witness.faults += settled(audit.left, made.poll)
    client.close()
