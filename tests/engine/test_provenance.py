"""What an answer says it comes from: only for those who ask, the same bits for all, each field from who knows it."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from photocall.provenance import Provenance, differences
from photocall.questions import Noul, Text
from photocall.recalibration import Correction, Recalibration
from photocall.views import View
from photocall_engine import checkpoint_hash
from photocall_engine.checkpoint_hash import CheckpointHash, checkpoint_sha256
from photocall_engine.fake_runner import FakeRunner
from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.prompt import PROMPT_VERSION
from photocall_engine.provenance import Origin
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import bench, choice, picture

QUESTIONS = (choice("which", "a", "b", "c"), Noul("is it", "Is it?"), Text("words", "Say it.", 3))


def test_who_asks_for_it_gets_it_and_the_same_bits(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    seen = replace(picture(1), budget=140, fidelity="fast")
    plain = made.ask("plain", "a photo", *QUESTIONS, images={"photo": seen})
    own = Recalibration(types={"choice": Correction(1.0)})
    view = View(background="ff0000")
    name = f"{plain.ask.assets['photo']}?{view}"
    ask = replace(plain.ask, provenance=True, calibration=own, views={"photo": view})
    made.incoming.append(replace(plain, job_id="told", ask=ask, images={name: seen}))
    made.run()
    assert "provenance" not in made.body("plain")
    found: Provenance = made.body("told")["provenance"]
    answers = made.body("told")["answers"]
    assert answers["is it"] == made.body("plain")["answers"]["is it"]
    assert found["job"] == "told"
    assert (found["model"], found["prompt_version"], found["calibration"]) == ("tiny", PROMPT_VERSION, own.id)
    assert isinstance(made.runner, FakeRunner)
    for field in ("numerics", "kernels", "table_sha256", "weights", "torch", "device", "threads"):
        assert found[field] == getattr(made.runner.arithmetic, field)
    assert found["pictures"]["photo"] == {
        "sha256": ask.assets["photo"],
        "view": "background=ff0000",
        "budget": 140,
        "fidelity": "fast",
        "width": 144,
        "height": 96,
        "soft_tokens": 6,
        "pixels_sha256": hashlib.sha256(seen.patches.tobytes()).hexdigest(),
    }
    assert answers["words"]["truncated"] is True
    composed = made.engine.composer.compose(plain)
    tokens = len(composed.prefix.tokens)
    assert found["truncation"] == {"state_tokens": tokens, "state_tokens_dropped": 0, "cut_texts": ["words"]}


def test_what_of_the_state_was_not_read_is_counted(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    request = made.engine.composer.compose(made.ask("half", "words that are half read", *QUESTIONS))
    request.state_read = 5
    told = Origin("tiny", "", made.runner.arithmetic).of(request, {})["truncation"]
    assert told["state_tokens"] == 5
    assert told["state_tokens"] + told["state_tokens_dropped"] == len(request.prefix.tokens) > 10


def test_a_checkpoint_is_hashed_as_sha256sum_would(tmp_path: Path) -> None:
    for name in ("config.json", "b.safetensors", "a.safetensors", "chat_template.jinja", "README.md"):
        (tmp_path / name).write_text(name)
    command = "LC_ALL=C; export LC_ALL; sha256sum *.jinja *.json *.safetensors | sort -k2 | sha256sum"
    said = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    first = checkpoint_sha256(tmp_path)
    assert first == said.split()[0]
    (tmp_path / "README.md").write_text("other words")
    assert checkpoint_sha256(tmp_path) == first
    for name in ("config.json", "a.safetensors", "chat_template.jinja"):
        (tmp_path / name).write_text("other")
        assert checkpoint_sha256(tmp_path) != first, name
        (tmp_path / name).write_text(name)


def test_a_checkpoint_that_is_not_loaded_is_not_hashed_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that fails ends at once, however large the weights are."""
    monkeypatch.setattr(checkpoint_hash, "PIECE_BYTES", 1)
    (tmp_path / "a.safetensors").write_bytes(bytes(1 << 24))  # many seconds, a byte at a time
    with pytest.raises(LookupError), CheckpointHash(tmp_path) as hashing:
        raise LookupError
    with pytest.raises(InterruptedError):
        hashing.result()


def test_the_reference_names_its_numerics_and_its_blocks() -> None:
    plain = ReferenceKernels()
    assert plain.numerics == "invariant"
    assert ReferenceKernels(numerics="fast").numerics == "fast"
    assert plain.table_sha256 == ReferenceKernels().table_sha256 != ReferenceKernels(merged=False).table_sha256


@pytest.mark.parametrize("field", ["model_sha256", "prompt_version", "numerics", "torch", "calibration"])
def test_what_was_made_differently_is_named(tokenizer: ChatTokenizer, field: str) -> None:
    made = bench(tokenizer)
    asked = made.ask("first", "a photo", *QUESTIONS, images={"photo": picture(1)})
    made.incoming = [replace(asked, ask=replace(asked.ask, provenance=True))]
    made.run()
    first: Provenance = made.body("first")["provenance"]
    again: Provenance = {**first, "job": "again"}
    assert differences(first, again) == {}
    again[field] = "another"  # type: ignore[literal-required]
    again["pictures"] = {"photo": {**first["pictures"]["photo"], "budget": 70}}
    before = first[field]  # type: ignore[literal-required]
    assert differences(first, again) == {field: (before, "another"), "pictures.photo.budget": (None, 70)}
