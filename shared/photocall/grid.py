"""From a picture's size to its patch grid: the one function that prep and the engine must agree on.

The rule is the reference image processor's (`get_aspect_ratio_preserving_size` in transformers' models/gemma4), in
float64 and in its order of operations: floors sit on exact multiples of 48 for common sizes, so one rounding more or
less moves a picture by a whole row of soft tokens. Knows nothing of pixels, decoders or weights.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PATCH_SIZE = 16  # pixels, each side
POOL = 3  # patches a soft token pools, each side
PATCH_BYTES = PATCH_SIZE * PATCH_SIZE * 3
BUDGETS = (70, 140, 280, 560, 1120)  # soft tokens a picture may take; the values the checkpoints were trained with

# Part of every blob key: raise it whenever prep would make other bytes from the same picture.
PIPELINE_VERSION = 3

_BICUBIC = 3  # PIL.Image.Resampling.BICUBIC
_SOFT_SIDE = PATCH_SIZE * POOL


class ProcessorConfigError(ValueError):
    """A checkpoint asks for pictures to be prepared in a way this pipeline does not."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A prepared picture's size in patches; both sides are multiples of 3."""

    height: int
    width: int

    @property
    def num_soft(self) -> int:
        """Soft tokens: one per 3 x 3 block of patches."""
        return self.height * self.width // (POOL * POOL)

    @property
    def num_patches(self) -> int:
        """Patches, row-major."""
        return self.height * self.width

    @property
    def pixels(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        return self.height * PATCH_SIZE, self.width * PATCH_SIZE


def grid_for(width: int, height: int, budget: int) -> Grid:
    """The grid of an upright picture of this size: the aspect ratio kept, at most `budget` soft tokens.

    Small pictures are scaled up. Raises ValueError for a side below 1 or a budget below 1.
    """
    if width < 1 or height < 1:
        raise ValueError(f"a picture needs both sides >= 1, got {width}x{height}")
    if budget < 1:
        raise ValueError(f"a picture needs a budget >= 1, got {budget}")
    target = budget * POOL * POOL * PATCH_SIZE * PATCH_SIZE
    factor = math.sqrt(target / (height * width))
    rows = math.floor(factor * height / _SOFT_SIDE)
    columns = math.floor(factor * width / _SOFT_SIDE)
    if rows == 0:
        rows, columns = 1, min(math.floor(width / height), budget)
    elif columns == 0:
        rows, columns = min(math.floor(height / width), budget), 1
    return Grid(height=rows * POOL, width=columns * POOL)


@dataclass(frozen=True, slots=True)
class ProcessorConfig:
    """What a checkpoint says about preparing pictures, checked against what this pipeline does."""

    budget: int  # soft tokens a picture takes unless the request says otherwise
    max_budget: int  # the largest budget whose longest side still fits the checkpoint's position table

    @classmethod
    def read(cls, model_dir: Path) -> ProcessorConfig:
        """Read `processor_config.json` or `preprocessor_config.json`, and the table's size from `config.json`.

        Raises ProcessorConfigError naming the file, the field and its value.
        """
        path, fields = _image_processor(model_dir)
        expected: dict[str, object] = {
            "patch_size": PATCH_SIZE,
            "pooling_kernel_size": POOL,
            "resample": _BICUBIC,
            "do_resize": True,
            "do_rescale": True,
            "do_convert_rgb": True,
            "do_normalize": False,
        }
        for name, value in expected.items():
            if fields.get(name, value) != value:
                raise ProcessorConfigError(
                    f"{path}: {name}={fields[name]!r}; photocall prepares pictures with {value!r}"
                )
        budget = fields.get("max_soft_tokens", 280)
        if budget not in BUDGETS:
            raise ProcessorConfigError(f"{path}: max_soft_tokens={budget!r}; expected one of {BUDGETS}")
        max_budget = _max_budget(model_dir / "config.json")
        if budget > max_budget:
            raise ProcessorConfigError(
                f"{path}: max_soft_tokens={budget}; the model's position table ends at {max_budget}"
            )
        return cls(budget=budget, max_budget=max_budget)

    @property
    def allowed(self) -> tuple[int, ...]:
        """The budgets a picture may be given with this checkpoint."""
        return tuple(budget for budget in BUDGETS if budget <= self.max_budget)

    @property
    def hash(self) -> str:
        """Names the bytes that prep makes; the budget is not in it, because blob keys carry it beside this."""
        described = f"photocall-prep/{PIPELINE_VERSION} patch={PATCH_SIZE} pool={POOL} resample={_BICUBIC} uint8"
        return hashlib.sha256(described.encode()).hexdigest()[:16]


def processor_hash(model_dir: Path) -> str:
    """The hash a blob must carry to be usable with this checkpoint."""
    return ProcessorConfig.read(model_dir).hash


def _image_processor(model_dir: Path) -> tuple[Path, Mapping[str, object]]:
    for name in ("processor_config.json", "preprocessor_config.json"):
        path = model_dir / name
        if not path.exists():
            continue
        fields = _json_object(path)
        nested = fields.get("image_processor")
        if isinstance(nested, dict):
            return path, nested
        if name == "preprocessor_config.json" or "patch_size" in fields:
            return path, fields
    raise ProcessorConfigError(f"{model_dir}: no image settings in processor_config.json or preprocessor_config.json")


def _max_budget(path: Path) -> int:
    """A grid's longest side is 3 * budget patches or `budget` soft tokens, and each needs its row of the table."""
    if not path.exists():
        raise ProcessorConfigError(f"{path}: not there")
    vision = _json_object(path).get("vision_config")
    if not isinstance(vision, dict):
        return max(BUDGETS)
    for name, per_soft_token in (("position_embedding_size", POOL), ("mm_posemb_size", 1)):
        rows = vision.get(name)
        if rows is None:
            continue
        if not isinstance(rows, int) or rows < per_soft_token * min(BUDGETS):
            raise ProcessorConfigError(f"{path}: {name}={rows!r}; expected at least {per_soft_token * min(BUDGETS)}")
        return max(budget for budget in BUDGETS if per_soft_token * budget <= rows)
    return max(BUDGETS)


def _json_object(path: Path) -> dict[str, object]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ProcessorConfigError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ProcessorConfigError(f"{path}: expected a JSON object")
    return value
