"""Asks the project's own engine, in this process: pictures go through prep, questions through engine and readout."""

from __future__ import annotations

import io
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from ops.train.checkpoint import BUDGET
from photocall.asks import Ask
from photocall.questions import Json, Question
from photocall_engine.calibration import Calibration
from photocall_engine.edges import Answered, EngineRequest, Outcome
from photocall_engine.engine import build_engine
from photocall_engine.model.config import read_config
from photocall_engine.runner import PatchImage
from photocall_engine.sizing import plan_pools
from photocall_engine.tokenizer import ChatTokenizer
from photocall_engine.torch_runner import TorchRunner
from photocall_prep.prepare import Fidelity, ImagePrep


@dataclass(frozen=True, slots=True)
class _Limits:
    max_image_bytes: int = 32 << 20
    max_pixels: int = 64_000_000
    max_frames: int = 1


class _Queue:
    """An intake and an outlet of lists."""

    def __init__(self) -> None:
        self.waiting: deque[EngineRequest] = deque()
        self.outcomes: dict[str, Outcome] = {}

    def take(self, limit: int, wait_s: float) -> list[EngineRequest]:
        return [self.waiting.popleft() for _ in range(min(limit, len(self.waiting)))]

    def cancelled(self, job_ids: Collection[str]) -> set[str]:
        return set()

    def publish(self, request: EngineRequest, outcome: Outcome) -> None:
        self.outcomes[request.job_id] = outcome

    def event(self, request: EngineRequest, kind: str, data: Mapping[str, Any]) -> None:
        """Nobody listens."""

    def released(self, session_id: str) -> None:
        """No session is asked."""


class EngineAnswerer:
    """One engine over a checkpoint directory."""

    def __init__(
        self,
        model: Path,
        threads: int,
        calibration: Calibration | None = None,
        weights: Literal["bf16", "fp8"] = "bf16",
        device: str = "cpu",
        prep: ImagePrep | None = None,
    ) -> None:
        sizes = plan_pools(read_config(model).text, pages=1024)
        runner = TorchRunner.load(
            model,
            num_pages=sizes.num_pages,
            sliding_pages=sizes.sliding_pages,
            max_rows=2048,
            soft_capacity=sizes.soft_capacity,
            threads=threads,
            weights=weights,
            device=device,
        )
        self._prep = prep or prep_of("fast")
        self._queue = _Queue()
        self._engine = build_engine(
            self._queue,
            self._queue,
            runner,
            ChatTokenizer(model),
            calibration or Calibration.load(model),
            "photocall-mini",
            time.monotonic,
            token_budget=1536,
            max_requests=16,
        )
        self._asked = 0

    def ask(self, state: Json, questions: Sequence[Question], pictures: Mapping[str, bytes]) -> dict[str, Any]:
        """The response body of one request; `pictures` are files by asset key. Raises RuntimeError if it is refused."""
        images = {}
        for key, data in pictures.items():
            prepared = self._prep.prepare(data, BUDGET)
            patches = np.frombuffer(prepared.patches, np.uint8).reshape(-1, 768)
            images[key] = PatchImage(patches, prepared.grid.height, prepared.grid.width)
        self._asked += 1
        job = f"job-{self._asked}"
        # this asker's pictures are never the same twice, so that the asset key and a number stand for their hash
        hashes = {key: f"{self._asked:032x}{number:032x}" for number, key in enumerate(images)}
        ask = Ask(None, state, tuple(questions), hashes)
        self._queue.waiting.append(EngineRequest(job, ask, {hashes[key]: image for key, image in images.items()}))
        while job not in self._queue.outcomes:
            self._engine.step()
        outcome = self._queue.outcomes.pop(job)
        if not isinstance(outcome, Answered):
            raise RuntimeError(f"{job} ended with {outcome}")
        return outcome.body


def prep_of(fidelity: Fidelity) -> ImagePrep:
    """Prepares a trainer's pictures, which need few limits."""
    return ImagePrep(_Limits(), fidelity)


def jpeg(image: Image.Image, quality: int = 90, orientation: int = 1) -> bytes:
    """A picture as a photograph's file; EXIF says the orientation unless it is 1."""
    buffer, exif = io.BytesIO(), Image.Exif()
    if orientation != 1:
        exif[0x0112] = orientation
    image.save(buffer, "JPEG", quality=quality, exif=exif)
    return buffer.getvalue()
