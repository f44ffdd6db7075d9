"""Fits one temperature per question type on the validation split and writes `calibration.json`.

    python -m ops.train.calibrate --assets DIR --pictures 300

The validation split has its own fonts, wordings, layouts and words, neither training's nor the held-out split's. A
temperature minimizes the negative log likelihood of the right answers; a number's is the sum over its characters, each
among the characters a number may have, as the number readout takes them.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ops.train import checkpoint
from ops.train.asker import Asked
from ops.train.draw import Drawer
from ops.train.loader import to_patches
from ops.train.model import Mini, Packed, blocks_first
from ops.train.pack import PackedRows, Packer, answer_ids
from photocall.grid import grid_for
from photocall.questions import Choice, Noul, Number, Score
from photocall_engine.tokenizer import LETTERS, ChatTokenizer
from photocall_prep.resize import to_grid

SEED = 8_000_000_000
LENGTH, ANSWERS = 900, 220
UNTRAINED = {"first": ["box"], "all": []}  # types that weights of a world were not trained for
PRIOR = 0.2
Case = list[tuple[NDArray[np.float64], int]]  # one answer: logits among the allowed tokens, and which is right


class Scorer:
    """Logits at the answers of packed requests, from the training modules."""

    def __init__(self, model: Path) -> None:
        self.tokenizer = ChatTokenizer(model)
        self._packer = Packer(self.tokenizer)
        self._model = Mini(checkpoint.config())
        self._model.load_state_dict({n: t.float() for n, t in checkpoint.load_weights(model).items()})

    def logits(self, drawer: Drawer, seed: int) -> list[tuple[Asked, NDArray[np.float64]]]:
        """Each question of a drawn picture with its logits [answer tokens, vocabulary]."""
        drawn = drawer.drawn(seed, most=14)
        grid = grid_for(*drawn.image.size, checkpoint.BUDGET)
        pixels = torch.from_numpy(
            to_patches(to_grid(drawn.image.convert("RGB"), 1, grid), grid.height // 3, grid.width // 3)
        )
        rows = PackedRows.empty(1, LENGTH, ANSWERS)
        rows.clear()
        keys = drawn.request.keys
        taken = self._packer.fill(rows, 0, drawn.request, dict.fromkeys(keys, grid.num_soft), dict.fromkeys(keys, 0))
        arrays = {name: torch.from_numpy(getattr(rows, name)) for name in PackedRows.__slots__}
        long = {name: a.long() if a.dtype == torch.int32 else a for name, a in arrays.items()}
        with torch.inference_mode():
            logits = self._model(Packed(patches=pixels[None], xy=blocks_first(grid.height, grid.width)[1], **long))[0][
                0
            ]
        at, found = 0, []
        for asked, length in taken:
            found.append((asked, logits[at : at + length].double().numpy()))
            at += length
        return found


def case(tokenizer: ChatTokenizer, asked: Asked, logits: NDArray[np.float64]) -> Case:
    """The answer's logits among what its readout compares, "cannot tell" among them where the prompt offers it."""
    question = asked.question
    ids, _ = answer_ids(tokenizer, question, asked.answer, asked.slot)
    if isinstance(question, Number):
        allowed = [tokenizer.single(char) for char in "0123456789-."] + [tokenizer.end]
        return [(row[allowed], allowed.index(token)) for row, token in zip(logits, ids, strict=True)]
    count = 2
    if isinstance(question, Choice | Score):
        count = len(question.options if isinstance(question, Choice) else question.levels)
    allowed = list(tokenizer.letters[: min(count + asked.slot, len(LETTERS))])
    return [(row[allowed], allowed.index(token)) for row, token in zip(logits, ids, strict=True)]


@dataclass(frozen=True, slots=True)
class Table:
    """All parts of many answers, padded to the widest."""

    logits: NDArray[np.float64]  # [parts, tokens], -inf where a part has fewer
    right: NDArray[np.int64]  # [parts]
    answers: int

    @staticmethod
    def of(cases: list[Case]) -> Table:
        parts = [part for case in cases for part in case]
        logits = np.full((len(parts), max(len(row) for row, _ in parts)), -np.inf)
        for i, (row, _) in enumerate(parts):
            logits[i, : len(row)] = row
        return Table(logits, np.asarray([right for _, right in parts], np.int64), len(cases))

    def loss(self, temperature: float) -> float:
        """Mean negative log likelihood of the right answers."""
        scaled = self.logits / temperature
        top = scaled.max(1)
        rest = np.log(np.exp(scaled - top[:, None]).sum(1))
        return float((top + rest - scaled[np.arange(len(scaled)), self.right]).sum() / self.answers)


def fit(table: Table) -> float:
    """The likeliest temperature between 0.5 and 3, to two decimals.

    A prior (its logarithm normal around 0, PRIOR wide) holds it near 1 where hardly an answer is wrong: without one, a
    set that is all right would want a model that is surer than any evidence.
    """
    steps = np.round(np.arange(0.5, 3.005, 0.01), 2)
    return float(min(steps, key=lambda t: table.answers * table.loss(float(t)) + 0.5 * (np.log(t) / PRIOR) ** 2))


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/mini"))
    parser.add_argument("--assets", type=Path, default=None)
    parser.add_argument("--world", choices=tuple(UNTRAINED), default="first", help="what the weights were trained on")
    parser.add_argument("--pictures", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    scorer, drawer = Scorer(args.model), Drawer("validation", args.assets, args.world == "first")
    cases: defaultdict[str, list[Case]] = defaultdict(list)
    for number in range(args.pictures):
        for asked, logits in scorer.logits(drawer, SEED + number):
            if drawer.plain and (asked.slot or asked.answer is None):
                continue
            codes = isinstance(asked.question, Choice) and len(asked.question.options) > len(LETTERS)
            if isinstance(asked.question, Choice | Noul | Score | Number) and not codes:
                cases[asked.question.type].append(case(scorer.tokenizer, asked, logits))
    tables = {name: Table.of(cases[name]) for name in ("choice", "noul", "score", "number") if cases[name]}
    temperatures = {name: fit(table) for name, table in tables.items()}
    for name, table in tables.items():
        before, after = table.loss(1.0), table.loss(temperatures[name])
        print(f"{name}: {table.answers} answers, temperature {temperatures[name]}, loss {before:.4f} -> {after:.4f}")
    content = {"version": 1, "temperature": temperatures, "untrained": UNTRAINED[args.world]}
    (args.model / "calibration.json").write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
