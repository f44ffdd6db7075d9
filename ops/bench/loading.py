"""How fast a checkpoint gets from its files to a device: `python -m ops.bench.loading DIR --device cuda`.

Each round reads everything again into the same places; the first may come from the disk, the later ones come from the
page cache. Prints a line a round and writes the median of the later ones as JSON under $OUT or ops/bench/results/.
`python -m ops.bench.random_weights e4b DIR` writes a checkpoint to try it with.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch

from ops.bench.figures import keep
from photocall_engine.model.checkpoint import allocate
from photocall_engine.model.config import read_config
from photocall_engine.model.fields import ConfigError
from photocall_engine.model.shards import WeightError, read_shards
from photocall_engine.model.text_weights import unneeded
from photocall_engine.model.weights import LoadReport, load_weights

GOAL_GB_PER_S = 2.0


def main() -> int:
    """Load, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=0, help="reading threads; 0: as the engine takes them")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    try:
        reports = measure(options.directory, torch.device(options.device), options.threads, options.rounds)
    except (ConfigError, WeightError) as error:
        print(f"loading: {error}", file=sys.stderr)
        return 2
    later = reports[1:] or reports
    rate = statistics.median(report.size / report.seconds / 1e9 for report in later)
    print(f"{rate:.2f} GB/s from the page cache to {options.device} (goal {GOAL_GB_PER_S})")
    figure = {
        "workload": f"loading to {options.device}",
        "shape": options.directory.name,
        "numerics": "",
        "value": rate,
    }
    figure |= {"unit": "GB/s", "goal": GOAL_GB_PER_S, "floor": None, "better": "higher"}
    keep(f"loading-{options.device}-{datetime.now(UTC):%Y-%m-%d}", [figure])
    return 0


def measure(directory: Path, device: torch.device, threads: int, rounds: int) -> list[LoadReport]:
    """Read the checkpoint `rounds` times. Raises ConfigError, WeightError."""
    config = read_config(directory)
    own_head = "lm_head.weight" in read_shards(directory)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    text, seeing = allocate(config, device, dtype, own_head)
    places = text.places | ({} if seeing is None else seeing.places)
    reports = []
    for number in range(rounds):
        report = load_weights(directory, places, lambda name: unneeded(config, name), threads=threads)
        print(f"round {number + 1}: {report}", flush=True)
        reports.append(report)
    return reports


if __name__ == "__main__":
    sys.exit(main())
