"""Trains models/mini. Run it in pieces: it stops by itself, leaves its state, and goes on from it.

    python -m ops.train.train --model models/mini --assets DIR --out DIR --seconds 560 --total 1200 [--state FILE]

The learning rate follows the seconds trained so far out of `--total`, over all pieces. Checkpoints (bf16, Hugging Face
layout) and `log.jsonl` go to `--out` every three minutes and at the end; `--state` keeps float32 weights and optimizer
for the next piece, and without it a piece goes on from the weights in `--resume`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ops.train import checkpoint
from ops.train.assets import Assets
from ops.train.exam import Examination
from ops.train.feeder import Feeder, Held, packed
from ops.train.loader import PACKS, Loader
from ops.train.marks import MARK_CLASSES, MARK_COLORS
from ops.train.model import Mini, Packed
from ops.train.optimizer import Optimizer
from photocall_engine.tokenizer import ChatTokenizer

BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class MarksHead(nn.Module):
    """For the first part of training: every soft token names what is at each of its nine patches, and its colour."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.classes, self.colors = len(MARK_CLASSES), len(MARK_COLORS)
        self.out = nn.Linear(width, 9 * (self.classes + self.colors))

    def loss(self, soft: Tensor, marks: Tensor) -> Tensor:
        """Mean cross entropy over patches; bare ones count a tenth."""
        said = self.out(soft).unflatten(-1, (9, -1)).flatten(0, 2)
        kinds, colors = said.split((self.classes, self.colors), -1)
        truth = marks.flatten(0, 1).long()
        weight = torch.where(truth[:, 0] > 0, 1.0, 0.1)
        both = F.cross_entropy(kinds.float(), truth[:, 0], reduction="none")
        both = both + 0.5 * F.cross_entropy(colors.float(), truth[:, 1], reduction="none")
        return (both * weight).sum() / weight.sum()


def answer_loss(logits: Tensor, batch: Packed) -> tuple[Tensor, Tensor]:
    """Weighted cross entropy, and which answer tokens are right [R, A] (False where there is none)."""
    loss = F.cross_entropy(logits.flatten(0, 1), batch.target.flatten(), reduction="none", ignore_index=-100)
    weight = batch.weight.flatten()
    right = (logits.argmax(-1) == batch.target) & (batch.target >= 0)
    return (loss * weight).sum() / weight.sum(), right


@dataclass
class Meter:
    """Sums on the device, read rarely."""

    sums: dict[str, Tensor] = field(default_factory=dict)

    def add(self, name: str, value: Tensor, count: Tensor | float = 1.0) -> None:
        """Add to a mean."""
        total = torch.stack((value.detach().float(), torch.as_tensor(count, device=value.device).float()))
        self.sums[name] = self.sums[name] + total if name in self.sums else total

    def read(self) -> dict[str, float]:
        """Means since the last call."""
        found = {name: float(total[0] / total[1].clamp(min=1e-9)) for name, total in self.sums.items()}
        self.sums.clear()
        return {name: round(value, 4) for name, value in found.items()}


def learning_rate(peak: float, progress: float, step: int) -> float:
    """Warm-up by steps, flat for the first part, cosine to 1 % by time."""
    turn = max(0.0, (progress - 0.25) / 0.75)
    return peak * min(1.0, (step + 1) / 150) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, turn))))


class Trainer:
    """The loop: take a batch, step, log, save."""

    def __init__(self, args: argparse.Namespace, loader: Loader) -> None:
        self.args, self.loader = args, loader
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(args.seed)
        self.model = Mini(checkpoint.config()).to(self.device)
        self.marks = MarksHead(256).to(self.device)
        named = dict(self.model.named_parameters()) | {f"marks.{n}": p for n, p in self.marks.named_parameters()}
        self.optimizer = Optimizer(named, args.rate, 0.05)
        self.trained, self.step, self.pictures = float(args.trained), 0, 0
        self.state_file = Path(args.state) if args.state else None
        if self.state_file and self.state_file.exists():
            self._restore(torch.load(self.state_file, map_location=self.device))
        elif args.resume:
            self.model.load_state_dict({n: t.float() for n, t in checkpoint.load_weights(Path(args.resume)).items()})
        if args.compile:
            for layer in (*self.model.tower.encoder.layers, *self.model.decoder.layers):
                layer.compile()
        letters = ChatTokenizer(Path(args.model)).letters
        self.letters = min(letters), max(letters)
        self.out = Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.full = self.trained >= args.small_part * args.total

    def _restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.marks.load_state_dict(state["marks"])
        self.optimizer.restore(state["optimizer"])
        self.trained, self.step, self.pictures = state["trained"], state["step"], state["pictures"]

    def save(self) -> None:
        """Weights to `--out`, everything to `--state`."""
        checkpoint.save_weights(self.out, self.model.checkpoint(), torch.bfloat16)
        if self.state_file:
            state = {
                "model": self.model.state_dict(),
                "marks": self.marks.state_dict(),
                "optimizer": self.optimizer.state(),
            }
            torch.save(state | {"trained": self.trained, "step": self.step, "pictures": self.pictures}, self.state_file)

    def log(self, **values: Any) -> None:
        """One line to the log and to the screen."""
        line = json.dumps(values)
        print(line, flush=True)
        with (self.out / "log.jsonl").open("a") as file:
            file.write(line + "\n")

    def wait(self) -> None:
        """Until the device has done what was issued, so that a clock can be read."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def one_step(self, held: Held, fresh: bool, meter: Meter, progress: float) -> None:
        batch = packed(held, held.uses % PACKS)
        held.uses += 1
        with (
            torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"),
            sdpa_kernel(BACKENDS, set_priority=True),
        ):
            logits, soft = self.model(batch)
            loss, right = answer_loss(logits, batch)
            total = loss
            if progress < self.args.marks_part:
                seen = self.marks.loss(soft, held.marks)
                total = loss + 0.5 * min(1.0, 4 * (1 - progress / self.args.marks_part)) * seen
                meter.add("marks", seen)
        total.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step(learning_rate(self.args.rate, progress, self.step))
        self.step += 1
        self.pictures += len(held.patches)
        meter.add("loss", loss)
        if fresh:
            lettered = (batch.target >= self.letters[0]) & (batch.target <= self.letters[1]) & (batch.weight == 1.0)
            for name, mine in (("letters", lettered), ("characters", (batch.target >= 0) & ~lettered)):
                meter.add(name, (right & mine).sum(), mine.sum())
        meter.add("fresh", torch.tensor(float(fresh), device=self.device))

    def run(self) -> None:
        """Train until the seconds of this piece are over."""
        feeder = Feeder(self.loader, self.device)
        meter, begun, saved, logged, done = Meter(), time.time(), time.time(), time.time(), self.step
        base = self.trained
        first = True
        while time.time() - begun < self.args.seconds:
            progress = self.trained / self.args.total
            if progress >= self.args.small_part and not self.full:
                self.full = True
                self.loader.full_from(feeder.issued)
            held, fresh = feeder.next()
            self.one_step(held, fresh, meter, progress)
            if first:
                self.wait()
                self.log(event="first step", seconds=round(time.time() - begun, 1))
                first = False
            self.trained = base + time.time() - begun
            if time.time() - logged > self.args.log_every:
                self.wait()
                took = time.time() - logged
                self.log(
                    step=self.step,
                    progress=round(progress, 4),
                    pictures=self.pictures,
                    ms=round(1000 * took / max(1, self.step - done), 1),
                    soft=held.xy.shape[0] // 9,
                    batch=len(held.patches),
                    issued=feeder.issued,
                    **meter.read(),
                )
                logged, done = time.time(), self.step
            if time.time() - saved > 180:
                self.save()
                saved = time.time()
        self.save()
        self.log(event="end", trained=round(self.trained, 1), step=self.step, pictures=self.pictures)


def trained_before(args: argparse.Namespace) -> float:
    """Seconds of earlier pieces."""
    if args.state and Path(args.state).exists():
        return float(torch.load(args.state, map_location="cpu")["trained"])
    return float(args.trained)


def main() -> None:
    """Parse and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/mini", help="directory with tokenizer.json and config.json")
    parser.add_argument("--assets", default=None, help="what ops.train.assets made; without it Pillow's own font")
    parser.add_argument("--out", required=True)
    parser.add_argument("--state", default=None)
    parser.add_argument("--resume", default=None, help="checkpoint directory to go on from")
    parser.add_argument("--trained", type=float, default=0.0, help="seconds that --resume was trained")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--total", type=float, required=True)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--small-part", type=float, default=0.2, help="of the training on pictures a quarter the size")
    parser.add_argument("--marks-part", type=float, default=0.35, help="of the training with the auxiliary loss")
    parser.add_argument("--exam", type=int, default=0, help="processes a split that draw pictures to be judged by")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--log-every", type=float, default=10.0)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    assets = Assets(Path(args.assets) if args.assets else None)
    exam = Examination(Path(args.model), assets, Path(args.out) / "exam", ("validation", "heldout"), args.exam)
    exam.start()
    loader = Loader(Path(args.model), assets, args.workers, args.seed)
    if trained_before(args) >= args.small_part * args.total:
        loader.start_full()
    loader.start()
    try:
        trainer = Trainer(args, loader)
        trainer.run()
    finally:
        loader.stop()
    if args.exam:
        results = exam.results(trainer.model.eval(), trainer.device)
        (Path(args.out) / "exam.json").write_text(json.dumps(results, indent=1) + "\n")
        shutil.rmtree(Path(args.out) / "exam")


if __name__ == "__main__":
    main()
