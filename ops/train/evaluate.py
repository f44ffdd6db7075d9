"""Measures a checkpoint on held-out pictures through the project's own engine.

    python -m ops.train.evaluate --world all --assets DIR --rows rows.jsonl --out ops/train/results/heldout.json

`--world all` has every family of `ops.train.compose`, which the shipped weights know; `first` is that of the first.
`--family emoji` asks about one family alone.
With `--card` the last line says whether the figures of an earlier table hold, and so does the exit code: they do unless
the 95 % interval of some type's accuracy lies below them.

Fonts, wordings, layouts, printed words, a background and a board are the held-out split's (`heldout.json`). A picture
is a JPEG of a photograph's size and goes through prep; a letter's, number's or text's answer is what the API returns.
Judged answers are appended to `--rows` as they come: a run that is stopped goes on from there, `--first` lets several
share the pictures, and `--out` is written from all the rows files once their pictures are done.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import random
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from ops.train.answering import EngineAnswerer, jpeg
from ops.train.ask import ask
from ops.train.asker import Answer, Asked
from ops.train.compose import FAMILIES
from ops.train.draw import Drawer
from ops.train.metrics import Judged, summary
from photocall.questions import Box, Choice, Number, Score, Text

SEEDS = {"heldout": 6_000_000_000, "validation": 7_000_000_000}  # training draws its seeds below 2e8
KINDS = ("things", "sign", "tags", "label", "gauge", "shelf", "light", "arrow")
WEIGHTS = (28, 17, 16, 22, 7, 5, 2, 3)  # more words than in training, so that few pictures give many text questions
OF_A_TYPE = 4  # questions of each type asked of one picture
PACKAGES = ("torch", "pillow", "numpy", "tokenizers", "safetensors")


def sample(drawer: Drawer, split: str, number: int, family: str | None = None) -> tuple[Any, tuple[Asked, ...], bytes]:
    """State, questions and picture file of one evaluation request, of one family of `compose.FAMILIES` or of any.

    Questions without an answer are left out.
    """
    rng = random.Random(SEEDS[split] + number)
    image, made = drawer.scene(rng, kind=rng.choices(KINDS, WEIGHTS)[0] if drawer.plain else family)
    left_out = "box" if drawer.plain else None
    known = (a for a in ask(made, split, rng, 60) if a.answer is not None and a.question.type != left_out)
    named = some_of_each_type(known, OF_A_TYPE)
    state = rng.choice(("@img", {"photo": "@img"}, {"image": "@img", "note": f"lot {rng.randint(1, 999)}"}, ["@img"]))
    return state, named, jpeg(image, rng.randint(75, 95))


def some_of_each_type(asked: Iterable[Asked], most: int) -> tuple[Asked, ...]:
    """The first `most` questions of each type, named anew."""
    taken: defaultdict[str, list[Asked]] = defaultdict(list)
    for one in asked:
        if len(taken[one.question.type]) < most:
            taken[one.question.type].append(one)
    every = (one for of_type in taken.values() for one in of_type)
    return tuple(replace(one, question=replace(one.question, name=f"q{i}")) for i, one in enumerate(every))


def judge(asked: Asked, answer: dict[str, Any]) -> tuple[bool, float]:
    """Whether the API's answer is the right one, and the probability it gave to what it answered."""
    question, truth = asked.question, asked.answer
    if isinstance(question, Choice):
        return answer["choice"] == truth, answer["probabilities"][answer["choice"]]
    if isinstance(question, Score):
        level = max(answer["probabilities"], key=lambda key: answer["probabilities"][key])
        return int(level) == truth, answer["probabilities"][level]
    if isinstance(question, Number):
        return answer["number"] == float(str(truth)), answer["confidence"]
    if isinstance(question, Text):
        return answer["text"] == truth, float(2.718281828459045 ** answer["logprob"])
    if isinstance(question, Box):
        return overlap(answer["box"], truth) >= 0.5, answer["confidence"]
    yes = answer["noul"] >= 0.5
    return yes == truth, answer["noul"] if yes else 1 - answer["noul"]


def overlap(box: dict[str, float], truth: Answer) -> float:
    """Intersection over union of an answered box and the right one."""
    assert isinstance(truth, tuple)
    top, bottom, left, right = truth
    shared = max(0.0, min(box["bottom"], bottom) - max(box["top"], top))
    shared *= max(0.0, min(box["right"], right) - max(box["left"], left))
    area = (box["bottom"] - box["top"]) * (box["right"] - box["left"])
    return shared / (area + (bottom - top) * (right - left) - shared)


def judged_rows(
    answerer: EngineAnswerer, drawer: Drawer, split: str, number: int, family: str | None = None
) -> list[dict[str, Any]]:
    """Every answer to one picture, judged."""
    state, asked, file = sample(drawer, split, number, family)
    answers = answerer.ask(state, [a.question for a in asked], {"@img": file})["answers"]
    rows = []
    for a in asked:
        answer = answers[a.question.name]
        right, confidence = judge(a, answer)
        row: dict[str, Any] = {
            "picture": number,
            "type": a.question.type,
            "kind": a.kind,
            "right": right,
            "confidence": confidence,
        }
        said = {name: answer[name] for name in ("choice", "noul", "score", "number", "text", "box") if name in answer}
        expected = float(a.answer) if isinstance(a.answer, Decimal) else a.answer
        row |= {"asked": a.question.instructions, "expected": expected, "said": next(iter(said.values()))}
        if isinstance(a.question, Box):
            row["iou"] = overlap(answer["box"], a.answer)
        rows.append(row)
    return rows


def provenance() -> dict[str, Any]:
    """When, with what, at which commit."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def result(rows: list[dict[str, Any]], split: str, families: list[str]) -> dict[str, Any]:
    """The whole table."""

    def of(name: str) -> dict[str, list[Judged]]:
        grouped: defaultdict[str, list[Judged]] = defaultdict(list)
        for row in rows:
            grouped[row[name]].append(Judged(row["picture"], row["right"], row["confidence"]))
        return dict(sorted(grouped.items()))

    kinds = of("kind")
    boxes = sum("iou" in row for row in rows)
    texts = [row for row in rows if row["type"] == "text"]
    folded = sum(str(row["said"]).casefold() == str(row["expected"]).casefold() for row in texts)
    return {
        **provenance(),
        "split": split,
        "pictures": len({row["picture"] for row in rows}),
        "fonts": sorted(families),
        "types": {name: summary(judged) for name, judged in of("type").items()},
        "digits_as_number": summary(kinds["read_number"]) if "read_number" in kinds else None,
        "box_mean_iou": round(sum(r["iou"] for r in rows if "iou" in r) / boxes, 4) if boxes else None,
        "text_right_but_for_case": round(folded / max(1, len(texts)), 4),
        "kinds": {
            kind: {"questions": len(judged), "accuracy": round(sum(j.right for j in judged) / len(judged), 4)}
            for kind, judged in kinds.items()
        },
        "some_wrong_answers": [row for row in rows if not row["right"]][:40],
    }


def verdict(table: dict[str, Any], card: dict[str, Any]) -> tuple[bool, str]:
    """Whether a card's figures hold in a table, and the line that says so, type by type."""
    known = [name for name in card["types"] if name in table["types"]]
    short = [name for name in known if table["types"][name]["accuracy_95"][1] < card["types"][name]["accuracy"]]
    parts = []
    for name in known:
        found, claimed = table["types"][name]["accuracy"], card["types"][name]["accuracy"]
        parts.append(f"{name} {found:.1%} (card {claimed:.1%}){' TOO LOW' if name in short else ''}")
    lead = f"{table['pictures']} pictures: the card {'does not hold' if short or not known else 'holds'}: "
    return bool(known) and not short, lead + ", ".join(parts)


def read_rows(files: list[Path]) -> list[dict[str, Any]]:
    """The rows of several files, by picture."""
    rows = [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]
    return sorted(rows, key=lambda row: int(row["picture"]))


def main() -> int:
    """Ask, judge, keep; write the table. 0 where the card holds, or none is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/mini"))
    parser.add_argument("--assets", type=Path, default=None)
    parser.add_argument("--split", choices=tuple(SEEDS), default="heldout")
    parser.add_argument("--world", choices=("first", "all"), default="first")
    parser.add_argument("--family", choices=tuple(FAMILIES), default=None, help="pictures of this one alone")
    parser.add_argument("--card", type=Path, default=None, help="a table of an earlier run")
    parser.add_argument("--first", type=int, default=0, help="number of the first picture")
    parser.add_argument("--pictures", type=int, default=1160)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=Path, nargs="+", required=True, help="the first is written, all are summed up")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    answerer, drawer = EngineAnswerer(args.model, args.threads), Drawer(args.split, args.assets, args.world == "first")
    done = {row["picture"] for row in read_rows(args.rows)}
    with args.rows[0].open("a") as file:
        for number in range(args.first, args.first + args.pictures):
            if number not in done:
                judged = judged_rows(answerer, drawer, args.split, number, args.family)
                lines = [json.dumps(row, ensure_ascii=False) for row in judged]
                file.write("".join(f"{line}\n" for line in lines))
                file.flush()
    table = result(read_rows(args.rows), args.split, drawer.families)
    for name, of in table["types"].items():
        low, high = of["accuracy_95"]
        right = f"right {of['accuracy']:.1%} ({low:.1%}-{high:.1%})"
        print(f"{name:7} {of['questions']:5} questions, {right}, ECE {of['ece']:.3f}")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(table, indent=2, ensure_ascii=False) + "\n")
    if args.card is None:
        return 0
    held, line = verdict(table, json.loads(args.card.read_text()))
    print(line)
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
