"""An engine on a stand: random weights at a public checkpoint's shape, requests from a list, outcomes into a list.

The engine, the scheduler, the composer and the runner are those that serve; Redis, prep and HTTP are left out.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from ops.bench.prompts import Prompts, write_tokenizer
from ops.bench.random_weights import SHAPES, random_checkpoint
from photocall.settings import STEP_ROWS
from photocall_engine import kernels as kernel_choice
from photocall_engine.calibration import Calibration
from photocall_engine.edges import Answered, EngineRequest, Outcome
from photocall_engine.engine import Engine, build_engine
from photocall_engine.model.checkpoint import make_encoder
from photocall_engine.model.config import ModelConfig, parse_config
from photocall_engine.model.gemma4 import TextDecoder
from photocall_engine.runner import ModelRunner
from photocall_engine.tokenizer import ChatTokenizer
from photocall_engine.torch_runner import TorchRunner

BENCH = "bench"
Numerics: TypeAlias = Literal["invariant", "fast"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything is measured at one shape."""

    pages: int  # of both pools
    grid: tuple[int, int] = (42, 60)  # of a picture, in patches: 960 x 672 pixels, 280 soft tokens
    text: int = 66  # tokens of a request beside its picture
    own: int = 31  # of them the question's
    offline: int = 256  # requests at once
    singles: int = 30  # one after another
    pictures: int = 32  # with `questions` each
    questions: int = 8
    batches: tuple[int, ...] = (1, 16, 64, 256)  # texts decoded together
    prompt: int = 128
    out: int = 128
    rows: int = STEP_ROWS["cuda"]  # of one forward, and of one step's plan


SIZES = {
    "e2b": Sizes(16_384),
    "e4b": Sizes(16_384),
    "12b": Sizes(4_096, batches=(1, 16, 64)),
    "26b-a4b": Sizes(4_096, batches=(1, 16, 64)),
    "31b": Sizes(3_072, offline=96, singles=12, batches=(1, 16, 64)),
    "tiny": Sizes(
        512, grid=(9, 12), offline=6, singles=3, pictures=3, questions=3, batches=(1, 4), prompt=40, out=6, rows=256
    ),
}

# Small enough for any CPU, with every part that the public shapes have.
TINY: dict[str, Any] = {
    "model_type": "gemma4",
    "image_token_id": 5,
    "boi_token_id": 6,
    "eoi_token_id": 7,
    "text_config": {
        "model_type": "gemma4_text",
        "vocab_size": 512,
        "vocab_size_per_layer_input": 512,
        "hidden_size": 64,
        "intermediate_size": 80,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "global_head_dim": 32,
        "sliding_window": 48,
        "final_logit_softcapping": 30.0,
        "max_position_embeddings": 8192,
        "hidden_size_per_layer_input": 8,
        "num_kv_shared_layers": 2,
    },
    "vision_config": {
        "model_type": "gemma4_vision",
        "hidden_size": 48,
        "intermediate_size": 56,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "head_dim": 16,
        "position_embedding_size": 256,
    },
}


class NotAnsweredError(RuntimeError):
    """A request of a bench came to another end than an answer."""


def config_of(shape: str) -> dict[str, Any]:
    """config.json of a shape."""
    if shape == "tiny":
        return TINY
    found: dict[str, Any] = json.loads((SHAPES / f"{shape}.json").read_text())
    return found


@dataclass
class Lists:
    """Both edges of the engine."""

    incoming: list[EngineRequest] = field(default_factory=list)
    ended: dict[str, float] = field(default_factory=dict)  # job id: when, on the performance counter
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)

    def take(self, limit: int, wait_s: float) -> list[EngineRequest]:
        """See Intake."""
        taken, self.incoming = self.incoming[:limit], self.incoming[limit:]
        return taken

    def cancelled(self, job_ids: Collection[str]) -> set[str]:
        """Nobody takes anything back."""
        return set()

    def publish(self, request: EngineRequest, outcome: Outcome) -> None:
        """See Outlet. Raises NotAnsweredError."""
        if not isinstance(outcome, Answered):
            raise NotAnsweredError(f"{request.job_id}: {outcome}")
        self.ended[request.job_id] = time.perf_counter()
        self.bodies[request.job_id] = outcome.body

    def event(self, request: EngineRequest, kind: str, data: Mapping[str, Any]) -> None:
        """Nobody listens."""

    def released(self, session_id: str) -> None:
        """No session is asked."""


class Stand:
    """An engine that is ready, and how to keep it busy."""

    def __init__(self, shape: str, device: str, numerics: Numerics, sizes: Sizes, runner: ModelRunner) -> None:
        self.shape, self.numerics, self.sizes, self.runner = shape, numerics, sizes, runner
        self.device = torch.device(device)
        with tempfile.TemporaryDirectory() as directory:
            self.tokenizer = ChatTokenizer(write_tokenizer(Path(directory), config_of(shape)))
        self.prompts = Prompts(self.tokenizer, sizes.grid)
        self.lists = Lists()
        self.steps: list[tuple[float, int]] = []  # of the last `serve`: seconds and rows of each step
        self.engine: Engine = build_engine(
            self.lists,
            self.lists,
            runner,
            self.tokenizer,
            Calibration(),
            BENCH,
            time.monotonic,
            token_budget=sizes.rows,
            max_requests=max(sizes.offline, *sizes.batches),
            numerics=numerics,
        )

    def serve(self, requests: list[EngineRequest]) -> list[float]:
        """Hand all in at once and run until all are answered: seconds to each answer. Raises NotAnsweredError."""
        lists = self.lists
        lists.ended.clear()
        lists.bodies.clear()
        lists.incoming = list(requests)
        self.steps.clear()
        started = now = time.perf_counter()
        while len(lists.ended) < len(requests):
            rows = self.engine.rows
            self.engine.step()
            before, now = now, time.perf_counter()
            self.steps.append((now - before, self.engine.rows - rows))
        return [lists.ended[request.job_id] - started for request in requests]


def make_runner(shape: str, device: str, numerics: Numerics, sizes: Sizes) -> TorchRunner:
    """Random weights of a shape on a device, behind the runner that serves; graphs are not captured yet."""
    place = kernel_choice.find_device(device)
    dtype = torch.bfloat16 if place.type == "cuda" else torch.float32
    made = random_checkpoint(parse_config(config_of(shape)), place, dtype)
    linears = made.text.linears() + ([] if made.seeing is None else made.seeing.linears())
    kernels = kernel_choice.choose(place, linears, _head_dims(made.config), numerics=numerics)
    return TorchRunner(
        made.config,
        TextDecoder(made.config.text, made.text, kernels),
        make_encoder(made.config, made.seeing, kernels),
        num_pages=sizes.pages,
        sliding_pages=sizes.pages - 1,
        max_rows=sizes.rows,
        soft_capacity=max(sizes.pictures, 32) * sizes.grid[0] * sizes.grid[1] // 9,
    )


def _head_dims(config: ModelConfig) -> set[int]:
    return {layer.head_dim for layer in config.text.layers}
