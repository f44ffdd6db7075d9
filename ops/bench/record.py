"""What a bench keeps: its figures with the machine, the commit, and how busy the machine was, as JSON in `results/`."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def busy() -> float:
    """The load of the last minute."""
    return round(os.getloadavg()[0], 2)


def commit() -> str:
    """The commit that is measured. A copy without its history says in COMMIT which one it is."""
    said = os.environ.get("COMMIT", "")
    if not said:
        git = ["git", "rev-parse", "--short", "HEAD"]
        said = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return said or "unknown"


def write(name: str, load_before: float, **figures: Any) -> Path:
    """Keep figures as `<name>-<date>.json`; those of another day are another file."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    record = {
        "date": date,
        "commit": commit(),
        "python": platform.python_version(),
        "cores": cores(),
        "load_before": load_before,
        "load_after": busy(),
        **figures,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}-{date[:10]}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"written: {path}")
    return path
