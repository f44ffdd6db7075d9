"""The official Python SDK, unchanged, against a real server on a loopback port."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as PILImage
from typesafe_sdk import (
    AsyncTypeSafeClient,
    Box,
    Choice,
    Image,
    Noul,
    Question,
    RetryPolicy,
    Score,
    SystemOneResponse,
    TypeSafeAPIError,
    TypeSafeAuthenticationError,
    TypeSafeBadRequestError,
    TypeSafeClient,
    TypeSafeInternalServerError,
    TypeSafeUnprocessableEntityError,
)

from photocall.asks import Ask
from photocall.jobs import JobRecord, Outcome, Refused
from photocall.settings import GatewaySettings
from photocall.wire import unpack
from tests.gateway.conftest import served
from tests.gateway.fake_backend import FakeBackend, answered

QUESTIONS: dict[str, Question] = {
    "restock": Noul(instructions="Does the shelf need restocking?", criteria={"true": "gaps", "false": None}),
    "team": Choice(instructions="Which team?", criteria={"billing": "Money", "tech": None}),
    "urgency": Score(instructions={"how": "urgent"}, criteria=["Can wait", {"when": "today"}]),
}
NO_RETRY = RetryPolicy(max_retries=0)


def png(colour: str) -> bytes:
    out = io.BytesIO()
    PILImage.new("RGB", (64, 48), colour).save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def sdk(address: str) -> Iterator[TypeSafeClient]:
    with TypeSafeClient(api_key="any", base_url=address, retry=NO_RETRY) as client:
        yield client


def check(result: SystemOneResponse) -> None:
    assert result.model == "photocall-mini"
    assert result.nouls["restock"].noul == 0.875
    assert (result.choices["team"].choice, result.choices["team"].confidence) == ("billing", 0.75)
    assert result.choices["team"].probabilities == {"billing": 0.8, "tech": 0.2}
    assert result.scores["urgency"].score == 0.0
    assert result.scores["urgency"].legend == {0: "Can wait", 1: {"when": "today"}}
    assert (result.usage.input_tokens, result.usage.output_tokens) == (42, 3)
    assert result.request_id.startswith("req_")


def test_text_with_every_question_type(sdk: TypeSafeClient, backend: FakeBackend) -> None:
    check(sdk.system_one(state={"ticket": "Charged twice.", "n": [1, None, 2.5]}, questions=QUESTIONS))


def test_a_long_body(sdk: TypeSafeClient, backend: FakeBackend) -> None:
    check(sdk.system_one(state="word " * 100_000, questions=QUESTIONS))


def test_pictures_in_state_instructions_and_by_alias(sdk: TypeSafeClient, backend: FakeBackend, tmp_path: Path) -> None:
    asks: list[Ask] = []

    def respond(ask: Ask, record: JobRecord) -> Outcome:
        asks.append(ask)
        return answered(ask, record)

    backend.respond = respond
    red, blue, path = png("red"), png("blue"), tmp_path / "green.png"
    path.write_bytes(png("green"))
    first, second, third = Image(red), Image(blue), Image(path)
    questions = {**QUESTIONS, "same": Noul(instructions=f"Is it the item in {second}?")}
    with sdk.attach_assets(second):
        result = sdk.system_one(state={"returned": first, "shelf": "see photo"}, questions=questions,
                                assets={"photo": third})  # fmt: skip
    assert result.usage.output_tokens == 4
    (ask,) = asks
    assert ask.assets == {
        "photo": hashlib.sha256(path.read_bytes()).hexdigest(),
        str(first): hashlib.sha256(red).hexdigest(),
        str(second): hashlib.sha256(blue).hexdigest(),
    }
    assert ask.state == {"returned": str(first), "shelf": "see photo"}


def test_a_box(address: str, sdk: TypeSafeClient, backend: FakeBackend) -> None:
    asked: dict[str, Any] = {
        "state": {"shelf": Image(png("red"))},
        "questions": {"red": Box(instructions="the red box"), "has": Noul(instructions="Is there one?")},
    }

    async def ask() -> SystemOneResponse:
        async with AsyncTypeSafeClient(api_key="any", base_url=address, retry=NO_RETRY) as client:
            return await client.system_one(**asked)

    for result in (sdk.system_one(**asked), asyncio.run(ask())):
        box = result.boxes["red"].box
        assert (box.top, box.bottom, box.left, box.right) == (0.25, 0.75, 0.125, 0.5)
        assert result.boxes["red"].confidence == 0.75
        assert result.nouls["has"].noul == 0.875


def test_the_async_client(address: str, backend: FakeBackend) -> None:
    async def ask() -> list[SystemOneResponse]:
        async with AsyncTypeSafeClient(api_key="any", base_url=address, retry=NO_RETRY) as client:
            assert [model.name for model in (await client.models.list()).models][1:] == [
                "jev-latest",
                "jev-preview",
                "nimble-latest",
            ]
            return list(
                await asyncio.gather(
                    client.system_one(state="text", questions=QUESTIONS),
                    client.system_one(state=Image(png("red")), questions=QUESTIONS, model="jev-preview"),
                )
            )

    for result in asyncio.run(ask()):
        check(result)


def test_models(sdk: TypeSafeClient) -> None:
    models = sdk.models.list().models
    assert [model.name for model in models] == ["photocall-mini", "jev-latest", "jev-preview", "nimble-latest"]
    assert all(model.description and model.release_date == "2026-11-30" for model in models)


def test_our_own_types_pass_through_extra_body(sdk: TypeSafeClient, backend: FakeBackend) -> None:
    raw: dict[str, Any] = {
        "n": {"type": "number", "instructions": "How many?", "min": 0, "max": 20, "step": 1},
        "red": {"type": "noul", "instructions": "Any red box?"},
    }
    result = sdk.system_one(state="x", questions=QUESTIONS, extra_body={"questions": raw})
    assert set(result.answers) == {"red"}
    assert result.raw_http_response.json()["answers"]["n"]["number"] == 2


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"model": "nope"}, TypeSafeBadRequestError, "Unknown model: nope"),
        ({"assets": {"img-1": Image(png("red"))}}, TypeSafeBadRequestError, "Asset 'img-1' is not referenced"),
        (
            {"questions": {"b": {"type": "box"}}},
            TypeSafeUnprocessableEntityError,
            "questions.b.box: A box needs a picture",
        ),
        ({"state": "s", "assets": {"s": Image(b"no picture")}}, TypeSafeAPIError, "Asset 's' is no picture"),
        (
            {"questions": {"c": {"type": "choice", "criteria": dict.fromkeys(map(str, range(256)))}}},
            TypeSafeUnprocessableEntityError,
            "questions.c.choice.criteria: At most 255 options, got 256",
        ),
    ],
)
def test_errors_as_the_sdk_raises_them(
    sdk: TypeSafeClient, fields: dict[str, Any], error: type[TypeSafeAPIError], message: str
) -> None:
    arguments: dict[str, Any] = {"state": "x", "questions": QUESTIONS, **fields}
    with pytest.raises(error, match=message) as caught:
        sdk.system_one(**arguments)
    assert caught.value.request_id is not None


def test_the_sdk_tries_a_passing_failure_again(address: str, backend: FakeBackend) -> None:
    def respond(ask: Ask, record: JobRecord) -> Outcome:
        assert unpack(record.ask)["model"] == "jev-latest"
        return Refused("internal", "a stumble") if len(backend.seen) == 1 else answered(ask, record)

    backend.respond = respond
    retry = RetryPolicy(max_retries=1, backoff_initial=0.01)
    with TypeSafeClient(api_key="any", base_url=address, retry=retry) as client:
        check(client.system_one(state="text", questions=QUESTIONS))
    assert len(backend.seen) == 2


def test_no_answer_in_time_is_an_internal_server_error(settings: GatewaySettings, backend: FakeBackend) -> None:
    backend.hold.set()
    with (
        served(replace(settings, sync_wait_s=0.3)) as address,
        TypeSafeClient(api_key="any", base_url=address, retry=NO_RETRY) as client,
        pytest.raises(TypeSafeInternalServerError, match="Not answered within"),
    ):
        client.system_one(state="x", questions=QUESTIONS)


def test_keys(settings: GatewaySettings, backend: FakeBackend, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"ann:{hashlib.sha256(b'good').hexdigest()}\n")
    with served(replace(settings, api_keys=file)) as address:
        with TypeSafeClient(api_key="good", base_url=address, retry=NO_RETRY) as client:
            check(client.system_one(state="x", questions=QUESTIONS))
        with (
            TypeSafeClient(api_key="wrong", base_url=address, retry=NO_RETRY) as client,
            pytest.raises(TypeSafeAuthenticationError, match="Invalid API key"),
        ):
            client.system_one(state="x", questions=QUESTIONS)
