"""The notebooks in examples/, run as a reader would, against one service with the model that ships.

What the model answers is other tests' business; here the notebooks run, and show what their words speak of.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.ipynb"))

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("name", NAMES)
def test_no_output_is_committed(name: str) -> None:
    cells = json.loads((EXAMPLES / f"{name}.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 5
    assert len(cells) - len(code) >= len(code) / 2, "they are written to be read"
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def outputs(name: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything that the notebook shows, as text; fails with the cell that fails."""
    for variable in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setenv("PHOTOCALL_URL", address)
    monkeypatch.delenv("PHOTOCALL_API_KEY", raising=False)
    read: Any = nbformat.read
    notebook = read(EXAMPLES / f"{name}.ipynb", 4)
    client = NotebookClient(notebook, timeout=200, kernel_name="python3", resources={"metadata": {"path": EXAMPLES}})
    client.execute()
    shown: list[Any] = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "\n".join(
        str(output.get("text", "")) + "".join(str(value) for value in output.get("data", {}).values())
        for output in shown
    )


def test_first_questions(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = outputs("first_questions", address, tmp_path, monkeypatch)
    assert "data:image/jpeg;base64," in shown, "the card has its picture"
    for said in ("'sign': '", "nine in ten between", ": not asked", "status", "ended", "invalid_field | ('questions'"):
        assert said in shown


def test_folder_to_table(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = outputs("folder_to_table", address, tmp_path, monkeypatch)
    for said in ("5/5", "broken.jpg image_undecodable", "(True, {'total': 5", "id,car,car_probability,", "C2"):
        assert said in shown


def test_calibration_and_review(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = outputs("calibration_and_review", address, tmp_path, monkeypatch)
    for said in ("cal_", "<svg", "ece", "sure  right", " taken, ", " for people"):
        assert said in shown
