"""`make demo`: start everything, ask the sample pictures, print answers next to the right ones, stop everything.

Exits 0 only when at least 90 % of the answers are right. It is a client like any other: what it sends is an ordinary
`/v1/systemone` request, what it prints comes from the response.
"""

from __future__ import annotations

import base64
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from ops.running import running

SAMPLES = Path(__file__).parent / "samples"
RIGHT_NEEDED = 0.9


@dataclass(frozen=True, slots=True)
class Row:
    """One answered question."""

    picture: str
    question: str
    answer: str
    probability: float
    expected: str

    @property
    def right(self) -> bool:
        """The answer, as a person would write it, is the expected one."""
        return self.answer.casefold() == self.expected.casefold()


def main() -> int:
    """Run the demo; 0 when enough is right, 1 otherwise."""
    print("photocall: starting redis, a prep worker for each core, the engine and the gateway", flush=True)
    with running() as address:
        started = time.perf_counter()
        rows = [row for sample in read_samples() for row in ask(address, sample)]
        seconds = time.perf_counter() - started
    print(table(rows))
    right = sum(row.right for row in rows)
    print(
        f"\n{right} of {len(rows)} right ({right / len(rows):.0%}), {seconds:.1f} s for {len(read_samples())} pictures"
    )
    return 0 if right >= RIGHT_NEEDED * len(rows) else 1


def read_samples() -> list[dict[str, Any]]:
    """The shipped pictures with their questions and right answers."""
    return list(json.loads((SAMPLES / "samples.json").read_text()))


def ask(address: str, sample: dict[str, Any]) -> list[Row]:
    """All questions of one sample picture in one request."""
    picture = base64.b64encode((SAMPLES / sample["file"]).read_bytes()).decode()
    body = {
        "state": sample["state"],
        "questions": sample["questions"],
        "assets": {sample["asset"]: {"type": "image", "data_base64": picture}},
    }
    with httpx.Client(trust_env=False) as client:
        response = client.post(f"{address}/v1/systemone", json=body, timeout=30)
    if response.status_code != 200:
        raise SystemExit(f"{sample['file']}: {response.status_code} {response.text}")
    answers = response.json()["answers"]
    return [to_row(sample, name, answers[name]) for name in sample["questions"]]


def to_row(sample: dict[str, Any], name: str, answer: dict[str, Any]) -> Row:
    question = sample["questions"][name]
    said, probability = read_answer(answer)
    expected = wanted(question, sample["expected"][name])
    return Row(sample["file"], str(question["instructions"]), said, probability, expected)


def wanted(question: dict[str, Any], expected: Any) -> str:
    """The right answer as a person would write it; samples.json gives a score as the index of its level."""
    if question["type"] == "noul":
        return "yes" if expected else "no"
    return str(question["criteria"][expected]) if question["type"] == "score" else str(expected)


def read_answer(answer: dict[str, Any]) -> tuple[str, float]:
    """What was answered, as a person would write it, and how probable it was, for any type of answer."""
    if answer["type"] == "noul":
        return ("yes", answer["noul"]) if answer["noul"] >= 0.5 else ("no", 1 - answer["noul"])
    if answer["type"] == "choice":
        return answer["choice"], answer["probabilities"][answer["choice"]]
    if answer["type"] == "score":
        level = max(answer["probabilities"], key=answer["probabilities"].__getitem__)
        return str(answer["legend"][level]), answer["probabilities"][level]
    if answer["type"] == "number":
        return f"{answer['number']:g}", answer["confidence"]
    return answer["text"], math.exp(answer["logprob"])


def table(rows: list[Row]) -> str:
    """The rows in columns wide enough for a terminal."""
    lines = [("picture", "question", "answer", "p", "right answer", "")]
    for row in rows:
        verdict = "ok" if row.right else "WRONG"
        lines.append((row.picture, row.question, row.answer, f"{row.probability:.2f}", row.expected, verdict))
    widths = [min(56, max(len(line[column]) for line in lines)) for column in range(6)]
    return "\n".join(
        "  ".join(shorten(cell, w).ljust(w) for cell, w in zip(line, widths, strict=True)) for line in lines
    )


def shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


if __name__ == "__main__":
    raise SystemExit(main())
