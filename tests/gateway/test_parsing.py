"""Request bodies of both routes: the official client's own requests, and every fault with the field it names."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from photocall.errors import CodedError
from photocall.questions import Box, Choice, InvalidField, Noul, Number, Score, Text
from photocall.views import View
from photocall_gateway.body import Body, Limits
from photocall_gateway.parsing import JobOptions, ParsedRequest, parse_job, parse_systemone

CONTRACT = Path(__file__).parent / "contract"
LIMITS = Limits(max_decompressed_bytes=1 << 20, max_text_chars=20_000, max_image_bytes=5000, max_images=2)
PNG = b"\x89PNG\r\n\x1a\n" + b"rest"
QUESTION = {"q": {"type": "noul", "instructions": "Is it?"}}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def as_json(value: Any) -> Body:
    return Body(json.dumps(value).encode(), "application/json", "")


def multipart(request: Any, **parts: bytes) -> Body:
    data = b'--B\r\nContent-Disposition: form-data; name="request"\r\n\r\n' + json.dumps(request).encode() + b"\r\n"
    for name, part in parts.items():
        data += f'--B\r\nContent-Disposition: form-data; name="{name}"; filename="x"\r\n\r\n'.encode() + part + b"\r\n"
    return Body(data + b"--B--\r\n", "multipart/form-data; boundary=B", "")


def pair(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((CONTRACT / f"{name}.json").read_text())
    return loaded


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("01_text_all_types", [Noul, Choice, Score]),
        ("02_image_inline_base64", [Noul, Choice]),
        ("05_long_choice_and_json_instructions", [Choice]),
        ("06_extensions_ignored_by_clients", [Number, Text, Noul]),
    ],
)
def test_requests_of_the_contract_are_taken(name: str, types: list[type]) -> None:
    request = pair(name)["request"]
    parsed = parse_systemone(as_json(request), LIMITS)
    assert [type(question) for question in parsed.ask.questions] == types
    assert [question.name for question in parsed.ask.questions] == list(request["questions"])
    assert parsed.ask.state == request["state"]
    assert parsed.ask.model == request["model"]
    for key, asset in request.get("assets", {}).items():
        data = base64.b64decode(asset["data_base64"])
        assert parsed.ask.assets[key] == hashlib.sha256(data).hexdigest()
        assert parsed.images[parsed.ask.assets[key]] == data


def test_a_box_needs_a_picture() -> None:
    request = pair("03_box_and_image")["request"]
    assert Box("red", "the red box") in parse_systemone(as_json(request), LIMITS).ask.questions
    with pytest.raises(InvalidField, match="A box needs a picture") as caught:
        parse_systemone(as_json({**request, "assets": None}), LIMITS)
    assert caught.value.loc == ("questions", "red", "box")


def test_the_official_clients_multipart_bytes_plain_and_compressed() -> None:
    plain = (CONTRACT / "04_two_images_multipart.bin").read_bytes()
    packed = (CONTRACT / "04_two_images_multipart.bin.zst").read_bytes()
    kind = "multipart/form-data; boundary=B"
    parsed = parse_systemone(Body(plain, kind, ""), LIMITS)
    assert parse_systemone(Body(packed, kind, "zstd"), LIMITS) == parsed
    assert [len(parsed.images[sha]) for sha in parsed.ask.images] == [1343, 999]
    assert parsed.ask.state == pair("04_two_images_in_instructions_and_criteria")["request"]["state"]


def test_a_body_cut_short_inside_its_compression_is_refused() -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(as_json({"state": "x" * 5000}).data)
    with pytest.raises(CodedError) as caught:
        parse_systemone(Body(packed[:-4], "application/json", "zstd"), LIMITS)
    assert caught.value.code == "malformed"


def test_unknown_fields_are_ignored_and_an_empty_state_is_taken() -> None:
    parsed = parse_systemone(as_json({"state": "", "questions": QUESTION, "temperature": 3, "assets": None}), LIMITS)
    assert (parsed.ask.state, parsed.ask.model, parsed.images) == ("", None, {})


def test_with_part_inline_data_is_ignored_and_wrapped_base64_is_taken() -> None:
    wrapped = base64.encodebytes(PNG * 20).decode()
    request = {
        "state": "a b",
        "questions": QUESTION,
        "assets": {"a": {"type": "image", "part": "p", "data_base64": "!"}, "b": {"data_base64": wrapped}},
    }
    parsed = parse_systemone(multipart(request, p=PNG), LIMITS)
    assert parsed.images[parsed.ask.assets["a"]] == PNG
    assert parsed.images[parsed.ask.assets["b"]] == PNG * 20


def test_one_picture_under_two_keys_is_kept_once() -> None:
    assets = {"a": {"data_base64": b64(PNG)}, "b": {"data_base64": b64(PNG)}}
    parsed = parse_systemone(as_json({"state": "a b", "questions": QUESTION, "assets": assets}), LIMITS)
    assert list(parsed.images) == [parsed.ask.assets["a"]] == [parsed.ask.assets["b"]]


def asset(entry: Any, state: str = "img") -> dict[str, Any]:
    return {"state": state, "questions": QUESTION, "assets": {"img": entry}}


@pytest.mark.parametrize(
    ("request_body", "loc"),
    [
        ([], ()),
        ("text", ()),
        ({"questions": QUESTION}, ("state",)),
        ({"state": None, "questions": QUESTION}, ("state",)),
        ({"state": 7, "questions": QUESTION}, ("state",)),
        ({"state": True, "questions": QUESTION}, ("state",)),
        ({"state": ""}, ("questions",)),
        ({"state": "", "questions": {}}, ("questions",)),
        ({"state": "", "questions": [QUESTION]}, ("questions",)),
        ({"state": "", "questions": QUESTION, "model": 5}, ("model",)),
        ({"state": "", "questions": QUESTION, "assets": []}, ("assets",)),
        ({"state": "", "questions": QUESTION, "assets": {}}, ("assets",)),
        ({"state": "", "questions": QUESTION, "assets": {"": {"data_base64": b64(PNG)}}}, ("assets", "")),
        (asset("x"), ("assets", "img")),
        (asset({"type": "video", "data_base64": b64(PNG)}), ("assets", "img", "type")),
        (asset({"type": "image"}), ("assets", "img", "data_base64")),
        (asset({"type": "image", "path": "/etc/passwd"}), ("assets", "img", "data_base64")),
        (asset({"data_base64": 5}), ("assets", "img", "data_base64")),
        (asset({"data_base64": "not base64!"}), ("assets", "img", "data_base64")),
        (asset({"data_base64": "abc"}), ("assets", "img", "data_base64")),
        (asset({"data_base64": "é"}), ("assets", "img", "data_base64")),
        (asset({"data_base64": ""}), ("assets", "img")),
        (asset({"part": "p"}), ("assets", "img", "part")),
        (asset({"part": 1}), ("assets", "img", "part")),
    ],
)
def test_a_wrong_field_is_named(request_body: Any, loc: tuple[str | int, ...]) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_systemone(as_json(request_body), LIMITS)
    assert caught.value.loc == loc


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (Body(b"", "application/json", ""), "malformed", "empty"),
        (Body(b"", "multipart/form-data; boundary=B", ""), "malformed", "empty"),
        (Body(b"{", "application/json", ""), "malformed", "not valid JSON"),
        (Body(b"{}", "text/plain", ""), "unsupported_type", "application/json"),
        (as_json(asset({"data_base64": b64(b"GARBAGE")})), "image_unsupported", "'img'"),
        (as_json(asset({"data_base64": b64(PNG + b"x" * 5000)})), "image_too_large", "'img' has 5012 bytes"),
        (as_json(asset({"data_base64": b64(PNG)}, state="imx")), "unreferenced_asset", "'img' is not referenced"),
        (multipart({"state": "", "questions": QUESTION}, p=PNG), "malformed", "'p' belongs to no asset"),
    ],
)
def test_other_refusals(body: Body, code: str, message: str) -> None:
    with pytest.raises(CodedError, match=message) as caught:
        parse_systemone(body, LIMITS)
    assert caught.value.code == code


def test_a_part_belongs_to_one_asset_only() -> None:
    request = {"state": "a b", "questions": QUESTION, "assets": {"a": {"part": "p"}, "b": {"part": "p"}}}
    with pytest.raises(InvalidField) as caught:
        parse_systemone(multipart(request, p=PNG), LIMITS)
    assert caught.value.loc == ("assets", "b", "part")


def test_too_many_pictures() -> None:
    assets = {f"k{i}": {"data_base64": b64(PNG + bytes([i]))} for i in range(3)}
    with pytest.raises(InvalidField, match="At most 2 pictures, got 3"):
        parse_systemone(as_json({"state": "k0 k1 k2", "questions": QUESTION, "assets": assets}), LIMITS)


def test_too_many_assets_and_a_key_that_is_too_long() -> None:
    entry = {"data_base64": b64(PNG)}
    many = {"state": "k", "questions": QUESTION, "assets": {f"k{i}": entry for i in range(65)}}
    with pytest.raises(InvalidField, match="At most 64 assets, got 65"):
        parse_systemone(as_json(many), LIMITS)
    with pytest.raises(InvalidField, match="1 to 256 characters"):
        parse_systemone(as_json({"state": "k", "questions": QUESTION, "assets": {"k" * 257: entry}}), LIMITS)


@pytest.mark.parametrize("where", ["state", "instructions"])
def test_text_that_fits_no_model_is_refused_with_the_numbers(where: str) -> None:
    long = "x" * 20_000
    request = (
        {"state": long, "questions": QUESTION}
        if where == "state"
        else {"state": "", "questions": {"q": {"type": "noul", "instructions": long}}}
    )
    with pytest.raises(CodedError) as caught:
        parse_systemone(as_json(request), LIMITS)
    assert caught.value.code == "prompt_too_long"
    assert caught.value.data["limit"] == 20_000 < caught.value.data["characters"]


@pytest.mark.timeout(60)  # a search that is quadratic takes minutes
def test_many_keys_in_the_longest_text_are_found() -> None:
    limits = replace(LIMITS, max_text_chars=10**6, max_images=64)
    assets = {f"{i:02d}-key": {"data_base64": b64(PNG + bytes([i]))} for i in range(64)}
    text = "0" * 900_000 + " ".join(assets)
    parsed = parse_systemone(as_json({"state": text, "questions": QUESTION, "assets": assets}), limits)
    assert len(parsed.images) == 64


def job(value: Any) -> tuple[ParsedRequest, JobOptions]:
    return parse_job(as_json({"state": "", "questions": QUESTION, **value}), LIMITS, max_deadline_s=100)


def test_options_of_a_native_job() -> None:
    assert job({})[1] == JobOptions()
    given = {"priority": "batch", "deadline_s": 5, "metadata": {"row": "7"}, "order": None, "budget": 280}
    parsed, options = job(given)
    assert options == JobOptions("batch", 5.0, {"row": "7"}, budget=280)
    assert parsed.ask.budget == 280
    assert len({job({**given, "budget": budget})[0].hash for budget in (None, 140, 280, "auto")}) == 4
    assert parse_systemone(as_json({"state": "", "questions": QUESTION, "budget": 280}), LIMITS).ask.budget is None


SHA = "ab" * 32


def shown_as(**view: Any) -> ParsedRequest:
    return job({"state": "img", "assets": {"img": {"type": "image", "sha256": SHA, **view}}})[0]


def test_how_a_picture_is_shown_stands_beside_it() -> None:
    assert shown_as().ask.views == {}
    assert shown_as(page=1).ask.views == {}, "the first page is what is shown anyhow"
    assert shown_as(page=3, dpi=150).ask.views == {"img": View(frame=2, dpi=150)}
    assert shown_as(frame=3, background="#FFaa00", budget="auto").ask.views["img"] == View(3, None, "ffaa00", "auto")
    hashes = {shown_as(**view).hash for view in ({}, {"frame": 1}, {"frame": 2}, {"budget": 280}, {"dpi": 20})}
    assert len(hashes) == 5
    assert shown_as(page=3).ask.pictures == {"img": f"{SHA}?frame=2"}


def test_how_a_picture_of_a_list_or_a_part_is_shown() -> None:
    listed = parse_systemone(
        as_json({"state": "[image 1]", "questions": QUESTION, "images": [{"sha256": SHA, "page": 2}]}), LIMITS
    )
    assert listed.ask.views == {"[image 1]": View(frame=1)}
    part = {"type": "image_url", "sha256": SHA, "budget": 70}
    [view] = parse_systemone(as_json({"state": [part], "questions": QUESTION}), LIMITS).ask.views.values()
    assert view == View(budget=70)


def test_two_views_of_a_file_are_two_pictures() -> None:
    assets = {f"img{n}": {"sha256": SHA, "page": n} for n in range(1, LIMITS.max_images + 2)}
    with pytest.raises(InvalidField, match="pictures"):
        job({"state": " ".join(assets), "assets": assets})


@pytest.mark.parametrize(
    "view",
    [
        {"frame": -1}, {"frame": True}, {"frame": "1"}, {"frame": 1.5}, {"page": 0}, {"dpi": 5}, {"dpi": 9999},
        {"background": "red"}, {"background": 7}, {"budget": 100}, {"budget": "most"}, {"budget": True},
        {"frame": 1, "page": 2}, {"frame": 10**9},
    ],
)  # fmt: skip
def test_a_view_that_cannot_be_taken(view: dict[str, Any]) -> None:
    with pytest.raises(InvalidField) as refused:
        shown_as(**view)
    assert refused.value.loc == ("assets", "img", list(view)[-1])


@pytest.mark.parametrize(
    ("fields", "loc"),
    [
        ({"priority": "high"}, ("priority",)),
        ({"priority": ["batch"]}, ("priority",)),
        ({"deadline_s": "5"}, ("deadline_s",)),
        ({"deadline_s": True}, ("deadline_s",)),
        ({"deadline_s": 0}, ("deadline_s",)),
        ({"deadline_s": 101}, ("deadline_s",)),
        ({"metadata": []}, ("metadata",)),
        ({"metadata": {"a": 1}}, ("metadata", "a")),
        ({"metadata": {"a": "x" * 513}}, ("metadata", "a")),
        ({"metadata": {str(i): "" for i in range(17)}}, ("metadata",)),
        ({"webhook": "https://x"}, ("webhook",)),
        ({"order": "shuffled"}, ("order",)),
        ({"abstain": {"floor": 0.5}}, ("abstain", "floor")),
        ({"calibration": 5}, ("calibration",)),
        ({"calibration": ""}, ("calibration",)),
        *(({"budget": budget}, ("budget",)) for budget in (0, 100, "140", 140.0, True, [140])),
        *(
            ({"questions": {"q": {**QUESTION["q"], name: value}}}, ("questions", "q", name))
            for name, value in (("budget", 140), ("calibration", "cal_1"))
        ),
    ],
)
def test_a_wrong_option_is_named(fields: Any, loc: tuple[str, ...]) -> None:
    with pytest.raises(InvalidField) as caught:
        job(fields)
    assert caught.value.loc == loc


def test_a_native_job_may_send_a_picture_as_a_part_named_by_its_word() -> None:
    parsed, _ = parse_job(multipart({"state": "photo", "questions": QUESTION}, photo=PNG), LIMITS, 100)
    assert parsed.images == {parsed.ask.assets["photo"]: PNG}
    with pytest.raises(CodedError, match="'other' is not referenced"):
        parse_job(multipart({"state": "photo", "questions": QUESTION}, other=PNG), LIMITS, 100)


def test_equal_requests_hash_alike_and_others_do_not() -> None:
    base = {"state": "img", "questions": QUESTION, "assets": {"img": {"data_base64": b64(PNG)}}}
    parsed = parse_systemone(as_json(base), LIMITS)
    same = multipart({**base, "assets": {"img": {"part": "p"}}, "ignored": 1}, p=PNG)
    assert parse_systemone(same, LIMITS).hash == parsed.hash
    others = [
        {**base, "model": "m"},
        {**base, "state": "img "},
        {**base, "assets": {"img": {"data_base64": b64(PNG + b"x")}}},
        {**base, "questions": {"Q": QUESTION["q"]}},
    ]
    assert parsed.hash not in {parse_systemone(as_json(other), LIMITS).hash for other in others}
    assert job({})[0].hash != job({"priority": "batch"})[0].hash
    assert job({})[0].hash == job({"priority": "interactive"})[0].hash
