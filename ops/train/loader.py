"""Pictures and questions from worker processes, handed over in shared memory, batch by batch.

A batch is CHUNKS chunks of one grid; chunk i is always made by worker i mod workers with the seed i, so a run can be
made again. Workers stay a few chunks ahead and wait when nobody takes what they made.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import signal
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ops.train import scene as scenes
from ops.train.asker import Asked
from ops.train.assets import Assets
from ops.train.compose import Composer
from ops.train.fonts import FontBook
from ops.train.marks import on_grid
from ops.train.pack import PackedRows, Packer
from ops.train.requests import Requester
from photocall_engine.tokenizer import ChatTokenizer
from photocall_prep.patches import patchify

CHUNKS = 8
PACKS = 2  # sets of questions to each picture
AHEAD = 3  # chunks of each worker in flight
MAX_SOFT = 140
WEAR = 0.3  # of what a camera does, drawn by the workers; the rest is done on the device
LARGER = 0.15  # share of pictures drawn larger than the model sees them


@dataclass(frozen=True, slots=True)
class Stage:
    """The sizes of a part of the training: pictures a chunk, tokens a row, questions a picture, grids of blocks."""

    pictures: int
    length: int
    questions: int
    blocks: tuple[tuple[int, int], ...]  # (rows, columns) of 48 x 48 blocks


SMALL = Stage(48, 384, 8, ((6, 6), (5, 7), (7, 5), (6, 6), (4, 8), (8, 4), (6, 5)))
FULL = Stage(
    16,
    640,
    11,
    (
        *((11, 11), (10, 13), (13, 10), (8, 15), (15, 8), (9, 14), (14, 9), (10, 13), (13, 10), (8, 15)),
        *((11, 12), (12, 11), (10, 12), (12, 10), (8, 16), (16, 8), (7, 18), (10, 14), (8, 8), (7, 9), (9, 7)),
    ),
)
ANSWERS = 96


@dataclass(slots=True)
class Chunk:
    """The arrays of one chunk, views of a slot."""

    patches: NDArray[np.uint8]  # [P, 9 n, 768], block by block
    marks: NDArray[np.uint8]  # [P, 9 n, 2]: class and colour of what is at a patch
    packs: list[PackedRows]


class Slot:
    """One chunk's piece of shared memory."""

    def __init__(self) -> None:
        pictures, length = max(SMALL.pictures, FULL.pictures), max(SMALL.length, FULL.length)
        self._pixels = 9 * 768 * max(FULL.pictures * MAX_SOFT, SMALL.pictures * 36)
        self._marks = 18 * max(FULL.pictures * MAX_SOFT, SMALL.pictures * 36)
        self._row = 4 * pictures * (5 * length + 3 * ANSWERS)
        self._memory = mmap.mmap(-1, self._pixels + self._marks + self._row * PACKS + 64)

    def view(self, stage: Stage, soft: int) -> Chunk:
        """The slot as a chunk of a stage whose pictures have `soft` soft tokens."""
        p, at = stage.pictures, 0

        def take(shape: tuple[int, ...], kind: type[np.generic], start: int) -> NDArray[np.generic]:
            return np.frombuffer(self._memory, kind, int(np.prod(shape)), start).reshape(shape)

        patches = take((p, 9 * soft, 768), np.uint8, 0)
        at = self._pixels
        marks = take((p, 9 * soft, 2), np.uint8, at)
        at += self._marks + (-(self._pixels + self._marks)) % 4
        packs = []
        for number in range(PACKS):
            start = at + number * self._row
            arrays: list[NDArray[np.generic]] = []
            for width in (*[stage.length] * 5, ANSWERS, ANSWERS, ANSWERS):
                kind = np.float32 if len(arrays) == 7 else np.int32
                arrays.append(take((p, width), kind, start))
                start += 4 * p * width
            packs.append(PackedRows(*arrays))  # type: ignore[arg-type]
        return Chunk(patches, marks, packs)  # type: ignore[arg-type]


def block_order(rows: int, columns: int) -> NDArray[np.int64]:
    """Row-major patch index of each place in block order."""
    index = np.arange(9 * rows * columns).reshape(rows, 3, columns, 3)
    return index.transpose(0, 2, 1, 3).reshape(-1)


def to_patches(pixels: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    """Patches [9 n, 768] of pixels [48 rows, 48 columns, 3], block by block."""
    return patchify(pixels)[block_order(rows, columns)]


class Maker:
    """Makes chunks of the training split; lives in a worker process."""

    def __init__(self, model_dir: Path, assets: Assets, split: str = "train", wear: float = 1.0) -> None:
        self._composer = Composer(split, FontBook(assets.fonts, split), assets)
        self._wear = wear
        self._requester = Requester(split)
        self._packer = Packer(ChatTokenizer(model_dir))

    def fill(
        self, chunk: Chunk, stage: Stage, blocks: tuple[int, int], seed: int
    ) -> list[list[list[tuple[Asked, int]]]]:
        """All pictures and packs of a chunk. Of sixteen requests one has two pictures, one has none.

        Gives what is asked, by pack and row, each with the number of its answer places.
        """
        rng = random.Random(seed)
        rows, columns = blocks
        soft = rows * columns
        order = block_order(rows, columns)
        made = []
        for number in range(stage.pictures):
            width, height, zoom = columns * 48, rows * 48, 1.0
            if rng.random() < LARGER:  # a photograph whose sides the grid does not divide; the resize is slow
                zoom = rng.uniform(1.0, 1.8)
                width, height = round(width * rng.uniform(1, 1.08)), round(height * rng.uniform(1, 1.08))
            scene, backdrop = self._composer.compose(rng, width, height, zoom)
            image = scenes.draw(scene, backdrop, self._composer.book, rng, self._wear)
            if image.size != (columns * 48, rows * 48):
                image = image.resize((columns * 48, rows * 48), Image.Resampling.BICUBIC)
            chunk.patches[number] = to_patches(np.asarray(image), rows, columns)
            marks = on_grid(scene.marks, (scene.width, scene.height), rows * 3, columns * 3)
            chunk.marks[number] = marks.reshape(-1, 2)[order]
            made.append(scene)
        asked: list[list[list[tuple[Asked, int]]]] = []
        for pack in chunk.packs:
            pack.clear()
            asked.append([])
            for row in range(stage.pictures):
                kind = row % 16
                if kind == 15:
                    request = self._requester.words_only(rng, stage.questions)
                    asked[-1].append(self._packer.fill(pack, row, request, {}, {}))
                    continue
                own = [row, row + 1] if kind == 14 else [row]
                stranger = made[(row + 1 + rng.randrange(stage.pictures - 1)) % stage.pictures]
                request = self._requester.about(rng, [made[i] for i in own], stage.questions, stranger)
                base = {key: i * soft for key, i in zip(request.keys, own, strict=True)}
                soft_of = dict.fromkeys(request.keys, soft)
                asked[-1].append(self._packer.fill(pack, row, request, soft_of, base))
        return asked


class Loader:
    """Starts the workers (before CUDA does) and gives batches in order."""

    def __init__(self, model_dir: Path, assets: Assets, workers: int, seed: int) -> None:
        self._model_dir, self._assets, self._workers, self._seed = model_dir, assets, workers, seed
        self._ahead = max(AHEAD, -(-2 * CHUNKS // workers))  # two whole batches always fit
        self._slots = [[Slot() for _ in range(self._ahead)] for _ in range(workers)]
        # [done of every slot, taken of every slot, the batch from which the stage is FULL]
        self._flags = np.frombuffer(mmap.mmap(-1, 8 * (2 * workers * self._ahead + 1)), np.int64)
        self._flags[:] = -1
        self._flags[-1] = 1 << 60
        self._children: list[int] = []
        self._running = False

    def start(self) -> None:
        """Fork the workers."""
        for worker in range(self._workers):
            child = os.fork()
            if child == 0:
                try:
                    self._work(worker)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(1)
            self._children.append(child)
        self._running = True

    def stop(self) -> None:
        """End the workers; whoever waits for a batch gets no more."""
        self._running = False
        for child in self._children:
            os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):  # a check may have found it dead first
                os.waitpid(child, 0)

    def full_from(self, batch: int) -> None:
        """Let the second stage begin with a batch that no worker can have begun yet."""
        self._flags[-1] = batch + self._ahead * self._workers // CHUNKS + 2

    def _check(self, worker: int) -> None:
        if os.waitpid(self._children[worker], os.WNOHANG)[0] and self._running:
            raise RuntimeError(f"picture worker {worker} died; its error is above")

    def start_full(self) -> None:
        """Begin with the second stage; before `start`."""
        self._flags[-1] = -1

    def plan(self, batch: int) -> tuple[Stage, tuple[int, int]]:
        """Stage and grid of a batch."""
        stage = FULL if batch >= self._flags[-1] else SMALL
        return stage, random.Random(self._seed * 1_000_003 + batch).choice(stage.blocks)

    def batches(self) -> Iterator[tuple[Stage, tuple[int, int], list[Chunk]]]:
        """Batches one after another; a batch's memory is reused once the next one is asked for."""
        batch = 0
        while self._running:
            found, where = [], []
            for chunk in range(batch * CHUNKS, (batch + 1) * CHUNKS):
                worker, turn = chunk % self._workers, chunk // self._workers
                flag = worker * self._ahead + turn % self._ahead
                while self._flags[flag] < chunk:
                    time.sleep(0.001)
                    if not self._running:
                        return
                    self._check(worker)
                where.append(flag)
                found.append((worker, turn))
            stage, blocks = self.plan(batch)
            soft = blocks[0] * blocks[1]
            yield stage, blocks, [self._slots[w][t % self._ahead].view(stage, soft) for w, t in found]
            for flag in where:
                self._flags[self._workers * self._ahead + flag] = self._flags[flag]
            batch += 1

    def _work(self, worker: int) -> None:
        maker = Maker(self._model_dir, self._assets, wear=WEAR)
        turn = 0
        while True:
            chunk = turn * self._workers + worker
            flag = worker * self._ahead + turn % self._ahead
            while self._flags[flag] != self._flags[self._workers * self._ahead + flag]:
                time.sleep(0.001)
            stage, blocks = self.plan(chunk // CHUNKS)
            view = self._slots[worker][turn % self._ahead].view(stage, blocks[0] * blocks[1])
            maker.fill(view, stage, blocks, self._seed * 10_000_019 + chunk)
            self._flags[flag] = chunk
            turn += 1
