"""What a job is asked: pictures, questions and state as the body of a request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from photocall.client.pictures import Images, Loaded, by_name, load
from photocall.client.questions import Questions, named


def body_of(
    images: Images, questions: Questions, state: Any, fields: Mapping[str, Any], *, with_bytes: bool = False
) -> tuple[dict[str, Any], list[Loaded]]:
    """The body, and the pictures that it names; with `with_bytes` it holds those that are bytes.

    Without a `state` the pictures that no question names stand there by themselves. Raises OSError, TypeError and
    ValueError for what cannot be sent.
    """
    given, asked = by_name(images), named(questions)
    loaded = {name: load(image) for name, image in given.items()}
    if state is None:
        if not given:
            raise ValueError("there is nothing to ask about: give an image, or a state")
        texts = json.dumps(asked, ensure_ascii=False, default=str)
        state = "\n".join(name for name in given if name not in texts) or "As below."
    body: dict[str, Any] = {"state": state, "questions": asked}
    entries = {name: one.entry_with_bytes() if with_bytes else one.entry() for name, one in loaded.items()}
    if isinstance(images, Mapping) and entries:
        body["assets"] = {name: {"type": "image", **entry} for name, entry in entries.items()}
    elif entries:
        body["images"] = list(entries.values())
    body |= {name: value for name, value in fields.items() if value is not None}
    return body, list(loaded.values())
