"""The tower's bench at a shape for any CPU: bits and error are compared, and what differs is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ops.bench import tower
from photocall_engine.model.vision import VisionTower
from photocall_engine.tower_passes import TowerPasses


def test_bits_and_error_are_compared_and_written(tmp_path: Path) -> None:
    out = tmp_path / "tower.json"
    assert tower.main(["--shape", "tiny", "--device", "cpu", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert {"date", "gpu", "commit", "shape", "kernels"} <= found.keys()
    assert len(found["different"]) == 10
    assert not any(found["different"].values())
    assert found["error"]["ours"] < 1e-6


def test_a_picture_that_depends_on_its_place_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = TowerPasses.encode

    def encode(self: TowerPasses, *arguments: object) -> None:
        plain(self, *arguments)  # type: ignore[arg-type]
        self.arena[20:] += 1.0

    monkeypatch.setattr(TowerPasses, "encode", encode)
    found = tower.examine("tiny", "cpu")
    assert not found["holds"]
    assert found["different"]["eager, at place 7 of 8"]
    assert not found["different"]["captured, alone"]


def test_an_error_that_rounding_does_not_explain_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tower._tower

    def broken(*arguments: object) -> VisionTower:
        made = plain(*arguments)  # type: ignore[arg-type]
        made.turns = torch.zeros_like(made.turns[0]), made.turns[1]
        return made

    monkeypatch.setattr(tower, "_tower", broken)
    found = tower.examine("tiny", "cpu")
    assert not found["holds"]
    assert found["error"]["ours"] > 1e-3
    assert not any(found["different"].values())
