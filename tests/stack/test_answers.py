"""The shipped model through the whole pipeline: real processes, real pictures, right answers."""

from __future__ import annotations

import asyncio
import io
import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image as PILImage
from PIL import ImageDraw, ImageFont
from typesafe_sdk import AsyncTypeSafeClient, Choice, Image, Noul, Question, Score, TypeSafeClient

from ops.demo import SAMPLES, read_samples
from ops.running import running

pytestmark = pytest.mark.timeout(240)

COLOURS = {"red": "#d62020", "green": "#1f9c3a", "blue": "#2040d0", "yellow": "#f2d21b", "black": "#101010"}
SDK_TYPES = ("choice", "noul", "score")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running() as where:
        yield where


def sdk_question(raw: dict[str, Any]) -> Question:
    kinds: dict[str, Any] = {"choice": Choice, "noul": Noul, "score": Score}
    question: Question = kinds[raw["type"]](**{name: value for name, value in raw.items() if name != "type"})
    return question


def asked(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample as arguments of the SDK, with the questions the SDK knows."""
    questions = {n: sdk_question(q) for n, q in sample["questions"].items() if q["type"] in SDK_TYPES}
    return {
        "state": sample["state"],
        "questions": questions,
        "assets": {sample["asset"]: Image(SAMPLES / sample["file"])},
    }


def said(answer: Any) -> Any:
    """What an answer of the SDK says, in the terms of samples.json."""
    if answer.type == "noul":
        return answer.noul >= 0.5
    if answer.type == "choice":
        return answer.choice
    return max(answer.probabilities, key=answer.probabilities.get)


def test_the_sdk_answers_the_demo_s_questions(address: str) -> None:
    right, wrong = 0, []
    with TypeSafeClient(api_key="unused", base_url=address) as client:
        for sample in read_samples():
            answers = client.system_one(**asked(sample)).answers
            for name, answer in answers.items():
                if said(answer) == sample["expected"][name]:
                    right += 1
                else:
                    wrong.append((sample["file"], name, said(answer), sample["expected"][name]))
    assert right + len(wrong) >= 20
    assert right >= 0.9 * (right + len(wrong)), wrong


def test_the_async_sdk_gives_the_same_answers(address: str) -> None:
    sample = read_samples()[0]

    async def ask() -> Any:
        async with AsyncTypeSafeClient(api_key="unused", base_url=address) as client:
            return await client.system_one(**asked(sample))

    with TypeSafeClient(api_key="unused", base_url=address) as client:
        assert asyncio.run(ask()).answers == client.system_one(**asked(sample)).answers


def picture(colour: str, number: int, rng: random.Random) -> bytes:
    """A disc of a colour with a number printed below it, at places of the seed."""
    image = PILImage.new("RGB", (800, 600), (rng.randint(190, 225),) * 3)
    pen = ImageDraw.Draw(image)
    x, y, r = rng.randint(200, 600), rng.randint(130, 200), rng.randint(70, 110)
    pen.ellipse((x - r, y - r, x + r, y + r), fill=COLOURS[colour])
    pen.text(
        (rng.randint(120, 450), rng.randint(370, 430)), str(number), fill="#202020", font=ImageFont.load_default(110)
    )
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("seed", range(3))
def test_the_answer_follows_the_picture(address: str, seed: int) -> None:
    rng = random.Random(seed)
    first, second = rng.sample(sorted(COLOURS), 2)
    numbers = rng.sample(range(10, 1000), 2)
    options = dict.fromkeys(rng.sample(sorted(COLOURS), len(COLOURS)))
    questions = {
        "colour": {"type": "choice", "instructions": "What color is the circle?", "criteria": options},
        "number": {"type": "number", "instructions": "What number is printed in the picture?", "min": 0, "step": 1},
    }
    got = []
    for colour, number in zip((first, second), numbers, strict=True):
        answers = post(address, picture(colour, number, rng), questions)
        got.append((answers["colour"]["choice"], answers["number"]["number"]))
    assert got == list(zip((first, second), numbers, strict=True))


def post(address: str, data: bytes, questions: dict[str, Any]) -> dict[str, Any]:
    request = {"state": {"photo": "p"}, "questions": questions, "assets": {"p": {"type": "image", "part": "p"}}}
    files: dict[str, Any] = {
        "request": (None, json.dumps(request), "application/json"),
        "p": ("p.png", data, "image/png"),
    }
    with httpx.Client(trust_env=False) as client:
        response = client.post(f"{address}/v1/systemone", files=files, timeout=30)
    assert response.status_code == 200, response.text
    return dict(response.json()["answers"])


def test_probabilities_are_the_same_alone_and_in_a_crowd(address: str) -> None:
    rng = random.Random(7)
    pictures = [picture(rng.choice(sorted(COLOURS)), rng.randint(10, 999), rng) for _ in range(6)]
    questions = {
        "red": {"type": "noul", "instructions": "Is there something red?"},
        "number": {"type": "number", "instructions": "What number is shown?"},
    }
    another = {"dark": {"type": "noul", "instructions": "Is it dark?"}}
    with ThreadPoolExecutor(6) as pool:
        crowd = list(pool.map(lambda data: post(address, data, questions), pictures))
    alone = [post(address, data, questions | another) for data in pictures]
    assert [{name: answers[name] for name in questions} for answers in alone] == crowd


def test_the_samples_are_small_and_whole() -> None:
    samples = read_samples()
    assert sum((SAMPLES / sample["file"]).stat().st_size for sample in samples) < 600_000
    assert all(sample["questions"].keys() == sample["expected"].keys() for sample in samples)
    assert {q["type"] for s in samples for q in s["questions"].values()} == {*SDK_TYPES, "number", "text"}
    assert Path(SAMPLES / "samples.json").stat().st_size < 60_000
