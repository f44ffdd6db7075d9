"""What every question maker builds with: wordings, lettered options, names that mean one thing, things to count.

Answers are what the API would return: a label, a bool, a level's index, a number, a string, or a box's edges.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from ops.train import shapes, splits
from ops.train.backgrounds import COLORS
from ops.train.names import DESCRIPTIONS, NONE_LABELS, SYNONYMS, a_name, plural
from ops.train.scene import Board, Item, Scene
from photocall.questions import Choice, Json, Noul, Option, Question

Edges: TypeAlias = tuple[float, float, float, float]  # top, bottom, left, right, fractions of the picture
Answer: TypeAlias = str | bool | int | Decimal | Edges | None  # None: the picture does not tell
Made: TypeAlias = tuple[Question, Answer] | None  # None: the scene does not suit the question
Maker: TypeAlias = "Callable[[Asker], Made]"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its right answer; `kind` is the maker's name, for tables."""

    question: Question
    answer: Answer
    kind: str
    slot: bool = False  # the prompt offers "cannot tell" behind the options


class Asker:
    """Asks about one scene in the wording of one split."""

    def __init__(self, scene: Scene, split: str, rng: random.Random) -> None:
        self.scene, self.rng = scene, rng
        self._phrases = splits.phrasebook(split)
        self.words = (*splits.words(split), *splits.sign_words())
        self.items, self.boards = scene.items, scene.boards
        self.plain = not (
            scene.boards or scene.gauge or scene.light or scene.parts
        )  # nothing but items: "things" means them
        self.style = rng.choice(("object", "thing", "shape", "item"))

    def say(self, kind: str, **slots: str) -> Json:
        said = self._phrases.say(kind, self.rng, **slots)
        while len(self.boards) > 1 and slots.get("board", "") not in said:  # the wording left out which one is meant
            said = self._phrases.say(kind, self.rng, **slots)
        dressed = self.rng.random()
        if dressed < 0.02:
            return {"task": said}
        if dressed < 0.03:
            return [said]
        return said

    def one_of(
        self, kind: str, truth: str, pool: Sequence[str], least: int = 2, most: int = 8, **slots: str
    ) -> tuple[Question, Answer]:
        """A choice among some of `pool`; the truth may be missing, then a "none of these" is right."""
        rng = self.rng
        others = [name for name in dict.fromkeys(pool) if name != truth]
        rng.shuffle(others)
        limit = 26 if rng.random() < 0.05 else most
        picked = others[: max(least - 1, min(len(others), rng.randint(least, limit) - 1))]
        shown = {name: a_name(rng, name) for name in [truth, *picked]}
        labels = [shown[name] for name in shown]
        answer = shown[truth]
        none = rng.choice(NONE_LABELS) if rng.random() < 0.22 and len(others) > 2 else None
        if none:
            if rng.random() < 0.5:
                labels.remove(answer)
                answer = none
            labels.append(none)
        if none is None or rng.random() < 0.3:
            rng.shuffle(labels)
        else:
            body = labels[:-1]
            rng.shuffle(body)
            labels = [*body, none]
        return self.choice(self.say(kind, **slots), labels, answer)

    def choice(self, instructions: Json, labels: list[str], answer: str) -> tuple[Question, Answer]:
        rng = self.rng
        meanings = {other: DESCRIPTIONS.get(name) for name in DESCRIPTIONS for other in SYNONYMS.get(name, (name,))}
        style = rng.random()
        if style < 0.07 and len(labels) <= 8:  # labels that say nothing: the description is the meaning
            codes = rng.sample([f"{letter}{digit}" for letter in "abkxqz" for digit in range(10)], len(labels))
            options = tuple(Option(code, label) for code, label in zip(codes, labels, strict=True))
            return Choice("q", instructions, options), codes[labels.index(answer)]
        described = style < 0.2 and any(meanings.get(label) for label in labels)
        if rng.random() < 0.08:
            labels, answer = [label.capitalize() for label in labels], answer.capitalize()
            meanings = {name.capitalize(): text for name, text in meanings.items()}
        described_as = {label: meanings[label] for label in labels if described and meanings.get(label)}
        wrapped = self.rng.random() < 0.1  # descriptions may be any JSON
        options = tuple(
            Option(
                label, {"about": described_as[label]} if wrapped and label in described_as else described_as.get(label)
            )
            for label in labels
        )
        return Choice("q", instructions, options), answer

    def yes_no(
        self, instructions: Json, answer: bool, true: str | None = None, false: str | None = None
    ) -> tuple[Question, Answer]:
        if true is None or self.rng.random() > 0.25:
            true = false = None
        elif self.rng.random() < 0.3:
            false = None
        return Noul("q", instructions, true, false), answer

    def coin(self) -> bool:
        return self.rng.random() < 0.5

    def unique(self) -> tuple[Item, str] | None:
        """An item and a name that means it alone."""
        for item in self.rng.sample(self.items, len(self.items)):
            names = []
            if sum(i.shape == item.shape for i in self.items) == 1:
                names.append(a_name(self.rng, item.shape))
            if sum(i.shape == item.shape and i.color == item.color for i in self.items) == 1:
                names.append(f"{a_name(self.rng, item.color)} {a_name(self.rng, item.shape)}")
            if sum(i.color == item.color for i in self.items) == 1 and not self.boards:
                names.append(f"{a_name(self.rng, item.color)} {self.style}")
            if names:
                return item, self.rng.choice(names)
        return None

    def group(self) -> tuple[str, int]:
        """What to count, in the plural, and how many there are."""
        rng = self.rng
        pick = rng.random()
        general = plural(self.style)
        if not self.plain:
            pick = max(pick, 0.3)
        if not self.items and (pick > 0.5 or not self.plain):
            return plural(a_name(rng, rng.choice(shapes.SHAPES))), 0
        if pick < 0.3 or not self.items:
            return general, len(self.items)
        item = rng.choice(self.items)
        shape = item.shape if rng.random() < 0.85 else rng.choice(shapes.SHAPES)
        color = item.color if rng.random() < 0.85 else rng.choice(list(COLORS))
        if pick < 0.58:
            return plural(a_name(rng, shape)), sum(i.shape == shape for i in self.items)
        if pick < 0.8 and self.plain:
            return f"{a_name(rng, color)} {general}", sum(i.color == color for i in self.items)
        both = sum(i.shape == shape and i.color == color for i in self.items)
        return f"{a_name(rng, color)} {plural(a_name(rng, shape))}", both

    def board_name(self, board: Board) -> str | None:
        """How one board is called: by its colour where there are several, by what it could be otherwise."""
        name = self.rng.choice(("sign", "label", "tag", "plate", "board"))
        if len(self.boards) > 1 or self.rng.random() < 0.15:
            if board.form == "bare" or sum(b.color == board.color for b in self.boards) > 1:
                return None
            return f"{a_name(self.rng, board.color)} {name}"
        if self.rng.random() < 0.45:
            number = all(line.number for line in board.lines)
            framings = (
                ("door plate", "price tag", "house number", "ticket")
                if number
                else ("shop sign", "street sign", "name tag", "bottle label")
            )
            return self.rng.choice(framings)
        return name

    def line(self, number: bool) -> tuple[Board, str, str] | None:
        """A board with one line of that sort, the board's name and the text."""
        fit = [b for b in self.boards if sum(line.number == number for line in b.lines) == 1]
        if not fit:
            return None
        board = self.rng.choice(fit)
        name = self.board_name(board)
        if name is None:
            return None
        return board, name, next(line.text for line in board.lines if line.number == number)
