"""The look at every operation, at a shape for any CPU: what breaks is named, with what went into it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ops.gpu import finite
from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.kernels.vision_reference import ReferenceVision


def test_a_sound_engine_holds(tmp_path: Path) -> None:
    out = tmp_path / "finite.json"
    assert finite.main(["--shape", "tiny", "--device", "cpu", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert list(found["ways"]) == ["text", "picture"]
    names = {name.split(" [")[0] for name in found["ways"]["picture"]["errors"]}
    assert {"tower.turn", "tower.attend", "tower.pool", "tower products.gated", "decoder.unfinished"} <= names


def test_the_first_operation_that_gives_no_numbers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ReferenceKernels.embed

    def embed(self: ReferenceKernels, *arguments: Any) -> torch.Tensor:
        out = plain(self, *arguments)
        out[3] = torch.nan
        return out

    monkeypatch.setattr(ReferenceKernels, "embed", embed)
    found = finite.examine("tiny", "cpu")
    assert not found["holds"]
    first, second, *_ = found["ways"]["text"]["bad"]
    assert (first["name"], first["rows"], first["first_row"], first["inputs_finite"]) == ("decoder.embed", 1, 3, True)
    assert second["number"] > first["number"]
    assert not second["inputs_finite"]


def test_an_operation_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(ReferenceVision):
        def pool(self, *arguments: Any) -> torch.Tensor:
            return super().pool(*arguments) * 1.1

    monkeypatch.setattr(finite, "ReferenceVision", Other)
    found = finite.examine("tiny", "cpu")
    assert not found["holds"]
    assert [name.split(" [")[0] for name in found["wrong"]] == ["tower.pool"]
