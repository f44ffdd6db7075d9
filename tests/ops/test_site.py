"""The documentation: it builds, loads nothing from elsewhere, and what it links to and names is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pymdownx.slugs import slugify

from ops.docs import ROOT
from photocall.settings import table

SLUG = slugify(case="lower")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+?)\s*$", re.MULTILINE)
LINK = re.compile(r"\]\(([^()\s]+)\)")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "ops").rglob("*.md"),
                    ROOT / "shared/photocall/PROTOCOL.md", ROOT / "models/mini/README.md"])  # fmt: skip
PAGES = sorted((ROOT / "docs").glob("*.md"))


def prose(path: Path) -> str:
    """A document without its blocks of code, whose lines may look like headings."""
    return FENCE.sub("", path.read_text())


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them; repeated ones get a number."""
    seen: dict[str, int] = {}
    found = set()
    for heading in HEADING.findall(prose(path)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = SLUG(words, "-")
        found.add(slug if slug not in seen else f"{slug}-{seen[slug]}")
        seen[slug] = seen.get(slug, 0) + 1
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_and_anchor_is_there(path: Path) -> None:
    broken = []
    for target in LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


class Loads(HTMLParser):
    """What a browser fetches by itself to show a page, and the classes that scripts look for."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.classes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.classes |= set((given.get("class") or "").split())
        if tag in ("script", "img", "iframe", "source", "video", "audio"):
            self.addresses.append(given.get("src") or "")
        if tag == "link" and given.get("rel") != "canonical":
            self.addresses.append(given.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a page outside the navigation, a dead link or a dead anchor is an error."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def test_the_site_has_every_page_and_picture_and_loads_nothing_from_elsewhere(site: Path) -> None:
    assert {path.stem for path in PAGES} <= {path.stem for path in site.glob("*.html")}
    for page in site.rglob("*.html"):
        loads = Loads()
        loads.feed(page.read_text())
        outside = [address for address in loads.addresses if re.match(r"(?:[a-z]+:)?//", address)]
        assert not outside, page
        # The theme's script would fetch its renderer of diagrams from elsewhere.
        assert "mermaid" not in loads.classes, page
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text()), sheet
    assert (site / "pictures" / "rows.svg").is_file()


def test_pictures_say_in_words_what_they_show() -> None:
    drawn = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
    assert len(drawn) >= 4
    for path in drawn:
        text = path.read_text()
        assert 'role="img"' in text, path
        assert re.search(r"<title id=\"t\">.{10,}</title>", text), path
        assert re.search(r"<desc id=\"d\">.{40,}</desc>", text), path


def test_settings_that_pages_name_exist() -> None:
    elsewhere = "docker-compose.yml", "ops/Dockerfile", "ops/environment.py", "shared/photocall/settings.py"
    known = table() + "".join((ROOT / name).read_text() for name in elsewhere)
    for page in PAGES:
        for name in set(re.findall(r"PHOTOCALL_[A-Z_]+[A-Z]", page.read_text())):
            assert re.search(rf"\b{name}\b", known), f"{page.name}: {name}"


def test_files_and_benches_that_pages_name_exist() -> None:
    named = 0
    for page in PAGES:
        text = page.read_text()
        for name in re.findall(r"`((?:tests|ops|shared|services|models)/[\w./-]+?)/?`", text):
            if re.search(r"[A-Z]{3,}$", name):
                continue  # stands for any name
            assert (ROOT / name).exists(), f"{page.name}: {name}"
            named += 1
        for module in re.findall(r"python -m (ops\.[\w.]+)", text):
            path = ROOT / module.replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), f"{page.name}: {module}"
        for name in re.findall(r"`([\w-]+-\d{4}-\d\d-\d\d\.json)`", text):
            assert (ROOT / "ops/bench/results" / name).exists(), f"{page.name}: {name}"
    assert named > 20
