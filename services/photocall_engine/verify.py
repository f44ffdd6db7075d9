"""`python -m photocall_engine.verify DIR`: this engine's logits against transformers', on an operator's checkpoint.

Both run on the CPU in float32, one after the other, over a few samples made here: text, text longer than the sliding
window, and pictures between text. Memory: one copy of the weights at four bytes a parameter at a time. Exits 0 where
every sample agrees, 1 where one does not, 2 where the comparison cannot be made.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from photocall.grid import ProcessorConfigError
from photocall_engine.model.config import MergerConfig, ModelConfig, read_config
from photocall_engine.model.fields import ConfigError
from photocall_engine.model.shards import WeightError
from photocall_engine.rows import PAGE_SIZE, RowBatch
from photocall_engine.runner import PatchImage
from photocall_engine.torch_runner import TorchRunner

TOLERANCE = 2e-3  # two orders of summation in float32 through some fifty layers; a missing feature moves logits by more
MAX_READ = 48  # rows compared of one sample: the whole vocabulary of each
MAX_LONG = 1200
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Sample:
    """One sequence: a picture's soft tokens stand where `spans` says, [start, end) for each picture in order."""

    name: str
    tokens: list[int]
    images: list[PatchImage]
    spans: list[tuple[int, int]]

    @property
    def read(self) -> list[int]:
        """Positions whose logits are compared, the last among them."""
        wanted = np.linspace(0, len(self.tokens) - 1, min(MAX_READ, len(self.tokens)))
        return sorted({round(place) for place in wanted.tolist()})


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far apart the two are on one sample."""

    sample: str
    difference: float  # largest absolute difference of a logit
    spread: float  # standard deviation of the reference's logits
    agreed: int  # rows whose largest logit is the same token
    rows: int

    def __str__(self) -> str:
        return (
            f"{self.sample}: max abs difference {self.difference:.2e} (logits spread {self.spread:.2f}),"
            f" same greedy token in {self.agreed} of {self.rows} rows"
        )

    def within(self, tolerance: float) -> bool:
        """Not merely "not above it": a difference that is no number must not pass."""
        return self.difference <= tolerance

    def to_json(self, tolerance: float) -> dict[str, Any]:
        """A number that JSON has no form for is null."""
        figures = {"difference": self.difference, "spread": self.spread}
        shown = {name: value if math.isfinite(value) else None for name, value in figures.items()}
        return {"sample": self.sample, **shown, "agreed": self.agreed, "rows": self.rows, "ok": self.within(tolerance)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, judge."""
    parser = argparse.ArgumentParser(prog="photocall verify", description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="checkpoint directory")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help=f"default {TOLERANCE:g}")
    parser.add_argument("--json", action="store_true", help="the verdicts as a JSON object")
    options = parser.parse_args(arguments)
    try:
        import transformers
    except ImportError:
        print("photocall verify compares with transformers, which is missing here:", file=sys.stderr)
        print("  pip install 'transformers>=5.17'", file=sys.stderr)
        return 2
    if not options.json:
        print(f"{options.directory} against transformers {transformers.__version__}, float32 on the CPU", flush=True)
    try:
        verdicts = verify(options.directory)
    except (ConfigError, WeightError, ProcessorConfigError, OSError) as error:
        print(f"photocall verify: {error}", file=sys.stderr)
        return 2
    agreed = sum(verdict.within(options.tolerance) for verdict in verdicts)
    ok = agreed == len(verdicts)
    if options.json:
        told = {"checkpoint": str(options.directory), "transformers": transformers.__version__}
        found = [verdict.to_json(options.tolerance) for verdict in verdicts]
        print(json.dumps({**told, "tolerance": options.tolerance, "ok": ok, "samples": found}, ensure_ascii=False))
    else:
        for verdict in verdicts:
            print(verdict)
        print(f"{agreed} of {len(verdicts)} samples agree within {options.tolerance:g}")
    return 0 if ok else 1


def verify(directory: Path) -> list[Verdict]:
    """Both models over all samples. Raises ConfigError, WeightError, OSError."""
    config = read_config(directory)
    samples = make_samples(config, json.loads((directory / "config.json").read_text()))
    ours = our_logits(directory, samples)
    theirs = their_logits(directory, config, samples)
    return [_judge(sample, *pair) for sample, pair in zip(samples, zip(ours, theirs, strict=True), strict=True)]


def make_samples(config: ModelConfig, raw: dict[str, Any]) -> list[Sample]:
    """The sequences to compare; the same for one checkpoint every time."""
    text = config.text
    random = np.random.default_rng(0)

    def words(count: int) -> list[int]:
        special = {text.pad_token_id}
        for name, value in raw.items():
            if name.endswith(("_token_id", "_token_index")):
                special |= set(value if isinstance(value, list) else [value])  # several end tokens come as a list
        found: list[int] = []
        while len(found) < count:
            found += [token for token in random.integers(2, text.vocab_size, count).tolist() if token not in special]
        return found[:count]

    samples = [Sample("text of 40 tokens", words(40), [], [])]
    length = min(text.window + 40, MAX_LONG, text.max_positions)
    if length > 40:
        samples.append(Sample(f"text of {length} tokens, window {text.window}", words(length), [], []))
    if config.vision is None:
        return samples
    image_id, begin, end = (raw.get(name) for name in ("image_token_id", "boi_token_id", "eoi_token_id"))
    for name, grids in (("one picture", [(12, 15)]), ("three pictures", [(9, 6), (3, 3), (15, 21)])):
        tokens, images, spans = words(7), [], []
        for height, width in grids:
            image = _picture(random, height, width)
            tokens += [token for token in (begin,) if token is not None]
            spans.append((len(tokens), len(tokens) + image.num_soft))
            tokens += [image_id or 0] * image.num_soft
            tokens += [token for token in (end,) if token is not None] + words(9)
            images.append(image)
        samples.append(Sample(f"{name} between text", tokens, images, spans))
    return samples


@torch.inference_mode()
def our_logits(directory: Path, samples: list[Sample], weights: Literal["bf16", "fp8"] = "bf16") -> list[Floats]:
    """[len(sample.read), vocabulary] of every sample by this engine. `weights` as in PHOTOCALL_WEIGHTS."""
    longest = max(len(sample.tokens) for sample in samples)
    pages = -(-longest // PAGE_SIZE) + 1
    soft = max(1, *(sum(image.num_soft for image in sample.images) for sample in samples))
    runner = TorchRunner.load(
        directory,
        num_pages=pages,
        sliding_pages=pages - 1,
        max_rows=longest,
        soft_capacity=soft,
        weights=weights,
    )
    runner.set_sliding_map(every := np.arange(pages, dtype=np.int32), every)
    found = []
    for sample in samples:
        bases = np.cumsum([0, *(image.num_soft for image in sample.images)])[:-1].tolist()
        if sample.images:
            runner.encode_images(sample.images, bases)
        runner.forward(_batch(sample, bases, runner.bidirectional_images))
        found.append(runner.logits_rows(np.arange(len(sample.read), dtype=np.int32)))
    return found


@torch.inference_mode()
def their_logits(directory: Path, config: ModelConfig, samples: list[Sample]) -> list[Floats]:
    """The same by transformers."""
    model = _reference(directory, config)
    found = []
    for sample in samples:
        ids = torch.tensor([sample.tokens])
        arguments: dict[str, Any] = {}
        if config.multimodal:
            types = torch.zeros_like(ids)
            for start, end in sample.spans:
                types[0, start:end] = 1
            if isinstance(config.vision, MergerConfig):  # plain forward contradicts `generate` about full layers
                embedded = model.get_input_embeddings()(ids)
                places = torch.arange(ids.shape[1])[None]
                arguments["attention_mask"] = model.create_masks_for_generate(
                    model.config, embedded, torch.ones_like(ids), None, places, types
                )
            else:
                arguments["mm_token_type_ids"] = types
        if sample.images:
            arguments |= _pixels(sample.images, merged=isinstance(config.vision, MergerConfig))
        keep = torch.tensor(sample.read)
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=keep, **arguments).logits[0]
        found.append(logits.float().numpy())
    return found


def _reference(directory: Path, config: ModelConfig) -> Any:
    import transformers

    raw = json.loads((directory / "config.json").read_text())
    family = "Gemma4Unified" if raw["model_type"].startswith("gemma4_unified") else "Gemma4"
    kind = "ForConditionalGeneration" if config.multimodal else "ForCausalLM"
    cls = getattr(transformers, family + kind)
    return cls.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()


def _batch(sample: Sample, bases: list[int], bidirectional: bool) -> RowBatch:
    """The whole sequence as one forward, on pages 1, 2, ..."""
    count = len(sample.tokens)
    pos = np.arange(count, dtype=np.int32)
    hi, soft = pos + 1, np.full(count, -1, dtype=np.int32)
    sliding = hi.copy()
    for (start, end), base in zip(sample.spans, bases, strict=True):
        soft[start:end] = base + np.arange(end - start)
        if bidirectional:
            sliding[start:end] = end
    nothing = np.zeros(0, dtype=np.int32)
    return RowBatch(
        tokens=np.array(sample.tokens, dtype=np.int32),
        pos=pos,
        slot=pos + PAGE_SIZE,
        bt_off=np.zeros(count, dtype=np.int32),
        kv_hi=hi,
        kv_hi_sliding=sliding,
        block_tables=np.arange(1, -(-count // PAGE_SIZE) + 1, dtype=np.int32),
        extra_row=nothing,
        extra_slot=nothing,
        soft_idx=soft,
        read=np.array(sample.read, dtype=np.int32),
        decode=False,
    )


def _picture(random: np.random.Generator, height: int, width: int) -> PatchImage:
    """A bright disc on a slope of colour, with some noise, so that no two places are alike."""
    y, x = np.mgrid[0 : height * 16, 0 : width * 16].astype(np.float32)
    slope = np.stack([x / x.max() * 200, y / y.max() * 200, (x + y) / (x + y).max() * 90], axis=-1)
    disc = (x - x.max() / 3) ** 2 + (y - y.max() / 2) ** 2 < (min(height, width) * 5) ** 2
    slope[disc] = (240, 230, 40)
    pixels = np.clip(slope + random.normal(0, 12, slope.shape), 0, 255).astype(np.uint8)
    patches = pixels.reshape(height, 16, width, 16, 3).transpose(0, 2, 1, 3, 4).reshape(height * width, 768)
    return PatchImage(np.ascontiguousarray(patches), height, width)


def _pixels(images: list[PatchImage], *, merged: bool) -> dict[str, torch.Tensor]:
    """What the reference's processor passes: values in [0, 1] with (x, y) places, padded to the longest picture."""
    side = 3 if merged else 1
    parts = [_cut(image, side) for image in images]
    longest = max(len(values) for values, _ in parts)
    pixels = torch.zeros(len(images), longest, 768 * side**2)
    places = torch.full((len(images), longest, 2), -1)
    for i, (values, place) in enumerate(parts):
        pixels[i, : len(values)], places[i, : len(values)] = values, place
    return {"pixel_values": pixels, "image_position_ids": places}


def _cut(image: PatchImage, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Squares of side x side patches, each by lines of pixels, and the column and line of each."""
    rows, columns = image.grid_height // side, image.grid_width // side
    patches = torch.from_numpy(image.patches.astype(np.float32) / 255)
    square = patches.view(rows, side, columns, side, 16, 16, 3).permute(0, 2, 1, 4, 3, 5, 6)
    index = torch.arange(rows * columns)
    return square.reshape(rows * columns, -1), torch.stack((index % columns, index // columns), dim=1)


def _judge(sample: Sample, ours: Floats, theirs: Floats) -> Verdict:
    agreed = int((ours.argmax(axis=1) == theirs.argmax(axis=1)).sum())
    return Verdict(sample.name, float(np.abs(ours - theirs).max()), float(theirs.std()), agreed, len(theirs))


if __name__ == "__main__":
    sys.exit(main())
