"""Provenance: what an answer comes from, for whoever asked for it: all that decides its bits beside the request itself.

Equal provenance and an equal request give equal bits. Every field is said by the part that did the work: the engine of
its model, its numbers and what it read, prep of the pictures. docs/provenance.md says what each field is for.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class SeenPicture(TypedDict):
    """A picture as the model saw it."""

    sha256: str  # of the file
    view: NotRequired[str]  # how it was asked to be shown, where that was said
    budget: int | None  # soft tokens at most; null where a picture was prepared by an older prep
    fidelity: str | None
    width: int  # pixels
    height: int
    soft_tokens: int
    pixels_sha256: str  # of the patches, so of every pixel that was seen


class Truncation(TypedDict):
    """What was not read or not said to its end. A state that does not fit is refused and never cut."""

    state_tokens: int
    state_tokens_dropped: int
    cut_texts: list[str]  # questions whose text ended at its `max_tokens`


class Provenance(TypedDict):
    """What an answer comes from."""

    job: str
    model: str
    model_sha256: str  # of the checkpoint directory
    prompt_version: str
    calibration: str | None  # id of the caller's own; the model's is part of its checkpoint
    numerics: Literal["invariant", "fast"]
    kernels: str
    table_sha256: str  # of what decides in which order a row's sums are made
    weights: str  # in which type they are kept
    torch: str | None  # null: there is no model behind the engine
    device: str
    threads: int | None  # on a CPU, where their number may decide bits
    pictures: dict[str, SeenPicture]  # by asset key
    truncation: Truncation


OF_THE_RUN = ("job", "truncation")  # what two runs of one request may differ in without being made differently


def differences(first: Provenance, second: Provenance) -> dict[str, tuple[object, object]]:
    """The fields in which two answers to one request were made differently, with both values; pictures one by one."""
    found: dict[str, tuple[object, object]] = {}
    one, other = dict(first), dict(second)
    for name in dict.fromkeys([*one, *other]):
        if name not in OF_THE_RUN and name != "pictures" and one.get(name) != other.get(name):
            found[name] = (one.get(name), other.get(name))
    seen, seen_again = first.get("pictures", {}), second.get("pictures", {})
    for key in dict.fromkeys([*seen, *seen_again]):
        one, other = dict(seen.get(key, {})), dict(seen_again.get(key, {}))
        for name in dict.fromkeys([*one, *other]):
            if one.get(name) != other.get(name):
                found[f"pictures.{key}.{name}"] = (one.get(name), other.get(name))
    return found
