"""What 8-bit weights cost in answers: models/mini on its held-out pictures, and random checkpoints in KL.

`python -m ops.bench.fp8_loss` asks the same held-out questions of models/mini with its weights as they are and with
`PHOTOCALL_WEIGHTS=fp8`, and compares next-token distributions of small random checkpoints of each kind (which, with
weights that nothing was trained into, is the harder case). Prints a table and writes JSON under $OUT or
ops/bench/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ops.bench.figures import keep
from ops.bench.random_weights import read_shape, write_checkpoint
from ops.train.answering import EngineAnswerer
from ops.train.draw import Drawer
from ops.train.evaluate import judged_rows
from photocall_engine.model.config import read_config
from photocall_engine.verify import make_samples, our_logits

MINI = Path("models/mini")
Weights = Literal["bf16", "fp8"]
_SIDES: tuple[Weights, Weights] = ("bf16", "fp8")
LAYERS = 12
WIDTH = 256


def main() -> int:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=100.0, help="time for models/mini; pictures until it is over")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    results = [*mini_loss(options.seconds, options.threads)]
    for shape in ("e4b", "31b"):
        results.append(random_loss(shape))
    for line in results:
        print(f"{line['workload']:34} {line['shape']:14} {line['value']:.5f} {line['unit']}")
    keep(f"fp8-loss-{datetime.now(UTC):%Y-%m-%d}", results)
    return 0


def mini_loss(seconds: float, threads: int) -> list[dict[str, Any]]:
    """Accuracy of both on the same pictures, how often they answer alike, and how far their confidence is apart."""
    drawer = Drawer("heldout", None, plain=True)
    askers = {weights: EngineAnswerer(MINI, threads, weights=weights) for weights in _SIDES}
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    began, pictures = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        for weights, asker in askers.items():
            rows[weights] += judged_rows(asker, drawer, "heldout", pictures)
        pictures += 1
    exact, kept = rows["bf16"], rows["fp8"]
    shape = f"mini, {pictures} pictures, {len(exact)} questions"
    found = []
    for kind in ("all", *sorted({row["type"] for row in exact})):
        pairs = [pair for pair in zip(exact, kept, strict=True) if kind in ("all", pair[0]["type"])]
        right = [float(np.mean([side[i]["right"] for side in pairs])) for i in (0, 1)]
        found.append(_figure(f"accuracy bf16, {kind}", shape, right[0], "share", "higher"))
        found.append(_figure(f"accuracy fp8, {kind}", shape, right[1], "share", "higher"))
    same = float(np.mean([_said(a) == _said(b) for a, b in zip(exact, kept, strict=True)]))
    apart = float(np.mean([abs(a["confidence"] - b["confidence"]) for a, b in zip(exact, kept, strict=True)]))
    found.append(_figure("same answer", shape, same, "share", "higher"))
    found.append(_figure("mean difference of confidence", shape, apart, "probability", "lower"))
    return found


def _said(row: dict[str, Any]) -> Any:
    """The answer without its probability: a yes-no's and a score's are numbers that lie between."""
    if row["type"] == "noul":
        return row["said"] >= 0.5
    return round(row["said"]) if row["type"] == "score" else row["said"]


def random_loss(shape: str) -> dict[str, Any]:
    """KL of fp8's next-token distribution from the exact one's, over rows of text and pictures, at a reduced shape."""
    assert read_shape(shape).vision is not None
    raw = reduced(json.loads((Path(__file__).parent / "shapes" / f"{shape}.json").read_text()))
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        write_checkpoint(raw, directory, dtype=torch.float32)
        samples = make_samples(read_config(directory), raw)
        exact, kept = (our_logits(directory, samples, weights=weights) for weights in _SIDES)
    divergence = [_kl(a, b) for a, b in zip(exact, kept, strict=True)]
    value = float(np.concatenate(divergence).mean())
    return _figure("KL of fp8 from bf16", f"{shape}, reduced", value, "nats", "lower")


def reduced(raw: dict[str, Any]) -> dict[str, Any]:
    """The same kind of model, small enough for a CPU: fewer and narrower layers, a small vocabulary."""
    text, vision = raw["text_config"], raw["vision_config"]
    shared = 4 if text.get("num_kv_shared_layers") else 0
    heads = max(1, text["num_key_value_heads"] * 8 // text["num_attention_heads"])
    changes = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "num_hidden_layers": LAYERS, "head_dim": 64}
    changes |= {"global_head_dim": 128, "num_attention_heads": 8, "num_key_value_heads": heads, "vocab_size": 8192}
    changes |= {"layer_types": text["layer_types"][:LAYERS], "num_kv_shared_layers": shared, "sliding_window": 128}
    changes |= {"vocab_size_per_layer_input": 8192, "num_global_key_value_heads": 1}
    changes["hidden_size_per_layer_input"] = 32 if text["hidden_size_per_layer_input"] else 0
    tower = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "position_embedding_size": 512}
    tower |= {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 64}
    ids = {"image_token_id": 8000, "boi_token_id": 8001, "eoi_token_id": 8002}
    return {**raw, **ids, "text_config": text | changes, "vision_config": vision | tower}


def _kl(exact: Any, kept: Any) -> Any:
    logs = [torch.log_softmax(torch.from_numpy(logits).double(), dim=1) for logits in (exact, kept)]
    return (logs[0].exp() * (logs[0] - logs[1])).sum(dim=1).numpy()


def _figure(workload: str, shape: str, value: float, unit: str, better: str) -> dict[str, Any]:
    figure = {"workload": workload, "shape": shape, "numerics": "invariant", "value": value, "unit": unit}
    return {**figure, "goal": None, "floor": None, "better": better}


if __name__ == "__main__":
    sys.exit(main())
