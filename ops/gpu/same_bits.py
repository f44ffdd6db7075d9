"""The same requests asked in different company: every answer must be the same to the last bit.

At a public checkpoint's shape with random weights: all at once, with and without a step ahead, one at a time, again
from the prefix cache, in small steps, and each of these without captured graphs and with them. Says which answers
differ, and from what.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ops.bench import figures
from ops.bench.stand import SIZES, Sizes, Stand, make_runner
from photocall_engine.edges import EngineRequest
from photocall_engine.torch_runner import TorchRunner

CHUNK = 400  # rows of a step that cuts prompts: more than any picture, less than most requests


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every way gave the same answers, 1 when any did not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SIZES, default="e4b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    found = compare(options.shape, options.device, options.requests)
    figures.tell(found, options.out)
    return 1 if any(found["different"].values()) else 0


def compare(shape: str, device: str, count: int) -> dict[str, Any]:
    """How many answers of each way differ from those of the first, and examples."""
    sizes = SIZES[shape]
    runner = make_runner(shape, device, "invariant", sizes)
    runner.overlaps = True  # on a CPU too
    chunk = min(CHUNK, sizes.rows // 2)
    found: dict[str, dict[str, Any]] = {}
    graphs = False
    for with_graphs in (False, True):
        if with_graphs and not (graphs := runner.enable_graphs()):
            break
        suffix = ", graphs" if with_graphs else ""
        stand = _stand(shape, device, sizes, runner)
        found[f"together{suffix}"] = _asked(stand, _requests(stand, count))
        runner.overlaps = False  # each step is planned when the last one's values are there
        stand = _stand(shape, device, sizes, runner)
        found[f"without a step ahead{suffix}"] = _asked(stand, _requests(stand, count))
        runner.overlaps = True
        stand = _stand(shape, device, sizes, runner)
        found[f"cached{suffix}"] = _asked(stand, _requests(stand, count), twice=True)
        stand = _stand(shape, device, sizes, runner)
        found[f"one at a time{suffix}"] = _one_by_one(stand, _requests(stand, count))
        stand = _stand(shape, device, replace(sizes, rows=chunk), runner)
        found[f"in steps of {chunk} rows{suffix}"] = _asked(stand, _requests(stand, count))
    truth = found["together"]
    different = {way: [name for name in truth if truth[name] != answers[name]] for way, answers in found.items()}
    examples = {
        way: {"first": truth[names[0]], "here": found[way][names[0]]} for way, names in different.items() if names
    }
    return {
        "requests": count,
        "graphs": graphs,
        "different": {w: len(n) for w, n in different.items()},
        "examples": examples,
    }


def _stand(shape: str, device: str, sizes: Sizes, runner: TorchRunner) -> Stand:
    """An engine with nothing in its cache, over a runner that others have used."""
    return Stand(shape, device, "invariant", sizes, runner)


def _requests(stand: Stand, count: int) -> list[EngineRequest]:
    """Pictures and texts of different lengths with one to four questions; the same for every stand."""
    prompts, sizes = stand.prompts, stand.sizes
    made = []
    for number in range(count):
        pictured = number % 3 != 2
        prefix = (prompts.num_soft if pictured else 0) + 40 + 13 * (number % 7)
        questions = tuple(prompts.yes_or_no(sizes.own + i) for i in range(1 + number % 4))
        words = (prompts.words(sizes.own, 12),) if number % 5 == 0 else ()
        image = prompts.picture() if pictured else None
        made.append(prompts.request(prompts.state(prefix, pictured=pictured), questions + words, image))
    return made


def _asked(stand: Stand, requests: list[EngineRequest], *, twice: bool = False) -> dict[str, Any]:
    """Answers by request, all handed in at once; of the second time where they are asked twice."""
    for _ in range(1 + twice):
        stand.serve(requests)
    return {request.job_id: stand.lists.bodies[request.job_id]["answers"] for request in requests}


def _one_by_one(stand: Stand, requests: list[EngineRequest]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for request in requests:
        found |= _asked(stand, [request])
    return found


if __name__ == "__main__":
    sys.exit(main())
