"""A browser before a whole `photocall up`, for test_console.py: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import io
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    FilePayload,
    Locator,
    Page,
    expect,
    sync_playwright,
)

NAMES = ("chromium", "chromium-browser", "google-chrome")
SHOTS = Path(__file__).parents[2] / "build" / "console"  # kept after the run, ignored by git
# A camera that shows a test pattern, and a page that may use it without a person who allows it.
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--use-fake-device-for-media-stream",
         "--use-fake-ui-for-media-stream"]  # fmt: skip
WAIT_MS = 30_000


def chromium() -> str | None:
    """Where a Chromium is; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless one of its own."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield found
        found.close()


class Console:
    """The page as somebody uses it. What it asks of others, logs as an error or raises is kept."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        size = {"width": 1280, "height": 900}
        self.context: BrowserContext = browser.new_context(**{"viewport": size, "base_url": address, **options})
        self.context.set_default_timeout(WAIT_MS)
        expect.set_options(timeout=WAIT_MS)
        self.page: Page = self.context.new_page()
        self.wrong: list[str] = []
        self.forgiving = False  # a test is about to do what the page's policy refuses, and says
        self.asked: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", self._logged)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("dialog", lambda dialog: self.wrong.append(f"a dialog says {dialog.message}"))

    def _logged(self, message: ConsoleMessage) -> None:
        # A browser logs each answer of 4xx by itself; tests ask for some.
        if message.type == "error" and not self.forgiving and "Failed to load resource" not in message.text:
            self.wrong.append(message.text)

    def open(self, key: str, view: str = "") -> Console:
        """The page with this key, as if it had been typed before."""
        self.context.add_init_script(f"sessionStorage.setItem('photocall.key', {json.dumps(key)})")
        self.page.goto(f"/#{view}")
        expect(self.page.get_by_role("banner").get_by_role("status")).to_have_text("Ready")
        return self

    def button(self, name: str | re.Pattern[str]) -> Locator:
        return self.page.get_by_role("button", name=name, exact=isinstance(name, str))

    def choose(self, *files: tuple[str, bytes]) -> None:
        """Pictures from the disk, by name."""
        with self.page.expect_file_chooser() as chooser:
            self.button("Choose pictures…").click()
        chooser.value.set_files([payload(name, data) for name, data in files])

    def question(self, kind: str, name: str, text: str, **fields: str) -> Locator:
        """Adds one; fields by their label, those under "More" too."""
        self.page.get_by_role("group", name="Add a question").get_by_role("button", name=kind, exact=True).click()
        found = self.page.locator("fieldset.question").last
        found.get_by_label("Name", exact=True).fill(name)
        found.get_by_label("Question", exact=True).fill(text)
        for label, value in fields.items():
            control = found.get_by_label(label.replace("_", " "), exact=True)
            if not control.is_visible():
                found.get_by_text("More", exact=True).click()
            control.fill(value)
        return found

    def empty(self) -> None:
        """Without the question that stands there at first."""
        self.page.get_by_role("button", name=re.compile("^Remove question")).first.click()

    def answered(self, card: int = 0) -> Locator:
        """A card of answers, once it has ended; 0 is the newest."""
        found = self.page.locator("#answers > .card").nth(card)
        found.and_(self.page.locator(":not([aria-busy])")).wait_for()
        return found

    def shot(self, name: str, whole: bool = True) -> None:
        """Keeps what is seen, all of it: with as tall a window as that takes; or what is in the window."""
        size = self.page.viewport_size
        assert size is not None
        height = self.page.evaluate("document.documentElement.scrollHeight") if whole else 0
        self.page.set_viewport_size({"width": size["width"], "height": max(size["height"], height)})
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png", animations="disabled")
        self.page.set_viewport_size(size)

    def close(self) -> None:
        self.context.close()


def payload(name: str, data: bytes) -> FilePayload:
    """A file as somebody chooses it, of no type that anybody says."""
    return {"name": name, "mimeType": "", "buffer": data}


def scene(colour: str = "#d62020") -> bytes:
    """A PNG with one square."""
    picture, file = Image.new("RGB", (240, 200), "white"), io.BytesIO()
    ImageDraw.Draw(picture).rectangle((70, 50, 170, 150), fill=colour)
    picture.save(file, "PNG")
    return file.getvalue()


def archive(**members: bytes) -> bytes:
    """A zip of these, each named .png."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as out:
        for name, data in members.items():
            out.writestr(f"{name}.png", data)
    return file.getvalue()
