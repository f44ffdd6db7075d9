"""One temperature per question type, and the types a model was not trained for: `calibration.json` of a checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

CALIBRATED = ("choice", "noul", "score", "number", "box")
TYPES = (*CALIBRATED, "text")
_VERSION = 1


class CalibrationError(ValueError):
    """A calibration file that cannot be used; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Temperatures that logits are divided by before the softmax; a type without one keeps 1.0."""

    temperatures: Mapping[str, float] = field(default_factory=dict)
    untrained: frozenset[str] = frozenset()  # question types whose answers have their form and no worth

    def temperature(self, kind: str) -> float:
        """Of a question type."""
        return self.temperatures.get(kind, 1.0)

    @classmethod
    def load(cls, directory: Path) -> Calibration:
        """The checkpoint's; all 1.0 where it has no `calibration.json`. Raises CalibrationError on a bad one."""
        file = directory / "calibration.json"
        try:
            content = json.loads(file.read_bytes())
        except FileNotFoundError:
            return cls()
        except ValueError as error:
            raise CalibrationError(f"{file}: not JSON: {error}") from None
        if not isinstance(content, dict) or content.get("version") != _VERSION:
            raise CalibrationError(f"{file}: expected an object with version {_VERSION}")
        temperatures = content.get("temperature", {})
        if not isinstance(temperatures, dict):
            raise CalibrationError(f"{file}: temperature: expected an object by question type")
        for kind, value in temperatures.items():
            if kind not in CALIBRATED:
                raise CalibrationError(f"{file}: temperature.{kind}: expected one of {', '.join(CALIBRATED)}")
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise CalibrationError(f"{file}: temperature.{kind}: expected a number above 0, got {value!r}")
        untrained = content.get("untrained", [])
        if not isinstance(untrained, list) or not set(map(str, untrained)) <= set(TYPES):
            raise CalibrationError(f"{file}: untrained: expected a list of {', '.join(TYPES)}")
        return cls({kind: float(value) for kind, value in temperatures.items()}, frozenset(untrained))
