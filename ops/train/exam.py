"""How a model under training does on pictures of the other splits: whole answers, argmax, by split and kind.

Child processes draw the pictures while training runs; the trainer asks at the end. This is quicker and rougher than
`evaluate.py`, which goes through the engine: a number is right only if every character is, unhelped by any grammar.
"""

from __future__ import annotations

import os
import pickle
import random
import traceback
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ops.train.assets import Assets
from ops.train.loader import FULL, Maker, Slot
from ops.train.model import Mini, Packed, blocks_first
from ops.train.pack import PackedRows
from photocall_engine.tokenizer import ChatTokenizer

SEED = 9_000_000_000
PER_CHILD = 12  # chunks


@dataclass(frozen=True, slots=True)
class _Paper:
    """A chunk with the kind of each of its questions, row by row."""

    blocks: tuple[int, int]
    patches: NDArray[np.uint8]
    packs: list[dict[str, NDArray[Any]]]
    asked: list[list[list[tuple[str, str, int]]]]  # [packs][rows] of (type, kind, answer places)


class Examination:
    """Start before CUDA does; `results` waits for the children."""

    def __init__(self, model_dir: Path, assets: Assets, folder: Path, splits: tuple[str, ...], children: int) -> None:
        self._model_dir, self._assets, self._folder = model_dir, assets, folder
        self._parts = [(split, number) for split in splits for number in range(children)]
        self._running: list[int] = []

    def start(self) -> None:
        """Fork the children."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for split, number in self._parts:
            child = os.fork()
            if child == 0:
                try:
                    os.nice(5)
                    self._draw(split, number)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(0)
            self._running.append(child)

    def _file(self, split: str, number: int) -> Path:
        return self._folder / f"{split}-{number}.pickle"

    def _draw(self, split: str, number: int) -> None:
        maker, slot = Maker(self._model_dir, self._assets, split), Slot()
        papers = []
        for turn in range(PER_CHILD):
            seed = SEED + number * PER_CHILD + turn
            blocks = random.Random(seed).choice(FULL.blocks)
            chunk = slot.view(FULL, blocks[0] * blocks[1])
            asked = maker.fill(chunk, FULL, blocks, seed)
            packs = [{n: np.array(getattr(p, n)) for n in PackedRows.__slots__} for p in chunk.packs]
            kept = [[[(str(a.question.type), a.kind, n) for a, n in row] for row in pack] for pack in asked]
            papers.append(_Paper(blocks, np.array(chunk.patches), packs, kept))
        with self._file(split, number).open("wb") as file:
            pickle.dump(papers, file)

    @torch.inference_mode()
    def results(self, model: Mini, device: torch.device) -> dict[str, Any]:
        """By split: accuracy and number of questions by type and by kind, and the mean IoU of boxes."""
        for child in self._running:
            os.waitpid(child, 0)
        digits = [ChatTokenizer(self._model_dir).single(c) for c in "0123456789"]
        found: dict[str, Any] = {}
        for split in dict.fromkeys(split for split, _ in self._parts):
            right: defaultdict[str, list[float]] = defaultdict(list)
            for file in (self._file(s, n) for s, n in self._parts if s == split):
                with file.open("rb") as opened:
                    for paper in pickle.load(opened):
                        _mark(model, device, paper, right, digits)
            means = {name: (round(float(np.mean(of)), 4), len(of)) for name, of in sorted(right.items())}
            found[split] = means
        return found


def _mark(
    model: Mini, device: torch.device, paper: _Paper, right: defaultdict[str, list[float]], digits: list[int]
) -> None:
    """One chunk: `type: ...` and kind names collect 1.0 or 0.0, `iou` the overlap of boxes."""
    rows, columns = paper.blocks
    patches = torch.from_numpy(paper.patches).to(device)
    xy = blocks_first(rows * 3, columns * 3)[1].to(device)
    for arrays, kinds in zip(paper.packs, paper.asked, strict=True):
        tensors = {n: torch.from_numpy(a).to(device) for n, a in arrays.items()}
        long = {n: t.long() if t.dtype == torch.int32 else t for n, t in tensors.items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(Packed(patches=patches, xy=xy, **long))[0]
        said, target = logits.argmax(-1).cpu().numpy(), arrays["target"]
        among = torch.tensor(digits, device=device)
        spread = logits[..., among].float().softmax(-1).cpu().numpy()
        for row, asked in enumerate(kinds):
            at = 0
            for kind_of, kind, places in asked:
                span = slice(at, at + places)
                good = bool((said[row, span] == target[row, span]).all())
                if kind_of == "box" and places > 1:
                    right["iou"].append(_overlap(spread[row, span][1:], target[row, span][1:], digits))
                    good = said[row, at] == target[row, at]
                right[f"type: {kind_of}"].append(float(good))
                right[kind].append(float(good))
                at += places


def _overlap(spread: NDArray[np.float32], target: NDArray[np.int32], digits: list[int]) -> float:
    """Intersection over union; of the second digit's distribution, that behind the right first digit is known alone."""
    said, truth = [], []
    for edge in range(4):
        tens, ones = spread[2 * edge], spread[2 * edge + 1]
        first, second = digits.index(int(target[2 * edge])), digits.index(int(target[2 * edge + 1]))
        off = float((tens * np.arange(10)).sum()) - first
        said.append((10 * first + 10 * off + float((ones * np.arange(10)).sum()) + 0.5) / 100)
        truth.append((10 * first + second + 0.5) / 100)
    (t, b, le, r), (t2, b2, l2, r2) = said, truth
    inner = max(0.0, min(b, b2) - max(t, t2)) * max(0.0, min(r, r2) - max(le, l2))
    union = max(0.0, b - t) * max(0.0, r - le) + (b2 - t2) * (r2 - l2) - inner
    return inner / union if union > 0 else 0.0
