"""Figures of a bench: what was measured, beside what it should be, as a table and as JSON.

What each workload is counted in, its goals, floors and what others reach are data: `goals.json`.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ops.bench import record

RESULTS = record.RESULTS
GOALS = json.loads((Path(__file__).parent / "goals.json").read_text())


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a table. `where` says what a step's time went to (see `phases.py`); `runs` are all measurements."""

    workload: str
    shape: str
    numerics: str
    value: float
    unit: str
    better: str  # lower or higher
    goal: float | None = None
    floor: float | None = None
    stretch: float | None = None
    other: float | None = None  # vLLM at its best setting
    runs: list[float] | None = None
    where: dict[str, Any] | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without one."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.better == "lower" else self.value >= self.goal

    @property
    def ratio(self) -> float | None:
        """How far above the floor (below it, where more is better); None without one."""
        if not self.floor or not self.value:
            return None
        return self.value / self.floor if self.better == "lower" else self.floor / self.value


def figure(
    workload: str,
    shape: str,
    numerics: str,
    value: float,
    *,
    runs: list[float] | None = None,
    where: dict[str, Any] | None = None,
) -> Figure:
    """A figure with what `goals.json` knows of it. KeyError: a workload that it does not name."""
    counted: Mapping[str, str] = GOALS["workloads"][workload]
    known: Mapping[str, Any] = GOALS["shapes"].get(shape, {}).get(workload, {})
    goal = known.get("goal_fast", known.get("goal")) if numerics == "fast" else known.get("goal")
    others = {name: known.get(name) for name in ("floor", "stretch", "other")}
    return Figure(
        workload, shape, numerics, value, counted["unit"], counted["better"], goal, runs=runs, where=where, **others
    )


def table(figures: Iterable[Figure]) -> str:
    """Lines for people."""
    head = (
        f"{'workload':20} {'shape':8} {'numerics':10} {'value':>10} {'unit':12} {'floor':>8} {'ratio':>6} {'goal':>8}"
    )
    return "\n".join([head + "   other", *(line(each) for each in figures)])


def line(each: Figure) -> str:
    """One of them."""
    met = {None: " ", True: "+", False: "-"}[each.met]
    cells = f"{_number(each.floor):>8} {_number(each.ratio):>6} {_number(each.goal):>8} {met} {_number(each.other):>6}"
    return f"{each.workload:20} {each.shape:8} {each.numerics:10} {_number(each.value):>10} {each.unit:12} {cells}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"


def provenance() -> dict[str, str]:
    """Date, device, versions and commit, as every file of figures begins."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "commit": record.commit(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def tell(found: Mapping[str, Any], out: Path | None) -> None:
    """What an examination found: printed as JSON, and written with its provenance where a file is wanted."""
    print(json.dumps(found, indent=1))
    if out:
        out.write_text(json.dumps(provenance() | dict(found), indent=1) + "\n")


def write(path: Path, results: Iterable[Figure], **more: Any) -> None:
    """The figures as JSON; `more` stands beside them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = provenance() | more | {"results": [_shown(each) for each in results]}
    path.write_text(json.dumps(shown, indent=1) + "\n")


def keep(name: str, results: Iterable[Mapping[str, Any]]) -> None:
    """Write results of any form as NAME.json into $OUT, or beside the other results, and say where."""
    path = Path(os.environ.get("OUT", RESULTS)) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(provenance() | {"results": list(results)}, indent=1) + "\n")
    print(f"wrote {path}")


def _shown(each: Figure) -> dict[str, Any]:
    return {name: value for name, value in asdict(each).items() if value is not None or name in ("goal", "floor")}
