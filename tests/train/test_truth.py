"""Pictures are by their seed, and the answers to the questions are what was drawn."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from ops.train.ask import MAKERS, ask
from ops.train.asker import Asked
from ops.train.backgrounds import COLORS, distance
from ops.train.compose import FAMILIES, KINDS, PICTURED
from ops.train.draw import Drawer, draw
from ops.train.marks import GLYPHS, MARK_CLASSES, on_grid
from ops.train.scene import Board, Gauge, Item, Line, Scene
from photocall.questions import Choice, Number, Score


def a_scene(**parts: Any) -> Scene:
    return Scene(576, 480, 1.0, parts.pop("kind", "things"), "plain", **parts)


def asked_of(scene: Scene, kind: str, times: int = 300) -> list[Asked]:
    """Questions of one kind about a scene."""
    found = [a for seed in range(times // 10) for a in ask(scene, "train", random.Random(seed), 12) if a.kind == kind]
    assert found, f"no {kind} was asked"
    return found


def shown(asked: Asked) -> Any:
    """The answer in words: an option's meaning where its label says nothing."""
    question = asked.question
    if isinstance(question, Choice):
        option = next(o for o in question.options if o.label == asked.answer)
        coded = len(option.label) == 2 and option.label[1].isdigit()
        return str(option.description if coded else option.label).casefold()
    if isinstance(question, Score):
        assert isinstance(asked.answer, int)
        return str(question.levels[asked.answer])
    return asked.answer


TWO = a_scene(items=[Item("circle", "red", 120, 240, 60), Item("star", "blue", 450, 240, 30)])
NONE = {"none of these", "none of the above", "other", "something else", "none"}


def test_a_seed_is_a_picture_and_its_questions() -> None:
    (image, questions, answers), again, other = draw(13), draw(13), draw(14)
    assert image.tobytes() == again[0].tobytes()
    assert (questions, answers) == again[1:]
    assert image.size != other[0].size or image.tobytes() != other[0].tobytes()
    assert len(questions) == len(answers) >= 5


def test_every_maker_is_reached_by_some_scene() -> None:
    drawer, kinds = Drawer("train"), set()
    drawn = [kind for kind in (*KINDS, *FAMILIES) if kind not in PICTURED]
    for seed in range(8 * len(drawn)):
        _, made = drawer.scene(random.Random(seed), (480, 400), drawn[seed % len(drawn)])
        kinds |= {a.kind for a in ask(made, "train", random.Random(seed), 40)}
    assert kinds == set(MAKERS)


def test_things_are_painted_where_and_as_the_scene_says() -> None:
    drawer = Drawer("train")
    for seed in range(8):
        image, made = drawer.scene(random.Random(seed), (640, 480), "things", wear=0.0)
        for item in made.items:
            if item.shape in ("circle", "square", "hexagon", "diamond", "triangle", "star", "heart"):
                at = int(item.x * image.width / made.width), int(item.y * image.height / made.height)
                pixel = image.getpixel(at)
                assert isinstance(pixel, tuple)
                red, green, blue = (int(value) for value in pixel[:3])
                assert distance((red, green, blue), COLORS[item.color]) < 60, (seed, item)


@pytest.mark.parametrize(("kind", "truth"), [("where", {"left", "right"}), ("what_color", {"red", "blue"} | NONE)])
def test_choices_name_what_is_there(kind: str, truth: set[str]) -> None:
    answers = {shown(a) for a in asked_of(TWO, kind)}
    assert answers <= truth
    assert len(answers) >= 2


def test_the_asked_thing_decides_the_answer() -> None:
    for asked in asked_of(TWO, "what_color"):
        said = str(asked.question.instructions)
        if shown(asked) not in NONE:
            assert shown(asked) == ("red" if "circle" in said else "blue")
    for asked in asked_of(TWO, "relation"):
        said = str(asked.question.instructions)
        circle_first = min(said.find(w) for w in ("circle", "red") if w in said) < min(
            said.find(w) for w in ("star", "blue") if w in said
        )
        assert asked.answer == (("left of" in said) == circle_first), said


def test_counts_count_what_is_meant() -> None:
    items = [Item("circle", "red", 100 * i, 100, 30) for i in (1, 2, 3)] + [Item("star", "blue", 100, 300, 30)]
    for asked in asked_of(a_scene(items=items), "count"):
        said = str(asked.question.instructions)
        expected = 4
        if "circle" in said or "red" in said:
            expected = 3
        if "star" in said or "blue" in said:
            expected = 1 if "circle" not in said and "red" not in said else 0
        elsewhere = any(c in said for c in COLORS if c not in ("red", "blue")) or "grey" in said
        if not elsewhere and any(word in said for word in ("circle", "star", "thing", "shape", "object", "item")):
            assert asked.answer == expected, said


def test_printed_words_and_numbers_are_the_answers() -> None:
    board = Board("rounded", "white", "black", (Line("Harbour", False), Line("407", True)), (50, 50, 300, 200))
    scene = a_scene(kind="label", boards=[board])
    assert {a.answer for a in asked_of(scene, "read_word")} == {"Harbour"}
    assert {a.answer for a in asked_of(scene, "read_number")} == {407}
    for asked in asked_of(scene, "number_yes"):
        said = str(asked.question.instructions)
        limit = int("".join(c for c in said if c.isdigit()))
        above = any(word in said for word in ("greater", "larger", "more", "above"))
        assert asked.answer == ((limit < 407) == above), said


def test_a_gauge_is_as_full_as_it_is_drawn() -> None:
    for level in range(5):
        scene = a_scene(kind="gauge", gauge=Gauge("battery", "green", level, (50, 100, 400, 250)))
        assert {a.answer for a in asked_of(scene, "level", 60)} == {level}
        percent = asked_of(scene, "percent")
        assert {a.answer for a in percent} == {25 * level}
        assert all(isinstance(a.question, Number) for a in percent)


def test_marks_cover_the_glyphs_in_reading_order() -> None:
    drawer = Drawer("train")
    for seed in range(5):
        _, made = drawer.scene(random.Random(seed), (640, 480), "sign", wear=0.0)
        for board in made.boards:
            classes = [MARK_CLASSES[kind] for kind, _, _ in made.marks]
            text = "".join(line.text for line in board.lines).replace(" ", "")
            printed = [c if c in GLYPHS else "other glyph" for c in text]
            assert [c for c in classes if c in GLYPHS or c == "other glyph"] == printed
        grid = on_grid(made.marks, (made.width, made.height), 30, 39)
        assert grid.shape == (30, 39, 2)
        assert {MARK_CLASSES[kind] for kind in np.unique(grid[..., 0])} & set(GLYPHS)
