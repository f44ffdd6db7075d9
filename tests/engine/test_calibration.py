from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from photocall_engine.calibration import Calibration, CalibrationError

MINI = Path(__file__).parents[2] / "models" / "mini"


def test_no_file_means_one(tmp_path: Path) -> None:
    assert Calibration.load(tmp_path).temperature("choice") == 1.0


def test_temperatures_by_type(tmp_path: Path) -> None:
    content = {"version": 1, "temperature": {"choice": 1.5, "number": 2}}
    (tmp_path / "calibration.json").write_text(json.dumps(content))
    loaded = Calibration.load(tmp_path)
    assert [loaded.temperature(kind) for kind in ("choice", "number", "noul")] == [1.5, 2.0, 1.0]


def test_types_the_model_was_not_trained_for(tmp_path: Path) -> None:
    (tmp_path / "calibration.json").write_text(json.dumps({"version": 1, "untrained": ["box"]}))
    assert Calibration.load(tmp_path).untrained == {"box"}
    assert Calibration.load(MINI).untrained == frozenset()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ([], "version 1"),
        ({"version": 2}, "version 1"),
        ({"version": 1, "temperature": [1]}, "temperature: expected an object"),
        ({"version": 1, "temperature": {"choise": 1}}, "temperature.choise: expected one of"),
        ({"version": 1, "temperature": {"choice": 0}}, "temperature.choice: expected a number above 0, got 0"),
        ({"version": 1, "temperature": {"choice": "1"}}, "got '1'"),
        ({"version": 1, "untrained": ["boxes"]}, "untrained: expected a list of choice"),
        ({"version": 1, "untrained": "box"}, "untrained: expected a list of choice"),
        ({"version": 1, "temperature": {"choice": True}}, "got True"),
        ('{"version": 1, "temperature": {"choice": NaN}}', "got nan"),
    ],
)
def test_a_bad_file_is_named_with_its_field(tmp_path: Path, content: Any, said: str) -> None:
    file = tmp_path / "calibration.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(CalibrationError) as caught:
        Calibration.load(tmp_path)
    assert str(file) in str(caught.value)
    assert said in str(caught.value)
