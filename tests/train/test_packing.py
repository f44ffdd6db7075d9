"""A packed row says what its requests would say one by one, and the training modules are Gemma 4."""

from __future__ import annotations

import copy
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Gemma4ForConditionalGeneration

from ops.train import checkpoint
from ops.train.asker import Answer
from ops.train.assets import Assets
from ops.train.draw import Drawer
from ops.train.loader import PACKS, Maker, Slot, Stage, block_order, to_patches
from ops.train.model import SUB, Mini, Packed, blocks_first
from ops.train.pack import PackedRows, Packer, answer_ids
from ops.train.requests import Requester
from photocall.questions import Choice, Noul, Number, Option, Question, Score, Text
from photocall_engine.tokenizer import ChatTokenizer

MINI = Path(__file__).parents[2] / "models" / "mini"
ROWS, COLUMNS = 3, 4  # blocks of the test pictures
TOLERANCE = 2e-5  # float32, two orders of summation


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    """The shipped sizes with few layers and a window that the test prompts outgrow."""
    small = copy.deepcopy(checkpoint.config())
    small["text_config"]["sliding_window"] = 40
    small["text_config"] |= {"num_hidden_layers": 3, "layer_types": small["text_config"]["layer_types"][:3]}
    small["vision_config"]["num_hidden_layers"] = 2
    return small


@pytest.fixture(scope="module")
def model(config: dict[str, Any]) -> Mini:
    torch.manual_seed(0)
    made = Mini(config)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 1:
                parameter.mul_(torch.empty_like(parameter).uniform_(0.5, 1.5))
    return made.eval()


@pytest.fixture(scope="module")
def batch() -> Packed:
    """Two requests: one on two pictures, and one on none."""
    requester, rng, tokenizer = Requester("train"), random.Random(5), ChatTokenizer(MINI)
    drawer = Drawer("train")
    images, made = zip(*(drawer.scene(rng, (COLUMNS * 48, ROWS * 48), "sign") for _ in range(2)), strict=True)
    pixels = [to_patches(np.asarray(i.resize((COLUMNS * 48, ROWS * 48))), ROWS, COLUMNS) for i in images]
    soft = ROWS * COLUMNS
    rows = PackedRows.empty(2, 320, 64)
    rows.clear()
    request = requester.about(rng, made, 6)
    packer = Packer(tokenizer)
    base = {key: i * soft for i, key in enumerate(request.keys)}
    assert len(packer.fill(rows, 0, request, dict.fromkeys(request.keys, soft), base)) >= 3
    assert packer.fill(rows, 1, requester.words_only(rng, 3), {}, {})
    assert any(segment > 0 and segment % SUB for segment in rows.segment[0].tolist()), "no box: draw another"
    arrays = {name: torch.from_numpy(getattr(rows, name)) for name in PackedRows.__slots__}
    long = {name: a.long() if a.dtype == torch.int32 else a for name, a in arrays.items()}
    return Packed(torch.from_numpy(np.stack(pixels)), blocks_first(3 * ROWS, 3 * COLUMNS)[1], **long)


def branches(batch: Packed) -> list[tuple[int, torch.Tensor]]:
    """(row, columns of the prefix, of one branch and, if it is one, of its sub-branch) of every segment."""
    found = []
    for row, own in enumerate(batch.segment):
        for segment in sorted(set(own.tolist()) - {0, -1}):
            found.append((row, (own == 0) | (own == (segment & ~(SUB - 1))) | (own == segment)))
    return found


@torch.inference_mode()
def test_a_branch_is_the_sequence_of_its_prefix_and_itself(model: Mini, batch: Packed) -> None:
    soft = model.see(batch.patches, batch.xy)
    packed = model.logits(model.hidden(batch, soft))
    assert len(branches(batch)) >= 5
    for row, columns in branches(batch):
        length = int(columns.sum())
        cut = {name: getattr(batch, name)[row, columns][None] for name in ("tokens", "pos", "reach", "soft")}
        assert cut["pos"][0].tolist() == list(range(length))
        alone = Packed(batch.patches, batch.xy, segment=torch.zeros(1, length).long(), **cut, place=batch.place,
                       target=batch.target, weight=batch.weight)  # fmt: skip
        assert torch.allclose(model.logits(model.hidden(alone, soft))[0], packed[row, columns], atol=TOLERANCE)


@torch.inference_mode()
def test_the_checkpoint_in_transformers_says_the_same(
    config: dict[str, Any], model: Mini, batch: Packed, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint.save_weights(tmp_path, model.checkpoint(), torch.float32)
    theirs: Any = Gemma4ForConditionalGeneration.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager"
    )
    soft = model.see(batch.patches, batch.xy)
    packed = model.logits(model.hidden(batch, soft))
    y, x = torch.meshgrid(torch.arange(3 * ROWS), torch.arange(3 * COLUMNS), indexing="ij")
    row_major = batch.patches[:, torch.from_numpy(np.argsort(block_order(ROWS, COLUMNS)))].float() / 255
    for row, columns in branches(batch)[::2]:
        ids = batch.tokens[row, columns][None]
        kinds = (ids == config["image_token_id"]).long()
        pictures = {
            "pixel_values": row_major,
            "image_position_ids": torch.stack((x, y), -1).view(1, -1, 2).expand(2, -1, -1),
        }
        said = theirs(input_ids=ids, mm_token_type_ids=kinds, use_cache=False, **(pictures if row == 0 else {})).logits
        assert said.std() >= 0.5
        assert (said[0] - packed[row, columns]).abs().max() <= TOLERANCE


def test_weights_come_back_from_their_shards(model: Mini, tmp_path: Path) -> None:
    checkpoint.save_weights(tmp_path, model.checkpoint(), torch.bfloat16)
    shards = sorted(p.name for p in tmp_path.glob("*.safetensors"))
    assert shards == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    back = checkpoint.load_weights(tmp_path)
    assert back.keys() == model.checkpoint().keys()
    assert all(torch.equal(back[n], t.to(torch.bfloat16)) for n, t in model.checkpoint().items())


def test_the_shipped_files_are_the_ones_that_the_code_writes(tmp_path: Path) -> None:
    checkpoint.write_side_files(tmp_path)
    for file in tmp_path.iterdir():
        assert (MINI / file.name).read_text() == file.read_text(), file.name


def test_answers_are_letters_digits_and_characters() -> None:
    tokenizer = ChatTokenizer(MINI)
    options = tuple(Option(str(n)) for n in range(30))
    cases: list[tuple[Question, Answer, str]] = [
        (Choice("q", "?", options[:4]), "2", "C"),
        (Choice("q", "?", options), "27", "BB"),
        (Noul("q", "?"), True, "A"),
        (Noul("q", "?"), False, "B"),
        (Score("q", "?", ("low", "mid", "high")), 2, "C"),
        (Number("q", "?"), 407, "407"),
        (Text("q", "?"), "Harbour 7", "Harbour 7"),
    ]
    for question, answer, text in cases:
        ids, weights = answer_ids(tokenizer, question, answer)
        assert len(ids) == len(weights)
        assert tokenizer.decode(ids) == text
        assert (ids[-1] == tokenizer.end) == isinstance(question, Number | Text)
        assert len(ids) == len(text) + isinstance(question, Number | Text)


def test_a_worker_fills_a_chunk_of_whole_requests() -> None:
    stage = Stage(pictures=16, length=256, questions=3, blocks=((ROWS, COLUMNS),))
    chunk, again = (Slot().view(stage, ROWS * COLUMNS) for _ in range(2))
    maker = Maker(MINI, Assets(None))
    maker.fill(chunk, stage, (ROWS, COLUMNS), 7)
    maker.fill(again, stage, (ROWS, COLUMNS), 7)
    assert np.array_equal(chunk.patches, again.patches)
    assert chunk.patches.std(axis=(1, 2)).min() > 0
    assert len(chunk.packs) == PACKS
    for pack, same in zip(chunk.packs, again.packs, strict=True):
        assert np.array_equal(pack.tokens, same.tokens)
        pictures = [np.unique(row[row >= 0] // (ROWS * COLUMNS)).tolist() for row in pack.soft]
        assert pictures[14] == [14, 15]
        assert pictures[15] == []
        assert all(pictures[i] == [i] for i in range(14))
        assert (pack.weight.sum(1) > 0).all()
    assert not np.array_equal(chunk.packs[0].tokens, chunk.packs[1].tokens)


def test_block_order_puts_nine_neighbours_together() -> None:
    order = block_order(2, 3)
    assert sorted(order) == list(range(54))
    assert order[:9].tolist() == [0, 1, 2, 9, 10, 11, 18, 19, 20]
    ours, _ = blocks_first(6, 9)
    assert ours.tolist() == order.tolist()


def test_side_files_of_a_copy_make_a_tokenizer(tmp_path: Path) -> None:
    checkpoint.write_side_files(tmp_path)
    shutil.copy(MINI / "tokenizer.json", tmp_path)
    assert ChatTokenizer(tmp_path).marks == ChatTokenizer(MINI).marks
