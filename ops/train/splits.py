"""Training, validation and held-out: which fonts, layouts, backgrounds, boards and wordings belong to which.

`heldout.json` names what the validation and the held-out split keep to themselves; everything else is training's.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ops.train.phrases import TRAIN, Phrasebook

SPLITS = ("train", "validation", "heldout")
FILE = Path(__file__).with_name("heldout.json")


@cache
def kept_apart() -> dict[str, Any]:
    """The committed file, as it is."""
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def names(split: str, what: str, every: Iterable[str], mixed: bool = True) -> list[str]:
    """Those of `every` that a split may use.

    Training never uses what another split keeps; validation and held-out use nothing but their own layouts and fonts,
    and where `mixed` half of the time (by repetition) their own of what is a matter of looks alone.
    """
    apart = kept_apart()
    common = [n for n in every if all(n not in apart[other][what] for other in apart)]
    if split == "train":
        return common
    own = [n for n in every if n in apart[split][what]]
    if what in ("layouts", "fonts") or not mixed:
        return own
    return common + own * max(1, len(common) // max(1, len(own)))


@cache
def words(split: str) -> tuple[str, ...]:
    """Words to print. A checksum gives a tenth of the list to the held-out split and a tenth to validation."""
    every = FILE.with_name("words.txt").read_text().split()
    return tuple(w for w in every if {0: "heldout", 1: "validation"}.get(zlib.crc32(w.encode()) % 10, "train") == split)


@cache
def sign_words() -> tuple[str, ...]:
    """Words that stand on signs; every split prints them."""
    return tuple(FILE.with_name("signs.txt").read_text().split())


@cache
def phrasebook(split: str) -> Phrasebook:
    """The wordings of a split."""
    if split == "train":
        return Phrasebook(TRAIN, words(split))
    return Phrasebook({kind: tuple(lines) for kind, lines in kept_apart()[split]["phrasings"].items()})
