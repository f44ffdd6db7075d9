"""The model that ships, with its real weights, against transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Gemma4ForConditionalGeneration

from ops.train.answering import EngineAnswerer
from photocall.question_parsing import parse_questions
from photocall_engine.tokenizer import ChatTokenizer
from photocall_engine.torch_runner import TorchRunner
from tests.engine.checkpoints import random_image, reference_pixels
from tests.engine.rows_helper import Pager, Prompt, prefill, put_images

MINI = Path(__file__).parents[2] / "models" / "mini"
SAMPLES = Path(__file__).parents[2] / "ops" / "samples"
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


@TOO_LITTLE
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_shipped_model_answers_alike_on_a_gpu() -> None:
    """Sample pictures: the same answers in bfloat16 on a GPU as in float32 on the CPU, as sure within a twentieth."""
    answerers = [EngineAnswerer(MINI, 4, device=device) for device in ("cpu", "cuda")]
    for sample in json.loads((SAMPLES / "samples.json").read_text()):
        pictures = {sample["asset"]: (SAMPLES / sample["file"]).read_bytes()}
        questions = parse_questions(sample["questions"])
        on_cpu, on_gpu = (answerer.ask(sample["state"], questions, pictures)["answers"] for answerer in answerers)
        for name in sample["questions"]:
            cpu, gpu = on_cpu[name], on_gpu[name]
            for said in ("choice", "text", "number"):
                assert cpu.get(said) == gpu.get(said), (sample["file"], name)
            for sure in ("noul", "score", "confidence"):
                assert abs(cpu.get(sure, 0.0) - gpu.get(sure, 0.0)) <= 0.05, (sample["file"], name)
