"""Calibrations, for programs that block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from photocall.client import calibration_flows as flows
from photocall.client.calibration_flows import Label
from photocall.client.run_protocol import Run


class Calibrations:
    """`Client.calibrations`. Objects are as the server shows them; every call raises RequestRefused."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def create(
        self, labels: Iterable[Label], *, by: str = "question", metadata: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Fit one to labelled answers; its `id` is what `calibration` takes.

        A label is a pair of an answer and what is right, or `{"question", "answer", "label"}`. The id is None where no
        correction helps, which `calibration` takes too. `by`: "question" or "type".
        """
        return self._run(flows.create(labels, by, metadata))

    def keep(self, calibration: Mapping[str, Any], *, metadata: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Keep one that `photocall calibrate` has fitted."""
        return self._run(flows.keep(calibration, metadata))

    def get(self, calibration_id: str) -> dict[str, Any]:
        """One with its reports."""
        return self._run(flows.get(calibration_id))

    def list(self) -> list[dict[str, Any]]:
        """All that the key has, newest first, without their reports."""
        return self._run(flows.listing())

    def diagram(self, calibration_id: str, of: str | None = None) -> str:
        """Its reliability diagrams as SVG, or that `of` one question or type."""
        return self._run(flows.diagram(calibration_id, of))

    def delete(self, calibration_id: str) -> None:
        """Forget one; what was accepted with it is answered with it."""
        self._run(flows.delete(calibration_id))
