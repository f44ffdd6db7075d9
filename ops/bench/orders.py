"""What `order: "debias"` costs: one picture and one question of five options, in pairs, on the shipped model.

`python -m ops.bench.orders`: CPU seconds of this process for a request as given and for one debiased, one after the
other, as many pairs as asked for; the ratio of each pair, and their median. Pictures are never cached.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image

from ops.train.answering import EngineAnswerer, jpeg
from photocall.asking import Asking
from photocall.questions import Choice, Option

MINI = Path(__file__).parents[2] / "models" / "mini"
OPTIONS = ("red", "green", "blue", "yellow", "something else")


def main() -> int:
    """One line a pair, and the median last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    pairs = parser.parse_args().pairs
    answerer = EngineAnswerer(MINI, threads=1)
    given = Choice("colour", "Which colour has the square?", tuple(Option(label) for label in OPTIONS))
    debiased = replace(given, asking=Asking("debias"))
    rng = np.random.default_rng(1)
    ratios = []
    for pair in range(pairs + 1):
        took = {}
        for question in (given, debiased) if pair % 2 else (debiased, given):
            noise = rng.integers(0, 256, (240, 320, 3), dtype=np.uint8)
            picture = {"img": jpeg(Image.fromarray(noise))}
            began = time.process_time()
            answerer.ask("img", (question,), picture)
            took[question.asking.order] = time.process_time() - began
        if pair:  # the first warms up
            ratios.append(took["debias"] / took["as_given"])
            sys.stdout.write(f"as_given {took['as_given']:.3f} s  debias {took['debias']:.3f} s  {ratios[-1]:.2f}\n")
    sys.stdout.write(f"median ratio {median(ratios):.2f} of {pairs} pairs\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
