"""The model that ships, with its real weights, against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Gemma4ForConditionalGeneration

from photocall_engine.tokenizer import ChatTokenizer
from photocall_engine.torch_runner import TorchRunner
from tests.engine.checkpoints import random_image, reference_pixels
from tests.engine.rows_helper import Pager, Prompt, prefill, put_images

MINI = Path(__file__).parents[2] / "models" / "mini"
TOLERANCE = 1e-4  # float32 on both sides; two orders of summation
TOO_LITTLE = pytest.mark.skipif(not list(MINI.glob("*.safetensors")), reason="models/mini holds no weights")


@TOO_LITTLE
def test_the_shipped_model_agrees_with_transformers() -> None:
    """A picture of the default budget and a question longer than what is left of the window."""
    runner = TorchRunner.load(MINI, num_pages=40, sliding_pages=39, max_rows=600, soft_capacity=160, threads=1)
    tokenizer = ChatTokenizer(MINI)
    image = random_image(0, 30, 42)
    put_images(runner, [image])
    text = "Which of these is in the picture, a red circle or a blue square? " * 10
    begin = [*tokenizer.marks.header, tokenizer.image_begin]
    tokens = [*begin, *[tokenizer.image] * image.num_soft, tokenizer.image_end]
    tokens += [*tokenizer.encode(text), *tokenizer.marks.footer]
    assert len(tokens) > runner.sliding_window
    ours = prefill(runner, Pager(runner).place(Prompt(tokens, [(len(begin), image.num_soft, 0)])))

    model: Any = Gemma4ForConditionalGeneration.from_pretrained(MINI, dtype=torch.float32, attn_implementation="eager")
    ids = torch.tensor([tokens])
    kinds = (ids == tokenizer.image).long()
    with torch.inference_mode():
        theirs = model(input_ids=ids, mm_token_type_ids=kinds, use_cache=False, **reference_pixels([image])).logits[0]
    assert theirs.std() >= 1
    assert np.abs(ours - theirs.numpy()).max() <= TOLERANCE
