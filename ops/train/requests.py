"""Whole requests: a state of some shape around the pictures, and questions about the pictures and about the state."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ops.train import splits
from ops.train.ask import ask
from ops.train.asker import Asked
from ops.train.scene import Scene
from ops.train.unanswerable import offered, unanswerable
from photocall.questions import Choice, Json, Noul, Number, Option, Text

_KEYS = ("@img", "photo.png", "<image:0>", "picture-1", "shot_7f.jpg", "IMG_2041.JPG", "asset:0")
_PLACES = ("photo", "image", "picture", "img", "camera", "input", "scan")
_FIELDS = (
    "order",
    "note",
    "name",
    "city",
    "status",
    "code",
    "customer",
    "shop",
    "price",
    "weight",
    "id",
    "street",
    "country",
    "item",
    "amount",
    "page",
    "room",
    "seat",
    "size",
    "brand",
    "title",
    "owner",
    "team",
    "month",
    "week",
    "route",
    "row",
    "table",
    "batch",
    "version",
    "language",
    "comment",
)


@dataclass(frozen=True, slots=True)
class Request:
    """A state, the asset keys of its pictures in order, and questions with right answers."""

    state: Json
    keys: tuple[str, ...]
    asked: tuple[Asked, ...]


class Requester:
    """Makes requests in the wording of one split."""

    def __init__(self, split: str) -> None:
        self.split = split
        self._phrases = splits.phrasebook(split)
        self._words = (*splits.words(split), *splits.sign_words())

    def about(self, rng: random.Random, scenes: Sequence[Scene], most: int, stranger: Scene | None = None) -> Request:
        """Questions on one or two pictures; with two, each question says which it means.

        With a `stranger`, questions about that scene now and then, which these pictures do not answer, and the slot
        for that behind the options of some others.
        """
        state: Json
        fields: dict[str, str | int]
        keys: tuple[str, ...]
        if len(scenes) == 1 and rng.random() < 0.04:  # the picture stands in the question, not in the state
            key = rng.choice(_KEYS)
            state, fields = rng.choice(("", "See the question.", self._value(rng))), {}
            keys = (key,)
            asked = [_led(a, f"{key} ") for a in ask(scenes[0], self.split, rng, 2)]
        elif len(scenes) == 1:
            key = rng.choice(_KEYS)
            state, fields = self._state(rng, [key])
            asked = ask(scenes[0], self.split, rng, most)
            if stranger is not None:
                if rng.random() < 0.5:
                    foreign = unanswerable(ask(stranger, self.split, rng, 3), scenes[0], 2)
                    asked = [*asked[: most - len(foreign)], *foreign]
                asked = offered(asked, rng)
            keys = (key,)
        else:
            stem = rng.choice(("@img", "photo", "scan-"))
            keys = (f"{stem}1", f"{stem}2")
            state, fields = self._state(rng, list(keys))
            noun = rng.choice(("picture", "image", "photo"))
            asked = []
            for scene, name in zip(scenes, ("first", "second"), strict=True):
                lead = rng.choice(
                    (f"In the {name} {noun}: ", f"{name.capitalize()} {noun}: ", f"Look at the {name} {noun}. ")
                )
                asked += [_led(a, lead) for a in ask(scene, self.split, rng, max(1, most // 2))]
        short = {name: value for name, value in fields.items() if name != "description"}
        if short and rng.random() < 0.3:
            asked += self._about_fields(rng, short, 1)
        rng.shuffle(asked)
        return Request(state, keys, tuple(asked))

    def words_only(self, rng: random.Random, most: int) -> Request:
        """No picture: the answers are in the state."""
        fields = self._fields(rng, rng.randint(2, 6))
        return Request(dict(fields), (), tuple(self._about_fields(rng, fields, most)))

    def _fields(self, rng: random.Random, count: int) -> dict[str, str | int]:
        names = rng.sample(_FIELDS, count)
        return {name: rng.randint(0, 9999) if rng.random() < 0.4 else self._value(rng) for name in names}

    def _value(self, rng: random.Random) -> str:
        word = rng.choice(self._words)
        cased = rng.choice((word, word, word.capitalize(), word.upper()))
        return f"{cased} {rng.choice(self._words)}" if rng.random() < 0.2 else cased

    def _state(self, rng: random.Random, keys: list[str]) -> tuple[Json, dict[str, str | int]]:
        form = rng.random()
        if len(keys) == 1 and form < 0.45:
            return keys[0], {}
        if len(keys) == 1 and form < 0.6:
            return {rng.choice(_PLACES): keys[0]}, {}
        if form < 0.68:
            return list(keys), {}
        if len(keys) == 1 and form < 0.76:
            return rng.choice(("Photo: {}", "{} as taken today", "See {} please.", "Picture {}\nEnd")).format(
                keys[0]
            ), {}
        fields = self._fields(rng, rng.randint(1, 4))
        if rng.random() < 0.2:
            long = " ".join(rng.choice(self._words) for _ in range(rng.randint(12, 50)))
            fields = {**fields, "description": long} if rng.random() < 0.5 else {"description": long, **fields}
        places = rng.sample(_PLACES, len(keys)) if len(keys) == 1 else ["first", "second"]
        pairs: list[tuple[str, Json]] = [*fields.items(), *zip(places, keys, strict=True)]
        if len(keys) == 1:
            rng.shuffle(pairs)
        return dict(pairs), fields

    def _about_fields(self, rng: random.Random, fields: dict[str, str | int], count: int) -> list[Asked]:
        asked = []
        for _ in range(count):
            key = rng.choice(list(fields))
            value = fields[key]
            form = rng.random()
            said = self._phrases.say("field", rng, key=key)
            if form < 0.12:
                word = self._value(rng)
                asked.append(Asked(Text("q", self._phrases.say("spell", rng, word=word)), word, "spell"))
            elif form < 0.45:
                asked.append(
                    Asked(Number("q", said), value, "field_number")
                    if isinstance(value, int)
                    else Asked(Text("q", said), value, "field_text")
                )
            elif form < 0.72:
                others = [
                    str(rng.randint(0, 9999)) if isinstance(value, int) else self._value(rng)
                    for _ in range(rng.randint(1, 5))
                ]
                labels = list(dict.fromkeys([str(value), *(str(v) for k, v in fields.items() if k != key), *others]))[
                    :8
                ]
                rng.shuffle(labels)
                options = tuple(Option(label) for label in labels)
                asked.append(Asked(Choice("q", said, options), str(value), "field_choice"))
            else:
                truth = rng.random() < 0.5
                wrong = [str(v) for k, v in fields.items() if str(v) != str(value)] + [self._value(rng)]
                shown = str(value) if truth else rng.choice(wrong)
                said = self._phrases.say("field_yes", rng, key=key, value=shown)
                asked.append(Asked(Noul("q", said), shown == str(value), "field_yes"))
        return asked


def _led(asked: Asked, lead: str) -> Asked:
    """The same question, with a word before it that says which picture is meant."""
    said = asked.question.instructions
    whole: Json = lead + said if isinstance(said, str) else [lead.strip(), said]
    return replace(asked, question=replace(asked.question, instructions=whole))
