"""8-bit matrices: how exact they are, products on the reference and in Triton, and loading without the full ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.engine.interpreter import DEVICE

# isort: split
from photocall_engine.kernels.fp8 import LARGEST, Fp8Weight
from photocall_engine.kernels.matmul_plan import Form
from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.kernels.triton_fused import geglu
from photocall_engine.kernels.triton_matmul import gated, matmul
from photocall_engine.model.checkpoint import read_weights, weight_bytes
from photocall_engine.model.config import ModelConfig, read_config
from photocall_engine.model.shards import WeightError
from photocall_engine.torch_runner import TorchRunner
from tests.engine.checkpoints import DENSE, ETYPE, VISION, Checkpoint, make_checkpoint
from tests.engine.rows_helper import Pager, prefill
from tests.engine.test_gemma4 import IMAGES, picture_prompt
from tests.engine.test_triton_matmul import FORMS, PLAN, WHOLE, draw


def quantised(weight: torch.Tensor) -> Fp8Weight:
    made = Fp8Weight.empty(weight.shape, weight.device)
    made.put(0, weight)
    return made


def test_values_keep_three_bits_and_every_row_its_own_range() -> None:
    weight = draw(40, 96) * 10.0 ** torch.linspace(-6, 3, 40, device=DEVICE)[:, None]
    weight[7] = 0.0
    made = quantised(weight)
    error = (made.dequantised() - weight).abs()
    smallest = weight.abs().amax(dim=1, keepdim=True) / LARGEST * 2**-6  # below it the format has fewer bits
    assert (error <= weight.abs() * 2**-4 + smallest * 2**-4).all()
    assert made.values.float().abs().amax(dim=1)[torch.arange(40) != 7].eq(LARGEST).all()
    assert made.dequantised()[7].eq(0).all()
    part = made[8:20]
    assert part.shape == (12, 96)
    assert torch.equal(part.dequantised(), made.dequantised()[8:20])


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_rows_may_come_in_pieces(rows: int) -> None:
    weight = draw(40, 64, dtype=torch.bfloat16)
    made = Fp8Weight.empty(weight.shape, weight.device)
    for first in range(0, 40, rows):
        made.put(first, weight[first : first + rows])
    assert torch.equal(made.dequantised(), quantised(weight).dequantised())


def test_the_reference_multiplies_with_what_is_kept() -> None:
    x, made = draw(32, 96).cpu(), quantised(draw(48, 96, seed=1).cpu())
    found = ReferenceKernels().linear(x, made)
    exact = x.double() @ made.dequantised(torch.float64).T
    assert (found - exact).abs().max() <= 1e-4


@FORMS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_triton_multiplies_with_what_is_kept_and_keeps_bits(form: Form, dtype: torch.dtype) -> None:
    """Few rows (parts are added, then scaled) and many (one program walks the splits) give a row the same bits."""
    plan = replace(PLAN, form=form)
    x, made = draw(90, 208, dtype=dtype), quantised(draw(40, 208, seed=1, dtype=dtype))
    every = matmul(x, made, plan)
    exact = x.double() @ made.dequantised(torch.float64).T
    relative = 2.0**-8 if dtype == torch.bfloat16 else 0.0
    assert ((every.double() - exact).abs() <= 3e-4 + relative * exact.abs()).all()
    for start, count in ((0, 1), (63, 17), (20, 64)):
        assert torch.equal(matmul(x[start : start + count], made, plan, programs=3), every[start : start + count])
    whole = replace(WHOLE, form=form)
    wide = matmul(x, made, whole)
    assert torch.equal(gated(x, made, whole), geglu(wide[:, :20], wide[:, 20:]))


@pytest.fixture(scope="module", params=[DENSE, ETYPE], ids=["dense", "etype"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("fp8"), request.param, VISION)


def load(checkpoint: Checkpoint, weights: str) -> TorchRunner:
    return TorchRunner.load(
        checkpoint.directory,
        weights="fp8" if weights == "fp8" else "bf16",
        num_pages=48,
        sliding_pages=47,
        max_rows=512,
        soft_capacity=64,
    )


def test_a_loaded_model_holds_the_quantised_matrices(checkpoint: Checkpoint) -> None:
    config = read_config(checkpoint.directory)
    device = torch.device("cpu")
    plain, _ = read_weights(checkpoint.directory, config, device, torch.float32)
    text, seeing = read_weights(checkpoint.directory, config, device, torch.float32, fp8=True)
    assert seeing is not None
    for exact, kept in zip(plain.layers, text.layers, strict=True):
        qkv = kept.qkv
        assert isinstance(qkv, Fp8Weight)
        assert torch.equal(qkv.dequantised(), quantised(exact.qkv).dequantised())
        assert torch.equal(kept.input_norm, exact.input_norm)
        assert torch.equal(kept.scalar, exact.scalar)
    assert text.head is text.embedding
    assert torch.equal(text.embedding, plain.embedding)


def test_the_runner_answers_as_one_with_dequantised_weights_would(checkpoint: Checkpoint) -> None:
    """And differs from the exact one: a path that ignored the setting would not."""
    ours = load(checkpoint, "fp8")
    prompt = Pager(ours).place(picture_prompt(ours))
    found = prefill(ours, prompt)
    exact = load(checkpoint, "bf16")
    prompt = Pager(exact).place(picture_prompt(exact))
    assert abs(found - prefill(exact, prompt)).max() > 1e-2
    for layer, quant in zip(exact.decoder.weights.layers, ours.decoder.weights.layers, strict=True):
        for name in ("qkv", "o", "gate", "up", "gate_up", "down"):
            if isinstance(kept := getattr(quant, name, None), Fp8Weight):
                getattr(layer, name).copy_(kept.dequantised())
    prompt = Pager(exact, first_page=24).place(picture_prompt(exact))
    assert abs(found - prefill(exact, prompt)).max() <= 1e-4
    assert len(IMAGES) == 3


def test_bytes_are_counted_as_they_are_kept(checkpoint: Checkpoint) -> None:
    config: ModelConfig = read_config(checkpoint.directory)
    text, _ = read_weights(checkpoint.directory, config, torch.device("cpu"), torch.bfloat16, fp8=True)
    saved = 0
    for layer in text.layers:
        for name in ("qkv", "o", "gate", "up", "gate_up", "down"):
            if isinstance(kept := getattr(layer, name, None), Fp8Weight):
                saved += kept.values.numel() - 4 * len(kept.scale)
    assert weight_bytes(config, torch.bfloat16) - weight_bytes(config, torch.bfloat16, fp8=True) == saved > 0


def test_a_misshaped_tensor_is_named_here_too(checkpoint: Checkpoint) -> None:
    config = read_config(checkpoint.directory)
    wider = tuple(replace(layer, intermediate_size=96) for layer in config.text.layers)
    changed = replace(config, text=replace(config.text, layers=wider))
    with pytest.raises(WeightError, match=r"mlp\.\w+\.weight has shape"):
        read_weights(checkpoint.directory, changed, torch.device("cpu"), torch.float32, fp8=True)
