"""TorchRunner: a Gemma 4 checkpoint behind the ModelRunner protocol, on a CPU or a CUDA device.

Charter: turns the scheduler's numpy batches into device rows and hidden states into the few logits that a readout asks
for. Decides nothing: pages, order and membership come with the batch. On CUDA everything is issued in stream order and
nothing waits, except `collect` and the readouts that somebody wants at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from photocall.settings import STEP_SOFT_TOKENS
from photocall_engine import kernels as kernel_choice
from photocall_engine.device import Landing, backend_of, device_errors, kind_of
from photocall_engine.graph_space import GraphSpace
from photocall_engine.graphs import Graphs
from photocall_engine.kernels import MAX_EXCLUDED, Kernels, Kind, Numerics
from photocall_engine.kernels.fp8 import Fp8Weight, plain
from photocall_engine.kv_pools import KvPools
from photocall_engine.model.checkpoint import make_encoder, read_weights
from photocall_engine.model.config import ModelConfig, read_config
from photocall_engine.model.gemma4 import DeviceRows, TextDecoder
from photocall_engine.model.vision import VisionEncoder
from photocall_engine.reads import Reads, Values
from photocall_engine.row_buffers import RowBuffers, RowShape
from photocall_engine.rows import PAGE_SIZE, Ints, RowBatch
from photocall_engine.runner import Arithmetic, PatchImage
from photocall_engine.tower_passes import TowerPasses
from photocall_engine.words import Words

log = logging.getLogger(__name__)
ENCODE_BUDGET = STEP_SOFT_TOKENS["cuda"]
_NONE: Ints = np.zeros(0, np.int32)
_WORDS = 1 << 16  # of batches, readouts and page copies; each grows where it must


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
        encode_budget: int = ENCODE_BUDGET,
    ) -> None:
        text = config.text
        weights = decoder.weights.embedding
        self.config = config
        self.decoder = decoder
        self.encoder = encoder
        self.device = weights.device
        self.pools = KvPools(text, num_pages, sliding_pages, weights.device, weights.dtype)
        # its last row is scratch: null soft tokens go there
        self.arena = torch.zeros(soft_capacity + 1, text.hidden_size, device=weights.device, dtype=weights.dtype)
        self.tower = self._tower_passes()
        self.num_pages = num_pages
        self.sliding_pages = self.pools.sliding_pages
        self.sliding_window = text.window
        self.bidirectional_images = text.bidirectional_images
        self.max_rows = max_rows
        self.soft_capacity = soft_capacity
        self.encode_budget = encode_budget
        self.context = min(text.max_positions, (num_pages - 1) * PAGE_SIZE)
        self.page_bytes = self.pools.page_bytes("full")
        self.sliding_page_bytes = self.pools.page_bytes("sliding")
        self.backend = backend_of(weights.device, weights.dtype)
        fp8 = any(isinstance(linear, Fp8Weight) for linear in decoder.weights.linears())
        self.arithmetic = Arithmetic(
            numerics=decoder.kernels.numerics,
            kernels=decoder.kernels.name,
            table_sha256=decoder.kernels.table_sha256,
            weights="fp8" if fp8 else str(weights.dtype).removeprefix("torch."),
            torch=torch.__version__,
            device=kind_of(weights.device),
            threads=torch.get_num_threads() if weights.device.type == "cpu" else None,
        )
        self.overlaps = weights.device.type == "cuda"
        self.graphs: Graphs | None = None  # by `enable_graphs`
        batch_words = Words(weights.device, _WORDS)
        room = max_rows + decoder.kernels.head_tile
        self._picked = torch.zeros(room, dtype=torch.int32, device=weights.device)  # by the last `read`
        self._buffers = RowBuffers(text, self.pools, decoder.kernels, batch_words, self._picked, max_rows, text.window)
        self._asked = Words(weights.device, _WORDS)  # rows and ids of a readout
        self._moved = Words(weights.device, _WORDS)  # pages of a copy
        self._hidden = weights.new_zeros(0, text.hidden_size)  # of the last forward's read rows
        self._num_read = 0
        self._vocab = text.vocab_size
        self._allowed = torch.ones(text.vocab_size, dtype=torch.uint8, device=weights.device)

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
        encode_budget: int = ENCODE_BUDGET,
        threads: int | None = None,
        numerics: Numerics = "invariant",
        kind: Kind = "auto",
        dtype: torch.dtype | None = None,
        weights: Literal["bf16", "fp8"] = "bf16",
    ) -> TorchRunner:
        """Read a checkpoint directory. `threads` is part of the numerics: bits are the same for one setting.
        `encode_budget`: soft tokens that a step makes at most, a first picture aside; graphs are captured for so many.

        `dtype` None: bfloat16 on CUDA, float32 on the CPU. Raises ConfigError, WeightError, UnsupportedDevice.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        config = read_config(model_dir)
        place = kernel_choice.find_device(device)
        dtype = dtype or (torch.bfloat16 if place.type == "cuda" else torch.float32)
        text, seeing = read_weights(model_dir, config, place, dtype, fp8=weights == "fp8")
        linears = plain(text.linears() + ([] if seeing is None else seeing.linears()))
        head_dims = {layer.head_dim for layer in config.text.layers}
        kernels = kernel_choice.choose(place, linears, head_dims, numerics=numerics, kind=kind)
        return cls(
            config,
            TextDecoder(config.text, text, kernels),
            make_encoder(config, seeing, kernels),
            num_pages=num_pages,
            sliding_pages=sliding_pages,
            max_rows=max_rows,
            soft_capacity=soft_capacity,
            encode_budget=encode_budget,
        )

    @property
    def kernels(self) -> Kernels:
        """What computes."""
        return self.decoder.kernels

    def encode_images(self, images: Sequence[PatchImage], bases: Sequence[int]) -> None:
        if self.tower is None or self.encoder is None:
            raise ValueError("this checkpoint sees no pictures")
        for image, base in zip(images, bases, strict=True):
            self.encoder.check(image)
            if base < 0 or base + image.num_soft > self.soft_capacity:
                raise ValueError(f"{image.num_soft} soft tokens at {base} exceed the arena of {self.soft_capacity}")
        if images:
            with self._issuing():
                self.tower.encode(images, bases)

    def set_sliding_map(self, pages: Ints, sliding: Ints) -> None:
        self.pools.set_sliding_map(pages, sliding)

    def copy_pages(self, src: Ints, dst: Ints) -> None:
        with self._issuing():
            words = self._moved
            words.begin()
            places = {
                kind: (words.put(source), words.put(target), len(source))
                for kind, (source, target) in self.pools.copies(src, dst).items()
            }
            words.send()
            for kind, stack in self.pools.stacks():
                source, target, count = places[kind]
                self.kernels.copy_pages(stack, words.view(source, count), words.view(target, count))

    def forward(self, batch: RowBatch) -> None:
        if not 0 < batch.num_rows <= self.max_rows:
            raise ValueError(f"{batch.num_rows} rows in one forward, this runner takes 1 to {self.max_rows}")
        with self._issuing():
            hidden = None if self.graphs is None else self.graphs.forward(batch)
            if hidden is None:
                hidden = self.decoder.forward(self._device_rows(batch), self.arena, self.pools)
            self._hidden, self._num_read = hidden, len(batch.read)

    def read(self, reads: Reads) -> Landing:
        with self._issuing():
            labels = reads.label_ids
            of_letters, greedy, whole, ids = self._ask(
                reads.letters, self._padded(reads.greedy), self._padded(reads.whole), ids=labels
            )
            none = self._hidden.new_zeros(0, dtype=torch.float32)
            letters, said, logits = none.view(0, len(labels)), none.int().view(2, 0), none.view(0, self._vocab)
            if len(reads.letters):
                letters = self.decoder.label_logits(of_letters, ids)
            if len(reads.greedy):
                tokens, logprobs = self.decoder.pick(greedy, self._allowed)
                # a row of NaN picks anything; the next forward may look it up before anybody knows
                torch.clamp(tokens, 0, self._vocab - 1, out=self._picked[: len(tokens)])
                said = torch.stack((tokens, logprobs.view(torch.int32)))[:, : len(reads.greedy)]
            if len(reads.whole):
                logits = self.decoder.logits(whole)[: len(reads.whole)]
            return Landing(letters, said, logits)

    def collect(self, reading: object) -> Values:
        assert isinstance(reading, Landing), "what `read` gave"
        with self._issuing():
            letters, said, whole = reading.values()
            return Values(letters, said[0], said[1].view(np.float32), whole)

    def letter_logits(self, rows: Ints, label_ids: Ints) -> NDArray[np.float32]:
        return self.collect(self.read(Reads(rows, label_ids, _NONE, _NONE))).letters

    def logits_rows(self, rows: Ints) -> NDArray[np.float32]:
        return self.collect(self.read(Reads(_NONE, _NONE, _NONE, rows))).whole

    def may_say(self, allowed: NDArray[np.bool_]) -> None:
        with self._issuing():
            known = torch.from_numpy(allowed[: len(self._allowed)].astype(np.uint8))
            self._allowed.zero_()
            self._allowed[: len(known)].copy_(known)

    def argmax_rows(self, rows: Ints, exclude: Sequence[Sequence[int]]) -> Ints:
        excluded = np.full((len(rows), MAX_EXCLUDED), -1, dtype=np.int32)
        for row, ids in zip(excluded, exclude, strict=True):
            if len(ids) > MAX_EXCLUDED:
                raise ValueError(f"{len(ids)} excluded ids in one row, at most {MAX_EXCLUDED} are allowed")
            row[: len(ids)] = ids
        with self._issuing():
            hidden, ids_out = self._ask(rows, ids=excluded)
            best: Ints
            [best] = Landing(self.decoder.greedy(hidden, ids_out.view(-1, MAX_EXCLUDED))).values()
            return best

    def graph_batches(self) -> Mapping[str, int]:
        """Forwards since graphs were captured, by the rows of the bucket that ran them; `none`: without a graph."""
        return {} if self.graphs is None else self.graphs.by_bucket

    def tower_passes(self) -> Mapping[str, int]:
        """Passes of the tower: `hit` those that a bucket held, `miss` the others."""
        return {} if self.tower is None else {"hit": self.tower.replays, "miss": self.tower.misses}

    def enable_graphs(self) -> bool:
        if self.device.type != "cuda":
            log.info("graphs: off, the CPU has none to capture")
            return False
        with self._issuing():
            try:
                space = GraphSpace(self.device)
                if self.tower is not None:  # first: its passes need the largest pieces of memory
                    self.tower.prepare(min(self.encode_budget, self.soft_capacity))
                    self.tower.capture(space)
                    log.info("graphs of the tower: %s", space.taken())
                graphs = Graphs(self.decoder, self.pools, self.arena, self._picked, self.max_rows)
                graphs.capture(space)
            except Exception as error:
                torch.cuda.synchronize(self.device)
                self.tower = self._tower_passes()
                log.warning("graphs: off, capturing failed: %s: %s", type(error).__name__, error, exc_info=error)
                return False
            self.graphs = graphs
        log.info("graphs: %s", space.taken())
        return True

    def sync(self) -> None:
        if self.device.type == "cuda":
            with device_errors(self.device):
                torch.cuda.synchronize(self.device)

    def _tower_passes(self) -> TowerPasses | None:
        """Without graphs."""
        return None if self.encoder is None else TowerPasses(self.encoder, self.arena)

    @contextmanager
    def _issuing(self) -> Iterator[None]:
        """Around everything that uses the device."""
        with device_errors(self.device), torch.inference_mode():
            yield

    def _padded(self, rows: Ints) -> Ints:
        """Up to a multiple of the head's tile; nothing stays nothing."""
        spare = -len(rows) % self.kernels.head_tile if len(rows) else 0
        return np.pad(rows, (0, spare), mode="edge") if spare else rows

    def _ask(self, *rows: Ints, ids: Ints) -> list[torch.Tensor]:
        """Hidden states of read rows, and behind all of them ids, on the device: one transfer."""
        words = self._asked
        words.begin()
        places = []
        for some in rows:
            if len(some) and (some.min() < 0 or some.max() >= self._num_read):
                raise ValueError(
                    f"rows {some.tolist()} are not among the {self._num_read} read rows of the last forward"
                )
            places.append(words.put(some))
        ids_at = words.put(ids)
        words.send()
        hidden = [
            self._hidden.index_select(0, words.view(at, len(some))) if len(some) else self._hidden[:0]
            for at, some in zip(places, rows, strict=True)
        ]
        return [*hidden, words.view(ids_at, ids.size)]

    def _device_rows(self, batch: RowBatch) -> DeviceRows:
        self._buffers.window, self._buffers.pad_token_id = self.sliding_window, self.config.text.pad_token_id
        return self._buffers.fill(batch, RowShape.exact(batch, self.kernels.row_tile))
