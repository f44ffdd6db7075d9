"""What is killed, and at which moment: the matrix, and the order in which a seed goes through it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Victim: TypeAlias = Literal["it", "redis", "engine", "prep", "decoder", "gateway", "another gateway"]


@dataclass(frozen=True, slots=True)
class Strike:
    """One cell of the matrix: with a point, when a process stands there (`it`); without, at a random moment."""

    victims: tuple[Victim, ...]
    point: str = ""
    first: Victim | None = None  # killed before, so that the point, which lies in a start, is reached
    seldom: bool = False  # the point comes once in a batch: others go on meanwhile

    @property
    def holders(self) -> frozenset[str]:
        """Rooms of which a process dies that others wait for: two such waits would add up and be counted as one."""
        rooms = {self.point.partition(".")[0] if victim == "it" else victim for victim in self.victims}
        return frozenset(rooms & {"prep", "engine", "redis"})

    @property
    def name(self) -> str:
        """`redis at prep.decode`, `gateway + engine at any moment`."""
        room = self.point.partition(".")[0]
        it = {"batch": "the batch's gateway"}.get(room, room)
        victims = " + ".join(it if victim == "it" else victim for victim in self.victims)
        return f"{victims} at {self.point or 'any moment'}"


IT: tuple[Victim, ...] = ("it",)
REDIS: tuple[Victim, ...] = ("redis",)

GATEWAY = (
    Strike(IT, "gateway.store"),
    Strike(IT, "gateway.accept"),
    Strike(IT, "gateway.enqueue"),
    Strike(IT, "gateway.enqueued"),
    Strike(("gateway",)),
)
BATCH = (
    Strike(IT, "batch.validate", seldom=True),
    Strike(IT, "batch.submit"),
    Strike(IT, "batch.write"),
    Strike(IT, "batch.commit"),
    Strike(IT, "batch.finish", seldom=True),
)
PREP = (
    Strike(IT, "prep.decode"),
    Strike(IT, "prep.prepared"),
    Strike(("prep",)),
    Strike(("decoder",), "prep.decode"),  # that of the worker which stands there
    Strike(("decoder",)),
)
ENGINE = (
    Strike(IT, "engine.capture", first="engine"),
    Strike(IT, "engine.take"),
    Strike(IT, "engine.step"),
    Strike(IT, "engine.decode"),
    Strike(IT, "engine.publish"),
    Strike(IT, "engine.published"),
)
STORE = (
    Strike(REDIS, "gateway.accept"),
    Strike(REDIS, "gateway.enqueue"),
    Strike(REDIS, "prep.decode"),
    Strike(REDIS, "engine.step"),
    Strike(REDIS, "engine.publish"),
    Strike(REDIS, "batch.submit"),
    Strike(REDIS),
)
PAIRS = (
    Strike(("it", "redis"), "gateway.accept"),
    Strike(("it", "redis"), "prep.decode"),
    Strike(("it", "redis"), "engine.publish"),
    Strike(("it", "prep"), "engine.step"),
    Strike(("it", "gateway"), "engine.published"),
    Strike(("it", "another gateway"), "batch.commit"),
    Strike(("it", "engine"), "gateway.enqueue"),
)
MATRIX = (*GATEWAY, *BATCH, *PREP, *ENGINE, *STORE, *PAIRS)
WITH_MODEL = (ENGINE[0], ENGINE[2], ENGINE[4])  # with the model that ships, which takes seconds to start


def schedule(seed: int, strikes: tuple[Strike, ...], rounds: int | None = 1) -> Iterator[tuple[Strike, float]]:
    """Each strike once per round (None: for ever), in the seed's order, with the seconds to wait before it."""
    drawn = random.Random(seed)
    while rounds is None or rounds > 0:
        for strike in drawn.sample(strikes, len(strikes)):
            yield strike, drawn.uniform(0.0, 0.5)
        rounds = None if rounds is None else rounds - 1
