"""What an engine's answers come from: the part that is the same for all of them, and that of one request.

The runner says how it computes, the checkpoint is hashed as it lies there, prep has said how it made the pictures, and
the request knows what it ran. Nothing is asked of anybody until an answer wants it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from photocall.grid import PATCH_SIZE
from photocall.provenance import Provenance, SeenPicture, Truncation
from photocall.views import PLAIN
from photocall_engine.prompt import PROMPT_VERSION
from photocall_engine.runner import Arithmetic, PatchImage
from photocall_engine.sequence import Request


@dataclass(frozen=True, slots=True)
class Origin:
    """An engine as its answers name it. `model_sha256`: of the checkpoint directory, by `checkpoint_hash`."""

    model: str
    model_sha256: str
    arithmetic: Arithmetic

    def of(self, request: Request, answers: Mapping[str, Any]) -> Provenance:
        """Of one request that is done, with the answers it got."""
        ask = request.origin.ask
        own = ask.calibration
        return {
            "job": request.job_id,
            "model": self.model,
            "model_sha256": self.model_sha256,
            "prompt_version": PROMPT_VERSION,
            "calibration": None if own is None else own.id,
            **asdict(self.arithmetic),  # type: ignore[typeddict-item]
            "pictures": {key: _seen(request, key) for key in ask.assets},
            "truncation": _truncation(request, answers),
        }


def _seen(request: Request, key: str) -> SeenPicture:
    ask = request.origin.ask
    image: PatchImage = request.origin.images[ask.pictures[key]]
    view = ask.views.get(key, PLAIN)
    seen: SeenPicture = {
        "sha256": ask.assets[key],
        "budget": image.budget,
        "fidelity": image.fidelity,
        "width": image.grid_width * PATCH_SIZE,
        "height": image.grid_height * PATCH_SIZE,
        "soft_tokens": image.num_soft,
        "pixels_sha256": hashlib.sha256(image.patches.tobytes()).hexdigest(),
    }
    return seen if view == PLAIN else {**seen, "view": str(view)}


def _truncation(request: Request, answers: Mapping[str, Any]) -> Truncation:
    return {
        "state_tokens": request.state_read,
        "state_tokens_dropped": len(request.prefix.tokens) - request.state_read,
        "cut_texts": [name for name, answer in answers.items() if answer.get("truncated")],
    }
