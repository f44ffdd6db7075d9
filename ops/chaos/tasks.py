"""Tasks: what the callers ask, each made from the seed and its number alone."""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from PIL import Image

Kind: TypeAlias = Literal[
    "picture", "known picture", "text", "words", "sync", "decisions", "cancel", "batch lane", "turns"
]
KINDS: tuple[Kind, ...] = (
    *("picture",) * 5,
    *("known picture",) * 2,
    *("text",) * 2,
    *("words",) * 2,
    *("sync",) * 2,
    "decisions",
    "cancel",
    *("batch lane",) * 2,
    "turns",
)
KNOWN_PICTURES = 5
COLOUR = {"type": "choice", "instructions": "Which colour is it?", "criteria": ["red", "green"]}
FULL = {"type": "noul", "instructions": "Is it full?"}


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to ask. `key` is its Idempotency-Key."""

    kind: Kind
    key: str
    body: dict[str, Any]
    picture: bytes | None

    @property
    def sent(self) -> dict[str, Any]:
        """What httpx is to send, as keyword arguments."""
        if self.picture is None:
            return {"json": self.body}
        request = ("request.json", json.dumps(self.body), "application/json")
        return {"files": {"request": request, "photo": ("photo.png", self.picture, "image/png")}}


def task(seed: int, number: int) -> Task:
    """The task of a number."""
    drawn = random.Random(f"{seed}/{number}")
    kind = drawn.choice(KINDS)
    key, state = f"chaos-{seed}-{number}", f"photo of box {number} of {seed}"
    if kind == "decisions":
        asked = {"name": "full", "type": "predicate", "instructions": "Is it full?"}
        return Task(kind, key, {"input": state, "questions": [asked]}, None)
    questions: dict[str, Any] = {"colour": COLOUR, "full": FULL}
    if kind == "words":
        questions = {"words": {"type": "text", "instructions": "Say something.", "max_tokens": 24}}
    body: dict[str, Any] = {"state": state, "questions": questions}
    if kind == "batch lane":
        body["priority"] = "batch"
    if kind in ("text", "words", "turns"):
        return Task(kind, key, body, None)
    which = drawn.randrange(KNOWN_PICTURES) if kind == "known picture" else KNOWN_PICTURES + number
    body["assets"] = {"photo": {"type": "image", "part": "photo"}}
    return Task(kind, key, body, picture(seed, which))


def picture(seed: int, number: int) -> bytes:
    """A PNG of noise."""
    pixels = random.Random(f"{seed}/{number}").randbytes(64 * 48 * 3)
    out = io.BytesIO()
    Image.frombytes("RGB", (64, 48), pixels).save(out, "PNG")
    return out.getvalue()
