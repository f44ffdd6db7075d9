"""Measures a checkpoint on held-out pictures through the project's own engine.

    python -m ops.train.evaluate --fonts DIR --pictures 1000 --out ops/train/results/heldout.json

Fonts, wordings, layouts, printed words, a background and a board are the held-out split's (`heldout.json`). A picture
is a JPEG of a photograph's size and goes through prep; a letter's, number's or text's answer is what the API returns.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import random
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ops.train.answering import EngineAnswerer, jpeg
from ops.train.ask import ask
from ops.train.asker import Asked
from ops.train.draw import Drawer
from ops.train.metrics import Judged, summary
from photocall.questions import Choice, Number, Score, Text

SEEDS = {"heldout": 6_000_000_000, "validation": 7_000_000_000}  # training draws its seeds below 2e8
KINDS = ("things", "sign", "tags", "label", "gauge", "shelf", "light", "arrow")
WEIGHTS = (28, 17, 16, 22, 7, 5, 2, 3)  # more words than in training, so that few pictures give many text questions
OF_A_TYPE = 4  # questions of each type asked of one picture
PACKAGES = ("torch", "pillow", "numpy", "tokenizers", "safetensors")


def sample(drawer: Drawer, split: str, number: int) -> tuple[Any, tuple[Asked, ...], bytes]:
    """State, questions and picture file of one evaluation request."""
    rng = random.Random(SEEDS[split] + number)
    image, made = drawer.scene(rng, kind=rng.choices(KINDS, WEIGHTS)[0])
    taken: defaultdict[str, list[Asked]] = defaultdict(list)
    for asked in ask(made, split, rng, 60):
        if len(taken[asked.question.type]) < OF_A_TYPE:
            taken[asked.question.type].append(asked)
    every = [asked for of_type in taken.values() for asked in of_type]
    named = tuple(replace(a, question=replace(a.question, name=f"q{i}")) for i, a in enumerate(every))
    state = rng.choice(("@img", {"photo": "@img"}, {"image": "@img", "note": f"lot {rng.randint(1, 999)}"}, ["@img"]))
    return state, named, jpeg(image, rng.randint(75, 95))


def judge(asked: Asked, answer: dict[str, Any]) -> tuple[bool, float]:
    """Whether the API's answer is the right one, and the probability it gave to what it answered."""
    question, truth = asked.question, asked.answer
    if isinstance(question, Choice):
        return answer["choice"] == truth, answer["probabilities"][answer["choice"]]
    if isinstance(question, Score):
        level = max(answer["probabilities"], key=lambda key: answer["probabilities"][key])
        return int(level) == truth, answer["probabilities"][level]
    if isinstance(question, Number):
        return answer["number"] == truth, answer["confidence"]
    if isinstance(question, Text):
        return answer["text"] == truth, float(2.718281828459045 ** answer["logprob"])
    yes = answer["noul"] >= 0.5
    return yes == truth, answer["noul"] if yes else 1 - answer["noul"]


def judged_answers(
    answerer: EngineAnswerer, drawer: Drawer, split: str, pictures: int
) -> Iterator[tuple[int, Asked, dict[str, Any], bool, float]]:
    """Every answer of every picture, one after another."""
    for number in range(pictures):
        state, asked, file = sample(drawer, split, number)
        answers = answerer.ask(state, [a.question for a in asked], {"@img": file})["answers"]
        for a in asked:
            yield number, a, answers[a.question.name], *judge(a, answers[a.question.name])


def provenance() -> dict[str, Any]:
    """When, with what, at which commit."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def main() -> None:
    """Ask, judge, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/mini"))
    parser.add_argument("--fonts", type=Path, default=None)
    parser.add_argument("--split", choices=tuple(SEEDS), default="heldout")
    parser.add_argument("--pictures", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    by_type: defaultdict[str, list[Judged]] = defaultdict(list)
    by_kind: defaultdict[str, list[Judged]] = defaultdict(list)
    wrong: list[dict[str, Any]] = []
    folded = 0
    began, last = time.monotonic(), 0.0
    answerer, drawer = EngineAnswerer(args.model, args.threads), Drawer(args.split, args.fonts)

    def write(pictures: int) -> None:
        digits = by_kind["read_number"]
        result = {
            **provenance(),
            "split": args.split,
            "pictures": pictures,
            "fonts": sorted(drawer.families),
            "seconds": round(time.monotonic() - began),
            "types": {name: summary(judged) for name, judged in sorted(by_type.items())},
            "digits_as_number": summary(digits) if digits else None,
            "text_right_but_for_case": folded / max(1, len(by_type["text"])),
            "kinds": {
                kind: {"questions": len(judged), "accuracy": round(sum(j.right for j in judged) / len(judged), 4)}
                for kind, judged in sorted(by_kind.items())
            },
            "some_wrong_answers": wrong[:40],
        }
        args.out.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")

    number = 0
    for number, asked, answer, right, confidence in judged_answers(answerer, drawer, args.split, args.pictures):
        kind = asked.question.type
        judged = Judged(number, right, confidence)
        by_type[kind].append(judged)
        by_kind[asked.kind].append(judged)
        if kind == "text":
            folded += str(answer["text"]).casefold() == str(asked.answer).casefold()
        if not right:
            said = {k: v for k, v in answer.items() if k in ("choice", "noul", "score", "number", "text")}
            asked_as = {"kind": asked.kind, "asked": asked.question.instructions, "right": asked.answer}
            wrong.append({"picture": number, **asked_as, **said})
        if time.monotonic() - last > 120:
            last = time.monotonic()
            print(number + 1, {k: round(sum(j.right for j in v) / len(v), 4) for k, v in by_type.items()}, flush=True)
            write(number + 1)
    write(number + 1)


if __name__ == "__main__":
    main()
