"""TorchRunner: a Gemma 4 checkpoint behind the ModelRunner protocol, on plain torch.

Turns the scheduler's numpy batches into device rows and hidden states into the few logits that a readout asks for.
Decides nothing: pages, order and membership come with the batch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from photocall_engine import kernels as kernel_choice
from photocall_engine.kernels import Kernels
from photocall_engine.kernels.fp8 import plain
from photocall_engine.kernels.tiles import VisibleRows
from photocall_engine.kv_pools import KvPools
from photocall_engine.model.checkpoint import make_encoder, read_weights
from photocall_engine.model.config import LayerKind, ModelConfig, read_config
from photocall_engine.model.gemma4 import DeviceRows, KindRows, TextDecoder
from photocall_engine.model.pictures import Pictures, pack
from photocall_engine.model.vision import VisionEncoder
from photocall_engine.rows import PAGE_SIZE, Ints, RowBatch
from photocall_engine.runner import PatchImage

log = logging.getLogger(__name__)
_DTYPE = torch.float32


class TorchRunner:
    """See `ModelRunner`. Made by `load`; the constructor takes parts, so that tests can exchange them."""

    def __init__(
        self,
        config: ModelConfig,
        decoder: TextDecoder,
        encoder: VisionEncoder | None,
        *,
        num_pages: int,
        sliding_pages: int,
        max_rows: int,
        soft_capacity: int,
    ) -> None:
        text = config.text
        self.config = config
        self.decoder = decoder
        self.encoder = encoder
        self.pools = KvPools(text, num_pages, sliding_pages, torch.device("cpu"), _DTYPE)
        self.arena = torch.zeros(soft_capacity, text.hidden_size, dtype=_DTYPE)
        self.num_pages = num_pages
        self.sliding_pages = self.pools.sliding_pages
        self.sliding_window = text.window
        self.bidirectional_images = text.bidirectional_images
        self.max_rows = max_rows
        self.soft_capacity = soft_capacity
        self.context = min(text.max_positions, (num_pages - 1) * PAGE_SIZE)
        self.page_bytes = self.pools.page_bytes("full")
        self.sliding_page_bytes = self.pools.page_bytes("sliding")
        self.backend = backend_of(self.pools.device, _DTYPE)
        self._groups: dict[LayerKind, int] = {lay.kind: text.num_heads // lay.num_kv_heads for lay in text.layers}
        self._hidden = torch.zeros(0, text.hidden_size, dtype=_DTYPE)  # of the last forward's read rows
        self._num_read = 0

    @classmethod
    def load(
        cls,
        model_dir: Path,
        *,
        device: str = "cpu",
        num_pages: int,
        sliding_pages: int,
        max_rows: int,
        soft_capacity: int,
        threads: int | None = None,
        weights: Literal["bf16", "fp8"] = "bf16",
    ) -> TorchRunner:
        """Read a checkpoint directory. `threads` is part of the numerics: bits are the same for one setting.

        Raises ConfigError, WeightError, UnsupportedDevice.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        config = read_config(model_dir)
        text, seeing = read_weights(model_dir, config, torch.device("cpu"), _DTYPE, fp8=weights == "fp8")
        linears = plain(text.linears() + ([] if seeing is None else seeing.linears()))
        kernels = kernel_choice.choose(device, linears, {layer.head_dim for layer in config.text.layers})
        return cls(
            config,
            TextDecoder(config.text, text, kernels),
            make_encoder(config, seeing, kernels),
            num_pages=num_pages,
            sliding_pages=sliding_pages,
            max_rows=max_rows,
            soft_capacity=soft_capacity,
        )

    @property
    def kernels(self) -> Kernels:
        """What computes."""
        return self.decoder.kernels

    @torch.inference_mode()
    def encode_images(self, images: Sequence[PatchImage], bases: Sequence[int]) -> None:
        if self.encoder is None:
            raise ValueError("this checkpoint sees no pictures")
        for image, base in zip(images, bases, strict=True):
            self.encoder.check(image)
            if base < 0 or base + image.num_soft > self.soft_capacity:
                raise ValueError(f"{image.num_soft} soft tokens at {base} exceed the arena of {self.soft_capacity}")
        if not images:
            return
        packed = pack(images, bases, self.encoder.tile)
        pictures = Pictures.of(packed, self.arena.device)
        soft = self.encoder.encode(pictures)
        self.arena.index_copy_(0, pictures.target[: packed.num_soft], soft[: packed.num_soft])

    def set_sliding_map(self, first: int, vals: Ints) -> None:
        self.pools.set_sliding_map(first, vals)

    @torch.inference_mode()
    def copy_pages(self, src: Ints, dst: Ints) -> None:
        self.pools.copy_pages(src, dst)

    @torch.inference_mode()
    def forward(self, batch: RowBatch) -> None:
        if not 0 < batch.num_rows <= self.max_rows:
            raise ValueError(f"{batch.num_rows} rows in one forward, this runner takes 1 to {self.max_rows}")
        self._hidden = self.decoder.forward(self._device_rows(batch), self.arena, self.pools)
        self._num_read = len(batch.read)

    @torch.inference_mode()
    def letter_logits(self, rows: Ints, label_ids: Ints) -> NDArray[np.float32]:
        hidden = self._hidden.index_select(0, self._read_rows(rows))
        return _floats(self.decoder.label_logits(hidden, _index(label_ids)))

    @torch.inference_mode()
    def logits_rows(self, rows: Ints) -> NDArray[np.float32]:
        wanted = self._read_rows(rows)
        padded = self._hidden.index_select(0, _pad(wanted, self.kernels.row_tile))
        return _floats(self.decoder.logits(padded)[: len(wanted)])

    def argmax_rows(self, rows: Ints, exclude: Sequence[Sequence[int]]) -> Ints:
        logits = self.logits_rows(rows)
        for row, ids in zip(logits, exclude, strict=True):
            if len(ids) > 3:
                raise ValueError(f"{len(ids)} excluded ids in one row, at most 3 are allowed")
            row[list(ids)] = -np.inf
        best: Ints = logits.argmax(axis=1).astype(np.int32)  # numpy takes the first of equals
        return best

    def enable_graphs(self) -> bool:
        log.info("graphs: off, the CPU has none to capture")
        return False

    def sync(self) -> None:
        """Nothing to wait for: calls return when they are done."""

    def _read_rows(self, rows: Ints) -> torch.Tensor:
        if len(rows) and (rows.min() < 0 or rows.max() >= self._num_read):
            raise ValueError(f"rows {rows.tolist()} are not among the {self._num_read} read rows of the last forward")
        return _index(rows)

    def _device_rows(self, batch: RowBatch) -> DeviceRows:
        tile = self.kernels.row_tile
        num_rows = -(-batch.num_rows // tile) * tile
        soft_row = np.flatnonzero(batch.soft_idx >= 0)
        tokens = batch.tokens.copy()
        tokens[soft_row] = self.config.text.pad_token_id
        slots = np.concatenate((batch.slot, batch.extra_slot))
        kinds = {
            kind: KindRows(
                plan=self._plan(kind, batch, np.arange(batch.num_rows)),
                slot=_index(self.pools.slots(kind, slots)),
            )
            for kind in self._groups
        }
        read_plans: Mapping[LayerKind, Any] = {}
        if len(batch.read):
            last = self.config.text.last_writer
            above = {layer.kind for layer in self.config.text.layers if layer.index >= last}
            read_plans = {kind: self._plan(kind, batch, batch.read) for kind in above}
        return DeviceRows(
            tokens=_index(np.pad(tokens, (0, num_rows - batch.num_rows))),
            pos=_index(np.pad(batch.pos, (0, num_rows - batch.num_rows))),
            soft_row=_index(soft_row),
            soft_idx=_index(batch.soft_idx[soft_row]),
            write_row=_index(np.concatenate((np.arange(batch.num_rows), batch.extra_row))),
            kinds=kinds,
            read=_pad(_index(batch.read), tile),
            read_plans=read_plans,
        )

    def _plan(self, kind: LayerKind, batch: RowBatch, rows: NDArray[np.integer[Any]]) -> Any:
        if kind == "full":
            lo, hi = np.zeros(len(rows), dtype=np.int32), batch.kv_hi[rows]
        else:
            lo, hi = np.maximum(0, batch.pos[rows] - self.sliding_window + 1), batch.kv_hi_sliding[rows]
        visible = VisibleRows(lo, hi, batch.bt_off[rows], self.pools.pages(kind, batch.block_tables))
        return self.kernels.plan_attention(visible, self._groups[kind], self.pools.zero_slot(kind))


def backend_of(device: torch.device, dtype: torch.dtype) -> str:
    """Where K/V and weights are, as people say it."""
    if device.type != "cuda":
        return f"{device.type.upper()} ({str(dtype).removeprefix('torch.')})"
    properties = torch.cuda.get_device_properties(device)
    return f"GPU ({properties.name}, {properties.total_memory >> 20} MB VRAM)"


def _index(values: NDArray[np.integer[Any]]) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.int64))


def _pad(rows: torch.Tensor, tile: int) -> torch.Tensor:
    """Repeat the last row up to a multiple of the tile; nothing stays nothing."""
    spare = -len(rows) % tile
    return torch.cat((rows, rows[-1:].expand(spare))) if len(rows) and spare else rows


def _floats(tensor: torch.Tensor) -> NDArray[np.float32]:
    values: NDArray[np.float32] = tensor.numpy()
    return values
