"""The Decisions shape, answer side: the engine's answers by name become a list in the order of the questions.

The view is what `decisions.py` kept of the request; it stands in the job's record, so that every process can show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from photocall.jobs import JobRecord


def decisions_body(record: JobRecord) -> dict[str, Any]:
    """The response to a Decisions request whose job has succeeded."""
    result = record.result or {}
    answers = result.get("answers", {})
    shown = [_answer(view, answers.get(str(i))) for i, view in enumerate(record.view.get("questions", []))]
    body = {"model": result.get("model", ""), "answers": shown, "usage": _usage(result.get("usage", {}))}
    return body if "provenance" not in result else {**body, "provenance": result["provenance"]}


def _answer(view: Mapping[str, Any], answer: Mapping[str, Any] | None) -> dict[str, Any]:
    """One answer; a question that the engine refused, or left without one, is a refusal, and the others still stand."""
    kind, named = view["type"], {"name": view["name"]}
    if answer is None or answer["type"] == "refusal":
        why = {name: answer[name] for name in ("code", "message")} if answer else {}
        return {"type": "refusal", **named, **why}
    return {"type": kind, **named, **_found(kind, view, answer), **_calibrated(kind, view, answer)}


def _found(kind: str, view: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "predicate":
        return {"probability": answer["noul"]}
    chosen = {"choice": dict(view["values"])[answer["choice"]]} if kind == "choice" else {"score": answer["score"]}
    spread = _spread(kind, view, answer["probabilities"])
    return {**chosen, "confidence": answer["confidence"], "probabilities": spread}


def _calibrated(kind: str, view: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """What the caller's own calibration has corrected, and which it was; nothing where none did."""
    if "calibration" not in answer:
        return {}
    raw = _spread(kind, view, answer["probabilities_raw"])
    return {"calibration": answer["calibration"], "probabilities_raw": raw}


def _spread(kind: str, view: Mapping[str, Any], probabilities: Mapping[str, float]) -> list[dict[str, Any]]:
    """The probabilities of an answer in this shape: each beside the caller's own value."""
    if kind == "predicate":
        return [{"value": value, "probability": probabilities[str(value).lower()]} for value in (True, False)]
    if kind == "choice":
        return [{"value": value, "probability": probabilities[label]} for label, value in view["values"]]
    return [
        {"value": level, "label": label, "probability": probabilities[str(level)]}
        for level, label in enumerate(view["labels"])
    ]


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Token counts as this shape has them; what is read back from the cache costs the caller nothing less here."""
    read, written = int(usage.get("input_tokens", 0)), int(usage.get("output_tokens", 0))
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": int(usage.get("cached_rows", 0)), "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }
