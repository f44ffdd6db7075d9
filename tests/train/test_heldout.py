"""The three splits share nothing that they are meant to keep apart."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from ops.train import backgrounds, scene, splits
from ops.train.fonts import BUILT_IN, FontBook
from ops.train.phrases import TRAIN

PAIRS = list(itertools.combinations(splits.SPLITS, 2))
GROUP = re.compile(r"\(([^()]*)\)")


def every_wording(template: str) -> set[str]:
    """All sentences of a template."""
    found = GROUP.search(template)
    if found is None:
        return {template.casefold().rstrip("?.:")}
    parts = found.group(1).split("|")
    return {s for p in parts for s in every_wording(template[: found.start()] + p + template[found.end() :])}


def wordings(split: str) -> dict[str, set[str]]:
    templates = TRAIN if split == "train" else splits.kept_apart()[split]["phrasings"]
    return {kind: {s for line in lines for s in every_wording(line)} for kind, lines in templates.items()}


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_no_sentence_belongs_to_two_splits(one: str, other: str) -> None:
    first, second = wordings(one), wordings(other)
    assert first.keys() == second.keys()
    assert {kind: first[kind] & second[kind] for kind in first if first[kind] & second[kind]} == {}


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_no_printed_word_of_the_list_belongs_to_two_splits(one: str, other: str) -> None:
    assert len(splits.words(one)) > 300
    assert not set(splits.words(one)) & set(splits.words(other))


@pytest.mark.parametrize(
    ("what", "every"), [("layouts", scene.PLACED), ("backgrounds", backgrounds.BACKGROUNDS), ("boards", scene.BOARDS)]
)
def test_training_never_uses_what_another_split_keeps(what: str, every: tuple[str, ...]) -> None:
    kept = {name for split in splits.kept_apart().values() for name in split[what]}
    assert kept
    assert kept < set(every)
    assert not set(splits.names("train", what, every)) & kept
    for split in ("validation", "heldout"):
        assert set(splits.names(split, what, every)) & set(splits.kept_apart()[split][what])


def test_fonts_are_split_by_family(tmp_path: Path) -> None:
    families = ["opensans", "sora", "roboto"]
    for family in families:
        (tmp_path / family).mkdir()
        (tmp_path / family / "Regular.ttf").touch()
    books = {split: set(FontBook(tmp_path, split).families) for split in splits.SPLITS}
    assert books == {"train": {"roboto", BUILT_IN}, "validation": {"sora"}, "heldout": {"opensans"}}


def test_without_fonts_every_split_says_that_it_uses_pillows_own(caplog: pytest.LogCaptureFixture) -> None:
    assert set(FontBook(None, "heldout").families) == {BUILT_IN}
    assert "built-in" in caplog.text
