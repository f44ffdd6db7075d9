"""Parts: what every batch of a gateway is run with, put together once by the desk."""

from __future__ import annotations

from dataclasses import dataclass

from photocall.records import AsyncRecords
from photocall_gateway.batches.leases import BatchLeases
from photocall_gateway.batches.news import BatchNews
from photocall_gateway.batches.pace import Pace
from photocall_gateway.body import Limits
from photocall_gateway.dispatch import Dispatcher
from photocall_gateway.models import ModelNames
from photocall_gateway.waiting import WakeReader


@dataclass(frozen=True, slots=True)
class Parts:
    """What a runner works with; it closes none of it."""

    records: AsyncRecords
    dispatcher: Dispatcher
    wakes: WakeReader
    leases: BatchLeases
    pace: Pace
    news: BatchNews
    models: ModelNames
    limits: Limits
    max_in_flight: int
    max_rows: int
