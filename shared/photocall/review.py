"""A queue for people: the answers of a batch that are worth a look, as Label Studio's tasks or as CSV.

It reads the lines of a batch's result file and, for the words and pictures, those of its input file. What is worth a
look: abstained or refused answers, and those whose confidence is below a bound; the least sure come first. It knows
nothing of HTTP; a picture stands in a task as its address on a server that keeps it.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

BELOW = 0.5
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
COLUMNS = ("custom_id", "question", "type", "status", "answer", "confidence", "instructions", "options", "pictures")
CONFIG = """<View>
  <Image name="picture" value="$image"/>
  <Header value="$instructions"/>
  <Choices name="choice" toName="picture" value="$options" choice="single"/>
  <Number name="number" toName="picture"/>
  <TextArea name="text" toName="picture"/>
  <RectangleLabels name="box" toName="picture"><Label value="box"/></RectangleLabels>
</View>
"""


@dataclass(frozen=True, slots=True)
class Doubtful:
    """One answer for a person to look at."""

    custom_id: str
    question: str
    answer: Mapping[str, Any]
    asked: Mapping[str, Any] = field(default_factory=dict)  # the question of the request; empty where it is not known
    pictures: tuple[str, ...] = ()  # addresses, in the order of the request's assets

    @property
    def type(self) -> str:
        return str(self.answer.get("type", ""))

    @property
    def status(self) -> str:
        return str(self.answer.get("answer_status", ""))

    @property
    def confidence(self) -> float:
        """From 0 to 1; a yes-no's is how far it is from even, and an answer that was not given has none."""
        if self.status in ("abstained", "refused"):
            return 0.0
        if self.type == "noul":
            return abs(2 * float(self.answer["noul"]) - 1)
        if self.type == "text":
            return float(self.answer.get("probability", 1.0))
        return float(self.answer.get("confidence", 1.0))

    @property
    def said(self) -> Any:
        """The answer by itself; None where there is none."""
        if self.type == "noul":
            return "yes" if self.answer["noul"] >= 0.5 else "no"
        if self.type == "score":
            by_level = self.answer["probabilities"]
            return self.answer["legend"][max(by_level, key=lambda level: by_level[level])]
        return self.answer.get(self.type)

    @property
    def options(self) -> list[str]:
        """What a person may choose from."""
        if self.type == "noul":
            return ["yes", "no"]
        if self.type == "score":
            return [_words(level) for level in self.answer["legend"].values()]
        return list(self.answer["probabilities"]) if self.type == "choice" else []

    @property
    def row(self) -> dict[str, Any]:
        """What the columns of COLUMNS have, as it is."""
        asked = (self.asked.get("instructions"), self.options, list(self.pictures))
        cells = (self.custom_id, self.question, self.type, self.status, self.said, self.confidence, *asked)
        return dict(zip(COLUMNS, cells, strict=True))


def doubtful(
    results: Iterable[str], inputs: Iterable[str] = (), server: str = "", below: float = BELOW
) -> list[Doubtful]:
    """What a person should look at, the least sure first. Raises ValueError for a line that is no batch's."""
    asked = {line["custom_id"]: line.get("body", {}) for line in _lines(inputs)}
    found = []
    for line in _lines(results):
        body = ((line.get("response") or {}).get("body")) or {}
        answers = (body.get("result") or body).get("answers") or {}
        if not isinstance(answers, Mapping):
            raise ValueError("answers in the Decisions shape have no names: use /v1/jobs or /v1/systemone")
        request = asked.get(line["custom_id"], {})
        pictures = tuple(_pictures(request, server))
        for name, answer in answers.items():
            if answer.get("answer_status") == "not_asked":
                continue
            one = Doubtful(line["custom_id"], name, answer, (request.get("questions") or {}).get(name, {}), pictures)
            if one.confidence < below:
                found.append(one)
    return sorted(found, key=lambda one: (one.confidence, one.custom_id, one.question))


def label_studio(queue: Sequence[Doubtful], model: str = "photocall") -> list[dict[str, Any]]:
    """Tasks with the model's answers as predictions, in Label Studio's JSON format, for a project set up as CONFIG."""
    tasks = []
    for one in queue:
        data = {
            "custom_id": one.custom_id,
            "question": one.question,
            "instructions": _words(one.asked.get("instructions")),
            "status": one.status,
            "options": [{"value": option} for option in one.options],
            "image": one.pictures[0] if one.pictures else "",
            "images": list(one.pictures),
        }
        result = _result(one)
        predictions = [{"model_version": model, "score": one.confidence, "result": [result]}] if result else []
        tasks.append({"data": data, "predictions": predictions})
    return tasks


def write_csv(queue: Sequence[Doubtful], file: TextIO) -> None:
    """One row for each, under COLUMNS. A cell that a spreadsheet would run as a formula is made a text."""
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for one in queue:
        cells = one.row | {
            "confidence": f"{one.confidence:.6f}",
            "options": " | ".join(one.options),
            "pictures": " ".join(one.pictures),
        }
        writer.writerow([_harmless(_words(cell)) for cell in cells.values()])


def _result(one: Doubtful) -> dict[str, Any] | None:
    """The answer as a region of Label Studio; None where there is none."""
    if one.said is None:
        return None
    kind: str
    value: dict[str, Any]
    if one.type in ("choice", "noul", "score"):
        name, kind, value = "choice", "choices", {"choices": [_words(one.said)]}
    elif one.type == "number":
        name, kind, value = "number", "number", {"number": one.said}
    elif one.type == "text":
        name, kind, value = "text", "textarea", {"text": [one.said]}
    else:
        edges = one.said  # in hundredths of the picture there, as fractions here
        value = {
            "x": 100 * edges["left"],
            "y": 100 * edges["top"],
            "width": 100 * (edges["right"] - edges["left"]),
            "height": 100 * (edges["bottom"] - edges["top"]),
            "rotation": 0,
            "rectanglelabels": ["box"],
        }
        name, kind = "box", "rectanglelabels"
    return {"from_name": name, "to_name": "picture", "type": kind, "value": value}


def _pictures(request: Mapping[str, Any], server: str) -> Iterator[str]:
    for asset in (request.get("assets") or {}).values():
        if not isinstance(asset, Mapping):
            continue
        if asset.get("url"):
            yield asset["url"]
            continue
        sha256 = asset.get("sha256")
        if sha256 is None and asset.get("data_base64"):
            sha256 = hashlib.sha256(b64decode(asset["data_base64"])).hexdigest()
        if sha256 is not None:
            yield f"{server}/v1/images/{sha256}/seen.png"


def _lines(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = json.loads(line)
        if not isinstance(found, dict) or "custom_id" not in found:
            raise ValueError(f"line {number} has no custom_id: not a file of a batch")
        yield found


def _words(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _harmless(cell: str) -> str:
    """What a spreadsheet does not take for a formula; a number is none."""
    if _NUMBER.fullmatch(cell):
        return cell
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell
