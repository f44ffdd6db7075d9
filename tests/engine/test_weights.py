"""Safetensors to their places: shards, names that may be ignored, and errors that name the tensor."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from photocall_engine.model import weights
from photocall_engine.model.checkpoint import SeeingWeights
from photocall_engine.model.checkpoint import read_weights as read_to
from photocall_engine.model.config import ModelConfig, read_config
from photocall_engine.model.shards import StoredTensor, WeightError, read_shards
from photocall_engine.model.text_weights import TextWeights
from photocall_engine.model.weights import load_weights
from tests.engine.checkpoints import ETYPE, VISION, make_checkpoint

Change = Callable[[dict[str, torch.Tensor]], None]
LAYER = "model.language_model.layers.0."


def read_weights(directory: Path, config: ModelConfig) -> tuple[TextWeights, SeeingWeights | None]:
    return read_to(directory, config, torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("original")
    make_checkpoint(directory, ETYPE, VISION)
    assert len(list(directory.glob("*.safetensors"))) >= 2
    return directory


def changed(original: Path, directory: Path, change: Change) -> Path:
    """The same checkpoint in one file, after `change`."""
    tensors: dict[str, torch.Tensor] = {}
    for shard in original.glob("*.safetensors"):
        tensors |= load_file(shard)
    change(tensors)
    save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text((original / "config.json").read_text())
    return directory


def test_shards_and_one_file_give_the_same_tensors(original: Path, tmp_path: Path) -> None:
    config = read_config(original)
    sharded, _ = read_weights(original, config)
    single, _ = read_weights(changed(original, tmp_path, lambda tensors: None), config)
    assert sharded.places.keys() == single.places.keys()
    assert all(torch.equal(sharded.places[name], single.places[name]) for name in sharded.places)


def test_stacked_linears_hold_each_part_at_its_rows(original: Path) -> None:
    text, _ = read_weights(original, read_config(original))
    tensors: dict[str, torch.Tensor] = {}
    for shard in original.glob("*.safetensors"):
        tensors |= load_file(shard)
    parts = [tensors[f"{LAYER}self_attn.{name}_proj.weight"] for name in "qkv"]
    assert torch.equal(text.layers[0].qkv, torch.cat(parts))


def test_bfloat16_is_widened_without_change(original: Path, tmp_path: Path) -> None:
    def halve(tensors: dict[str, torch.Tensor]) -> None:
        for name, tensor in tensors.items():
            tensors[name] = tensor.bfloat16()

    config = read_config(original)
    text, _ = read_weights(changed(original, tmp_path, halve), config)
    exact, _ = read_weights(original, config)
    assert text.embedding.dtype is torch.float32
    assert torch.equal(text.embedding, exact.embedding.bfloat16().float())


def test_audio_and_kv_of_sharing_layers_are_ignored_by_name(original: Path, tmp_path: Path) -> None:
    def add(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.audio_tower.layers.0.weight"] = torch.zeros(2)
        tensors["model.embed_audio.embedding_projection.weight"] = torch.zeros(2)
        for name in ("k_proj.weight", "v_proj.weight", "k_norm.weight", "v_norm.weight"):
            tensors[f"model.language_model.layers.4.self_attn.{name}"] = torch.zeros(2)

    read_weights(changed(original, tmp_path, add), read_config(original))


SCALAR = f"{LAYER}layer_scalar"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(SCALAR), f"tensor {SCALAR} is missing"),
        (lambda t: t.pop("model.vision_tower.std_bias"), "tensor model.vision_tower.std_bias is missing"),
        (lambda t: t.update(extra=torch.zeros(1)), "tensor extra is not part of this model"),
        (lambda t: t.update({f"{LAYER}extra.weight": torch.zeros(1)}), f"tensor {LAYER}extra.weight is not"),
        (lambda t: t.update({SCALAR: torch.zeros(2)}), rf"{SCALAR} has shape \[2\], the model needs \[1\]"),
        (lambda t: t.update({"lm_head.weight": torch.zeros(128, 64)}), "lm_head.weight differs from the embedding"),
    ],
)
def test_what_does_not_fit_is_named(original: Path, tmp_path: Path, change: Change, message: str) -> None:
    with pytest.raises(WeightError, match=message):
        read_weights(changed(original, tmp_path, change), read_config(original))


def test_a_head_of_its_own_is_used_where_it_is_not_tied(original: Path, tmp_path: Path) -> None:
    directory = changed(original, tmp_path, lambda t: t.update({"lm_head.weight": torch.full((128, 64), 0.5)}))
    raw = json.loads((directory / "config.json").read_text())
    raw["tie_word_embeddings"] = False
    (directory / "config.json").write_text(json.dumps(raw))
    text, _ = read_weights(directory, read_config(directory))
    assert torch.equal(text.head, torch.full((128, 64), 0.5))
    assert text.head is not text.embedding


def test_damaged_and_missing_files(original: Path, tmp_path: Path) -> None:
    config = read_config(original)
    with pytest.raises(WeightError, match="neither"):
        read_weights(tmp_path, config)
    (tmp_path / "model.safetensors").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{")
    with pytest.raises(WeightError, match=r"model\.safetensors"):
        read_weights(tmp_path, config)


def test_an_index_that_points_to_the_wrong_shard(original: Path, tmp_path: Path) -> None:
    index = json.loads((original / "model.safetensors.index.json").read_text())
    for shard in original.glob("*.safetensors"):
        (tmp_path / shard.name).write_bytes(shard.read_bytes())
    files = sorted(set(index["weight_map"].values()))
    name = next(name for name, file in index["weight_map"].items() if file == files[0])
    index["weight_map"][name] = files[1]
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(WeightError, match=f"tensor {name} is not in {files[1]}"):
        read_weights(tmp_path, read_config(original))


@pytest.mark.parametrize("piece_bytes", [1, 300, 1 << 20])
@pytest.mark.parametrize("threads", [1, 5])
def test_pieces_of_any_size_by_any_number_of_threads_give_the_same(
    original: Path, piece_bytes: int, threads: int
) -> None:
    """Rows longer than a piece, pieces that cut tensors, and files in one piece; scalars and tables alike."""
    tensors: dict[str, torch.Tensor] = {}
    for shard in original.glob("*.safetensors"):
        tensors |= load_file(shard)
    places = {name: torch.full(tensor.shape, torch.nan, dtype=torch.float64) for name, tensor in tensors.items()}
    report = load_weights(original, places, lambda name: False, threads=threads, piece_bytes=piece_bytes)
    assert all(torch.equal(places[name], tensor.double()) for name, tensor in tensors.items())
    assert report.size == sum(tensor.numel() * tensor.itemsize for tensor in tensors.values())
    assert report.files == len(list(original.glob("*.safetensors")))
    assert "MB/s" in str(report)


def test_a_place_may_take_its_rows_in_its_own_way(original: Path) -> None:
    tensors: dict[str, torch.Tensor] = {}
    for shard in original.glob("*.safetensors"):
        tensors |= load_file(shard)

    class Rows:
        device = torch.device("cpu")

        def __init__(self, shape: torch.Size) -> None:
            self.shape = shape
            self.taken: dict[int, torch.Tensor] = {}

        def put(self, first: int, rows: torch.Tensor) -> None:
            self.taken[first] = rows.clone()

    places = {name: Rows(tensor.shape) for name, tensor in tensors.items()}
    load_weights(original, places, lambda name: False, threads=2, piece_bytes=1000)
    for name, tensor in tensors.items():
        rows = [taken for _, taken in sorted(places[name].taken.items())]
        assert torch.equal(torch.cat(rows).view(tensor.shape), tensor)
    assert len(places[f"{LAYER}mlp.gate_proj.weight"].taken) == 80 // (1000 // (64 * 4)) + 1


def test_places_made_in_inference_mode_are_filled_too(original: Path) -> None:
    """The mode belongs to a thread: the reading ones did not have that of whoever made the places."""
    with torch.inference_mode():
        text, _ = read_weights(original, read_config(original))
    assert text.norm.isfinite().all()


def test_headers_say_what_the_library_reads(original: Path) -> None:
    for name, stored in read_shards(original).items():
        tensor = load_file(stored.file)[name]
        assert (stored.shape, stored.size) == (tuple(tensor.shape), tensor.numel() * tensor.itemsize)


def with_header(directory: Path, header: bytes, data: bytes = b"") -> Path:
    (directory / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    return directory


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "does not fit the file"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}, "does not fit the file"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}, "does not fit the file"),
        ({"dtype": "F4", "shape": [1], "data_offsets": [0, 1]}, "values of type F4"),
        ({"dtype": "F32", "shape": 3, "data_offsets": [0, 4]}, "not a safetensors file"),
        ({"shape": [1], "data_offsets": [0, 4]}, "not a safetensors file"),
    ],
)
def test_headers_that_lie_are_refused(tmp_path: Path, entry: dict[str, object], message: str) -> None:
    with pytest.raises(WeightError, match=message):
        read_shards(with_header(tmp_path, json.dumps({"x": entry}).encode(), b"1234"))


@pytest.mark.parametrize("header", [b"[]", b"3", b"{", b'{"x": 1}'])
def test_headers_that_are_no_map_are_refused(tmp_path: Path, header: bytes) -> None:
    with pytest.raises(WeightError, match="not a safetensors file"):
        read_shards(with_header(tmp_path, header))


def test_a_file_that_ends_while_it_is_read(original: Path, tmp_path: Path) -> None:
    """Truncated after its header was read: an error that names the tensor, from whichever thread meets it."""
    file = tmp_path / "short.safetensors"
    file.write_bytes(b"1234")
    tensor = StoredTensor("x", file, "F32", (2,), 0, 8)
    with pytest.raises(WeightError, match="ends inside tensor x"):
        weights._read(tensor, 0, memoryview(bytearray(8)))
