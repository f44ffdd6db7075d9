"""Calibrations, for programs on asyncio; see sync_calibrations.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from photocall.client import calibration_flows as flows
from photocall.client.calibration_flows import Label
from photocall.client.run_protocol import AsyncRun


class AsyncCalibrations:
    """`AsyncClient.calibrations`: as Calibrations, with coroutines."""

    def __init__(self, run: AsyncRun) -> None:
        self._run = run

    async def create(
        self, labels: Iterable[Label], *, by: str = "question", metadata: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """See Calibrations.create."""
        return await self._run(flows.create(labels, by, metadata))

    async def keep(
        self, calibration: Mapping[str, Any], *, metadata: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """See Calibrations.keep."""
        return await self._run(flows.keep(calibration, metadata))

    async def get(self, calibration_id: str) -> dict[str, Any]:
        """See Calibrations.get."""
        return await self._run(flows.get(calibration_id))

    async def list(self) -> list[dict[str, Any]]:
        """See Calibrations.list."""
        return await self._run(flows.listing())

    async def diagram(self, calibration_id: str, of: str | None = None) -> str:
        """See Calibrations.diagram."""
        return await self._run(flows.diagram(calibration_id, of))

    async def delete(self, calibration_id: str) -> None:
        """See Calibrations.delete."""
        await self._run(flows.delete(calibration_id))
