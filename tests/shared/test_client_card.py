"""Cards and the magic: what they show, that they ask nothing of anybody, and that nothing in them is taken for HTML."""

from __future__ import annotations

import base64
import html.parser
import io
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image as Pillow

from photocall.client import Batch, Client, Job, Picture, RequestRefused, load_ipython_extension
from photocall.client.card import batch_card, job_card
from photocall.client.magic import asked
from photocall.client.thumbnail import SIDE, thumbnail
from tests.shared.test_client_answers import FIELDS

NASTY = "<script>alert('x')</script>\"&"


class Page(html.parser.HTMLParser):
    """The tags and the text of some HTML; fails for tags that do not match."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "img":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def png(width: int, height: int) -> bytes:
    out = io.BytesIO()
    Pillow.new("RGB", (width, height), "#336699").save(out, "PNG")
    return out.getvalue()


def job(answers: dict[str, Any], **images: Any) -> Job:
    return Job({"id": "job_1", "status": "succeeded", "result": {"answers": answers}}, images)


def test_every_answer_is_on_the_card() -> None:
    page = Page(job_card(job(FIELDS, photo=png(40, 30))))
    for said in ("red", "80.0%", "no", "12.5%", "1.20: half", "nine in ten between 5 and 6", "MARKET", "cannot tell",
                 "abstained", "refused", "no such thing", "not asked", "damaged was not true",
                 "there at all"):  # fmt: skip
        assert said in page.text
    (url,) = [value or "" for name, value in page.attributes if name == "src"]
    assert url.startswith("data:image/jpeg;base64,")
    places = [value for name, value in page.attributes if name == "style" and value and "left:12.50%" in value]
    assert len(places) == 1, "the box is drawn"
    assert "top:25.00%;width:37.50%;height:50.00%" in str(places[0])
    two = Page(job_card(job(FIELDS, a=png(4, 4), b=png(4, 4))))
    assert not [value for _, value in two.attributes if value and "left:12.50%" in value], "of which of the two?"


def test_nothing_is_taken_for_html(tmp_path: Path) -> None:
    answers = {
        NASTY: {
            "type": "choice",
            "choice": NASTY,
            "confidence": 1.0,
            "probabilities": {NASTY: 0.9, "b": 0.1},
        },
        "r": {"type": "refusal", "answer_status": "refused", "code": NASTY, "message": NASTY},
        "s": {"type": "score", "score": 0.0, "confidence": 1.0, "legend": {"0": NASTY}, "probabilities": {"0": 1.0}},
        "t": {"type": "text", "text": NASTY, "logprob": 0.0, "truncated": True},
        "w": {"type": "noul", "noul": 0.5, "answer_status": NASTY},
    }
    (tmp_path / "<b>.png").write_bytes(png(4, 4))
    failed = Job({"id": NASTY, "status": NASTY, "error": {"code": NASTY, "message": NASTY}}, {NASTY: b"no picture"})
    batch = Batch({"id": NASTY, "status": NASTY, "request_counts": {"total": 2, "completed": 1, "failed": 1}})
    for source in (job_card(job(answers, x=tmp_path / "<b>.png", y=NASTY)), job_card(failed), batch_card(batch)):
        page = Page(source)
        assert set(page.tags) <= {"div", "span", "b", "i", "img", "code"}
        assert {name for name, _ in page.attributes} <= {"style", "title", "src", "alt"}
        assert not re.search(r"https?:|url\(", source), "nothing is asked of anybody"


def test_a_job_that_waits_or_failed() -> None:
    waiting = Job({"id": "job_1", "status": "queued", "queue": {"position": 3, "eta_s": 4.2}})
    assert "queued, number 3 in the queue, about 4 s" in Page(job_card(waiting)).text
    failed = Job({"id": "job_1", "status": "failed", "error": {"code": "poison", "message": "it died"}})
    assert "poison  it died" in Page(waiting._repr_html_() + failed._repr_html_()).text


def test_thumbnails_are_small_and_upright(monkeypatch: pytest.MonkeyPatch) -> None:
    exif = Pillow.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    noise = np.random.default_rng(3).integers(0, 256, (1000, 2000, 3), np.uint8)
    Pillow.fromarray(noise).save(out, "JPEG", exif=exif)
    url = thumbnail(out.getvalue())
    assert url is not None
    made = Pillow.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    assert made.size == (SIDE // 2, SIDE)
    assert (thumbnail(np.zeros((4, 4, 4), np.uint8)) or "").startswith("data:image/png;"), "what is clear stays so"
    for image in ("ab" * 32, "https://photos.example/a.jpg", b"%PDF-1.7", Path("nowhere.jpg"), Picture(b"x", page=2)):
        assert thumbnail(image) is None
    monkeypatch.setattr("photocall.client.thumbnail.installed", lambda package: False)
    assert thumbnail(png(4, 4)) == "data:image/png;base64," + base64.b64encode(png(4, 4)).decode()
    assert thumbnail(out.getvalue()) is None, "too large to stand in a page"


def answering(sent: list[httpx.Request]) -> Client:
    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        answers = {"q1": {"type": "noul", "noul": 0.75}}
        return httpx.Response(200, json={"id": "job_1", "status": "succeeded", "result": {"answers": answers}})

    return Client("http://photocall.example", transport=httpx.MockTransport(answer))


def test_the_magic_asks_what_the_cell_says(tmp_path: Path) -> None:
    file = tmp_path / "a b.png"
    file.write_bytes(png(2, 2))
    sent: list[httpx.Request] = []
    names: dict[str, Any] = {"client": answering(sent), "pixels": np.zeros((2, 2), np.uint8)}
    found = asked(f"-o said --state 'A pair: [image 2]' pixels '{file}'", "Is it?\n", names)
    assert (found["q1"].yes, names["said"]) == (True, found)
    assert list(found.images) == ["[image 1]", "[image 2]"]
    assert [request.method for request in sent] == ["HEAD", "HEAD", "POST"]
    with pytest.raises(ValueError, match="there is no question"):
        asked("pixels", "", names)
    with pytest.raises(ValueError, match=r"--what; usage: %%ask"):
        asked("--what pixels", "Is it?", names)
    with pytest.raises(FileNotFoundError):
        asked("nowhere.png", "Is it?", names)


def test_the_magic_says_in_one_line_what_went_wrong() -> None:
    class Shell:
        def __init__(self) -> None:
            self.user_ns = {"client": Client("http://photocall.example", transport=httpx.MockTransport(refuse))}
            self.magics: dict[str, Any] = {}

        def register_magic_function(self, function: Any, kind: str, name: str) -> None:
            self.magics[name] = (kind, function)

    def refuse(request: httpx.Request) -> httpx.Response:
        return httpx.Response(422, json={"code": "invalid_field", "detail": "Field required"})

    shell = Shell()
    load_ipython_extension(shell)
    kind, ask = shell.magics["ask"]
    assert kind == "cell"
    assert "%%ask [-o NAME]" in ask.__doc__
    with pytest.raises(Exception, match="422 invalid_field: Field required") as shown:
        ask("--state words", "Is it?")
    assert type(shown.value).__name__ == "UsageError"
    assert not isinstance(shown.value, RequestRefused)
