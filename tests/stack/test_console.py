"""The web console in a real browser, before the whole service with the model that ships, as somebody uses it.

Pictures of every page are kept in build/console. Without a Chromium nothing of this is tested, and the run says so.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from ops.running import running
from photocall.api_keys import KeyFile
from tests.stack.console_helper import Console, archive, browser, chromium, payload, scene
from tests.stack.readable import nameless, pale

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        chromium() is None, reason="THE CONSOLE WAS NOT TESTED: there is no Chromium (ops/ci_browser.sh)"
    ),
]

SAMPLES = Path(__file__).parents[2] / "ops" / "samples"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
COLOURS = "red\ngreen\nblue"
MARKUP = '<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script>'


@dataclass(frozen=True)
class Service:
    """Where it answers, and a key for it."""

    address: str
    key: str


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    file = tmp_path_factory.mktemp("keys") / "keys"
    key = KeyFile(file).create("ann", ["ask", "batch"])
    with running({"PHOTOCALL_API_KEYS": str(file), "PHOTOCALL_PREP_WORKERS": "1"}) as address:
        yield Service(address, key)


@pytest.fixture(scope="module")
def chrome(service: Service) -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def console(chrome: Browser, service: Service) -> Iterator[Console]:
    """A fresh tab. Whatever a test does, nothing goes wrong in it and nobody else is asked for anything."""
    found = Console(chrome, service.address)
    yield found
    assert found.wrong == []
    elsewhere = [url for url in found.asked if not url.startswith((service.address + "/", "blob:" + service.address))]
    assert elsewhere == []
    found.close()


def test_a_picture_is_asked_and_the_answers_are_bars_beside_what_the_model_saw(
    console: Console, service: Service
) -> None:
    console.open(service.key)
    console.choose(("street.png", (SAMPLES / "street.png").read_bytes()))
    console.empty()
    console.question("Choice", "vehicle", "Which colour is the car?", Options=COLOURS)
    console.question("Yes or no", "house", "Is the house to the left of the car?")
    console.question("Number", "trees", "How many trees are there?", Least="0", Most="9", Step="1", Unit="trees")
    console.question("Text", "sign", "What does the sign say?")
    console.button("Ask").click()
    card = console.answered()
    vehicle = card.locator('[data-question="vehicle"]')
    expect(vehicle.locator(".headline")).to_have_text("red")
    assert [row.inner_text().split("\n")[0] for row in vehicle.get_by_role("listitem").all()[:3]] == COLOURS.split("\n")
    widths = [fill.bounding_box() for fill in vehicle.locator(".fill").all()]
    assert widths[0] is not None
    assert widths[1] is not None
    assert widths[0]["width"] > 20 * widths[1]["width"], "the likeliest has the longest bar"
    expect(card.locator('[data-question="house"] .headline')).to_have_text("yes")
    expect(card.locator('[data-question="trees"] .headline')).to_have_text("2 trees")
    assert "90 % within" in card.locator('[data-question="trees"]').inner_text()
    expect(card.locator('[data-question="sign"] .headline')).to_have_text("“MARKET”")
    seen = card.get_by_role("img", name="What the model saw of street.png")
    expect(seen).to_be_visible()
    assert seen.evaluate("image => image.naturalWidth") > 100
    spoken = r"street\.png\. vehicle: red, .* %\. house: yes, .* %\. trees: 2 trees, .* %\. sign: “MARKET”"
    expect(console.page.locator("#said")).to_have_text(re.compile(spoken))
    glance = console.page.get_by_role("region", name="The service at a glance").get_by_role("definition")
    expect(glance.nth(4)).to_contain_text(re.compile(r"\d m?s.*p90"))  # latency, once it has looked again
    expect(glance.nth(0)).to_have_text("0")  # nothing waits any more
    expect(glance.nth(2)).to_contain_text(re.compile(r"\d+ %.*of [\d,]+"))
    expect(glance.nth(3)).to_contain_text(re.compile(r"^0\.\d+"))
    expect(glance.nth(5)).to_contain_text("1 prep · cpu")
    for scheme in SCHEMES:
        console.page.emulate_media(color_scheme=scheme)
        console.page.evaluate("scrollTo(0, 0)")
        console.shot(f"overview-{scheme}", whole=False)
        console.shot(f"asked-{scheme}")


def test_a_box_is_drawn_where_it_is_and_a_phone_shows_all_of_it(console: Console, service: Service) -> None:
    console.page.set_viewport_size({"width": 360, "height": 740})
    console.open(service.key)
    console.choose(("square.png", scene()))
    console.empty()
    console.question("Box", "where", "Where is the square?")
    console.question("Score", "size", "How large is the square?", Levels="small\nmiddling\nlarge")
    console.button("Ask").click()
    card = console.answered()
    expect(card).to_be_in_viewport()
    expect(card.get_by_role("img", name="What the model saw of square.png")).to_be_visible()
    edges = dict(re.findall(r"(left|top|right|bottom) (\d+) %", card.locator('[data-question="where"]').inner_text()))
    box, frame = card.locator(".frame rect").bounding_box(), card.locator(".frame svg").bounding_box()
    assert box is not None
    assert frame is not None
    drawn = {
        "left": (box["x"] - frame["x"]) / frame["width"],
        "top": (box["y"] - frame["y"]) / frame["height"],
        "right": (box["x"] + box["width"] - frame["x"]) / frame["width"],
        "bottom": (box["y"] + box["height"] - frame["y"]) / frame["height"],
    }
    assert {edge: float(text) / 100 for edge, text in edges.items()} == pytest.approx(
        drawn, abs=0.02
    )  # of 1 %, a stroke
    expect(card.locator('[data-question="where"] .swatch')).to_have_text("1")
    assert console.page.evaluate("document.documentElement.scrollWidth") == 360
    for scheme in SCHEMES:
        console.page.emulate_media(color_scheme=scheme)
        console.shot(f"phone-{scheme}")


def test_pictures_come_by_paste_drop_camera_and_the_brush(console: Console, service: Service) -> None:
    console.open(service.key)
    console.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = console.page
    thumbs = page.get_by_role("list", name="Chosen pictures").get_by_role("listitem")
    page.evaluate(
        """async () => {
            const canvas = new OffscreenCanvas(40, 30);
            canvas.getContext("2d").fillRect(0, 0, 20, 30);
            await navigator.clipboard.write([new ClipboardItem({"image/png": await canvas.convertToBlob()})]);
        }"""
    )
    page.keyboard.press("Control+v")
    expect(thumbs).to_have_count(1)
    expect(thumbs.nth(0)).to_contain_text("pasted 1.png")
    dropped = page.evaluate_handle(
        """bytes => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], "dropped.png", {type: "image/png"}));
            return data;
        }""",
        list(scene()),
    )
    page.locator(".drop").dispatch_event("drop", {"dataTransfer": dropped})
    expect(thumbs.nth(1)).to_contain_text("dropped.png")
    console.button("Camera").click()
    page.get_by_role("dialog", name="Camera").get_by_role("button", name="Take the picture").click()
    expect(thumbs.nth(2)).to_contain_text("camera")
    console.button("Draw a sample").click()
    expect(thumbs).to_have_count(4)
    page.evaluate(
        """() => {
            const revoke = URL.revokeObjectURL;
            window.revoked = [];
            URL.revokeObjectURL = (url) => { window.revoked.push(url); revoke.call(URL, url); };
        }"""
    )
    url = thumbs.nth(1).locator("img").get_attribute("src")
    console.button("Remove dropped.png").click()
    expect(thumbs).to_have_count(3)
    assert page.evaluate("window.revoked") == [url], "a removed picture's file was kept as long as the page"
    console.button("Ask about each of 3").click()
    expect(page.locator("#answers > .card:not([aria-busy])")).to_have_count(3)
    expect(console.answered(0).get_by_role("heading", name="sample.png")).to_be_visible()
    expect(console.answered(0).locator('[data-question="circle"] .headline')).to_have_text("red")
    page.get_by_label("All pictures in one request").check()
    console.button("Ask").click()
    together = console.answered()
    expect(together.locator("figure")).to_have_count(3)


def test_everything_is_done_by_keyboard_and_where_one_is_is_seen(console: Console, service: Service) -> None:
    console.open(service.key)
    page = console.page
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    reached: list[str] = []
    while not reached or reached[-1] != "Draw a sample":
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            """() => {
                const node = document.activeElement;
                const style = getComputedStyle(node);
                const width = style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth);
                return [node.textContent.trim(), width];
            }"""
        )
        assert outline >= 1, f"nothing shows that {name!r} has the focus"
        reached.append(name)
        assert len(reached) < 20
    assert reached[:6] == ["photocall", "Ask", "Jobs", "Batches", "Calibration", "API key ••••"]
    page.keyboard.press("Enter")
    expect(page.get_by_label("Question", exact=True)).to_have_count(4)
    page.keyboard.press("Control+Enter")
    expect(console.answered().locator('[data-question="squares"] .headline')).to_have_text("3")
    page.get_by_role("button", name="Remove question above").press("Enter")
    expect(page.locator("fieldset.question").nth(2).get_by_label("Question", exact=True)).to_be_focused()
    page.get_by_role("group", name="Add a question").get_by_role("button", name="Text").press("Enter")
    expect(page.get_by_label("Question", exact=True).last).to_be_focused()
    page.get_by_role("link", name="Jobs").press("Enter")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    page.get_by_role("button", name="sample.png").first.press("Enter")
    expect(page.get_by_role("heading", name="sample.png")).to_be_focused()
    expect(page.locator(".opened .headline").first).to_have_text("red")
    expect(page.get_by_role("img", name="What the model saw of sample.png")).to_be_visible()
    console.shot("jobs")
    page.go_back()
    expect(page.get_by_role("heading", name="Answers")).to_be_visible()


def test_what_cannot_be_asked_is_said_where_it_is_wrong(console: Console, service: Service) -> None:
    console.open(service.key)
    page = console.page
    console.button("Ask").click()
    first = page.locator("fieldset.question").first
    expect(first.get_by_role("alert")).to_have_text("What is asked?")
    expect(first.get_by_label("Question", exact=True)).to_be_focused()
    first.get_by_label("Question", exact=True).fill("Which colour is it?")
    first.get_by_label("Options", exact=True).fill(COLOURS)
    console.button("Ask").click()
    expect(page.get_by_text("Choose a picture first")).to_be_visible()
    console.choose(("square.png", scene()))
    bound = console.question("Number", "n", "How many?", Least="9", Most="1")
    console.button("Ask").click()
    expect(bound.get_by_role("alert")).not_to_be_empty()  # the server's words, at the question they are about
    expect(bound.get_by_label("Most")).to_be_focused()
    expect(bound.get_by_label("Most")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#answers > .card")).to_have_count(0)
    console.button("Remove question n").click()
    console.question("Text", "code", "Which code?", Pattern="(")
    console.button("Ask").click()
    card = console.answered()  # one question is refused, the others are answered
    expect(card.locator('[data-question="code"] .notes .bad')).to_have_text("unanswerable")
    expect(card.locator('[data-question="q1"] .headline')).to_have_text("red")
    console.shot("refused")
    console.button("Remove question code").click()
    console.button("Remove square.png").click()
    console.choose(("broken.png", b"\x89PNG\r\n\x1a\n no picture at all"))
    console.button("Ask").click()
    expect(console.answered().get_by_role("alert")).to_be_visible()
    console.shot("failures")


def test_a_batch_shows_how_far_it_is_and_which_rows_have_failed(console: Console, service: Service) -> None:
    console.open(service.key)
    page = console.page
    first = page.locator("fieldset.question").first
    first.get_by_label("Name", exact=True).fill("colour")
    first.get_by_label("Question", exact=True).fill("Which colour is the square?")
    first.get_by_label("Options", exact=True).fill(COLOURS)
    page.get_by_role("link", name="Batches").click()
    console.button("Begin").click()
    expect(page.get_by_text("Choose a file first.")).to_be_visible()
    data = archive(red=scene(), blue=scene("#2040d0"), broken=b"\x89PNG\r\n\x1a\n no picture")
    page.get_by_label("File", exact=True).set_input_files([payload("parcels.zip", data)])
    console.button("Begin").click()
    card = page.locator(".batch", has=page.get_by_role("heading", name="parcels.zip"))
    expect(card.locator(".chip")).to_have_text("completed")
    bar = card.get_by_role("progressbar", name="Rows of parcels.zip")
    assert (bar.get_attribute("aria-valuenow"), bar.get_attribute("aria-valuemax")) == ("3", "3")
    expect(card).to_contain_text("2 of 3 answered · 1 failed")
    console.button("Show answers: parcels.zip").click()
    expect(card.get_by_role("row", name="red.png colour: red")).to_be_visible()
    console.button("Show failures: parcels.zip").click()
    expect(card.get_by_role("rowheader", name="broken.png")).to_be_visible()
    assert len(card.get_by_role("row", name="broken.png").inner_text()) > len("broken.png") + 10, "and it says why"
    with page.expect_download() as download:
        console.button("Download answers: parcels.zip").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert sorted(json.loads(line)["custom_id"] for line in lines) == ["blue.png", "red.png"]
    console.shot("batches")
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    console.shot("batches-phone")


def test_a_calibration_has_a_reliability_diagram(console: Console, service: Service) -> None:
    console.open(service.key, "calibration")
    page, chance = console.page, random.Random(7)
    rows = []
    for i in range(120):
        sure = 0.55 + 0.44 * chance.random()
        label = "a" if chance.random() < 0.5 + (sure - 0.5) * 0.5 else "b"  # right less often than it is sure
        answer = {"type": "choice", "probabilities": {"a": sure, "b": 1 - sure}}
        rows.append({"question": MARKUP if i % 2 else "side", "answer": answer, "label": label})
    text = "\n".join(map(json.dumps, rows)).encode()
    page.get_by_label("Labels", exact=True).set_input_files([payload("labels.jsonl", text)])
    console.button("Fit").click()
    found = page.get_by_role("img", name=re.compile("^Reliability of side: expected calibration error 0")).first
    expect(found).to_be_visible()
    assert found.locator(".before circle").count() > 10
    expect(page.get_by_role("table", name=re.compile("60 labels, temperature")).first).to_contain_text("ECE")
    console.shot("calibration")
    console.page.emulate_media(color_scheme="dark")
    console.shot("calibration-dark")
    page.get_by_role("link", name="Ask").click()
    console.button("Draw a sample").click()
    console.button("Ask").click()
    console.answered().get_by_label("What is right for circle").select_option("green")
    page.get_by_role("link", name="Calibration").click()
    expect(page.get_by_text("circle 1")).to_be_visible()
    page.get_by_role("link", name="Jobs").click()
    page.get_by_role("button", name="sample.png").first.click()
    again = page.locator(".opened").get_by_label("What is right for circle")
    expect(again).to_have_value('"green"')  # what was said stands there, wherever it was said
    again.select_option("red")
    expect(page.locator("#answers").get_by_label("What is right for circle")).to_have_value('"red"')
    page.get_by_role("link", name="Calibration").click()
    expect(page.get_by_text("circle 1")).to_be_visible()  # an answer has one label, and was counted by cards
    page.get_by_label("Labels", exact=True).set_input_files([])
    console.button("Fit").click()
    expect(page.get_by_text("at least 50 are needed")).to_be_visible()
    page.evaluate(
        """() => {
            sessionStorage.removeItem("photocall.questions");
            for (let size = 1 << 20, n = 0; size >= 1; n++) {
                try { sessionStorage.setItem("full" + n, "x".repeat(size)); } catch { size >>= 1; }
            }
        }"""
    )
    page.reload()  # labels fill the tab's room: the page was empty where the questions had none left
    expect(page.get_by_role("banner").get_by_role("status")).to_have_text("Ready")
    expect(page.get_by_text("circle 1")).to_be_visible()


def test_no_name_and_no_answer_becomes_markup(console: Console, service: Service) -> None:
    console.open(service.key)
    page = console.page
    console.choose((f"{MARKUP.replace('/', '')}.png", scene()))
    console.empty()
    console.question("Choice", MARKUP, MARKUP, Options=f"{MARKUP}\n{MARKUP} too")
    console.question("Text", "text", "What does it say?", One_of=f"{MARKUP}\n{MARKUP} again")
    console.question("Number", "__proto__", "How many?", Unit="<b>pcs</b>")
    console.button("Ask").click()
    card = console.answered()
    expect(card.locator(".headline").first).to_have_text(re.compile(r"^<img src=x"))
    expect(card.locator('[data-question="text"] .headline')).to_have_text(re.compile(r"^“<img src=x"))
    expect(card.locator('[data-question="__proto__"] .headline')).to_contain_text("<b>pcs</b>")
    page.get_by_role("link", name="Jobs").click()
    expect(page.get_by_role("row", name=re.compile("<img src=x")).first).to_be_visible()
    line = {"custom_id": MARKUP, "method": "POST", "url": "/v1/systemone", "body": {"state": "x", "questions": {}}}
    page.get_by_role("link", name="Batches").click()
    page.get_by_label("File", exact=True).set_input_files(
        [payload(f"{MARKUP.replace('/', '')}.jsonl", json.dumps(line).encode())]
    )
    console.button("Begin").click()
    batch = page.locator(".batch").first
    expect(batch.locator(".chip")).to_have_text("failed")
    batch.get_by_role("button", name=re.compile("^Show failures")).click()
    expect(batch.get_by_role("rowheader")).to_have_text(MARKUP)
    assert page.evaluate("[window.hacked, document.querySelectorAll('img[src=x], b').length]") == [None, 0]
    # And should a script of ours ever try: the browser refuses markup from text, and scripts that are no files of ours.
    refused = """() => {
        try { document.body.innerHTML = "<b>x</b>"; return "taken"; } catch (error) { return error.name; }
    }"""
    console.forgiving = True
    assert page.evaluate(refused) == "TypeError"
    script = """() => {
        const node = document.createElement("script");
        try { node.textContent = "window.hacked = 2"; } catch { node.append("window.hacked = 3"); }
        document.body.append(node);
        return window.hacked ?? null;
    }"""
    assert page.evaluate(script) is None


def test_a_wrong_key_is_asked_for_again_and_is_kept_for_the_tab_alone(console: Console, service: Service) -> None:
    page = console.page
    page.goto("/")
    dialog = page.get_by_role("dialog", name="API key")
    expect(dialog).to_be_visible()
    expect(page.get_by_role("banner").get_by_role("status", include_hidden=True)).to_have_text("Needs a key")
    dialog.get_by_label("Key").fill("pc_wrong")
    console.button("Use this key").click()
    expect(dialog.get_by_role("alert")).to_have_text("Invalid API key")
    console.shot("key")
    dialog.get_by_label("Key").fill(service.key)
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("banner").get_by_role("status")).to_have_text("Ready")
    assert page.evaluate("Object.values(localStorage).length + document.cookie.length") == 0
    assert service.key not in "".join(console.asked), "a key is no part of an address"
    page.reload()
    expect(page.get_by_role("banner").get_by_role("status")).to_have_text("Ready")
    console.button(re.compile("^API key")).click()
    console.button("Forget it").click()
    expect(dialog).to_be_visible()
    assert page.evaluate("sessionStorage.getItem('photocall.key')") is None


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_control_has_a_name_and_every_text_can_be_read(console: Console, service: Service, scheme: str) -> None:
    console.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    console.open(service.key)
    console.button("Draw a sample").click()
    console.button("Ask").click()
    console.answered()
    for summary in console.page.locator("summary").all():
        summary.click()
    assert nameless(console.page) == []
    assert pale(console.page) == []
    for view in ("Jobs", "Batches", "Calibration"):
        console.page.get_by_role("link", name=view).click()
        expect(console.page.get_by_role("heading", level=1, name=view)).to_be_visible()
        assert nameless(console.page) == [], view
        assert pale(console.page) == [], view


def test_who_wants_no_motion_gets_none(console: Console, service: Service) -> None:
    durations = {}
    motions: tuple[Literal["no-preference", "reduce"], ...] = ("no-preference", "reduce")
    for motion in motions:
        console.page.emulate_media(reduced_motion=motion)
        console.open(service.key)
        durations[motion] = console.page.evaluate(
            "getComputedStyle(document.querySelector('.drop')).transitionDuration"
        )
    assert durations["reduce"] == "0s"
    assert durations["no-preference"] != "0s"


def test_its_own_hash_is_the_browser_s(console: Console, service: Service) -> None:
    """Pages of plain http on a network are lent none: there the console's own names the pictures."""
    console.open(service.key)
    differs = console.page.evaluate(
        """async () => {
            const { digest } = await import("/console/sha256.js");
            const wrong = [];
            for (const size of [0, 1, 55, 56, 63, 64, 65, 119, 120, 4096, 100003]) {
                const data = Uint8Array.from({ length: size }, (_, i) => i * 31 + (i >> 8));
                const theirs = new Uint8Array(await crypto.subtle.digest("SHA-256", data));
                if (digest(data).join() !== theirs.join()) wrong.push(size);
            }
            return wrong;
        }"""
    )
    assert differs == []
