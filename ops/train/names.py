"""What things are called in questions and answers: synonyms, descriptions, words for counts, levels and places."""

from __future__ import annotations

import random

NONE_LABELS = ("none of these", "none of the above", "other", "something else", "none")
COUNT_WORDS = (
    *("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
LEVEL_WORDS = (
    ("empty", "a quarter full", "half full", "three quarters full", "full"),
    ("nothing", "a quarter", "a half", "three quarters", "everything"),
    ("0 percent", "25 percent", "50 percent", "75 percent", "100 percent"),
    ("empty", "low", "half", "high", "full"),
)
SYNONYMS = {
    "cup": ("cup", "mug"),
    "moon": ("moon", "crescent"),
    "cross": ("cross", "plus sign"),
    "gray": ("gray", "grey"),
}
DESCRIPTIONS = {
    "circle": "round, without corners",
    "square": "four equal sides",
    "triangle": "three corners",
    "star": "five points",
    "hexagon": "six corners",
    "heart": "the sign of love",
    "cross": "two crossed bars, a plus",
    "ring": "round with a hole",
    "arrow": "it points somewhere",
    "diamond": "a square on its tip",
    "moon": "a crescent, seen at night",
    "house": "a building with a roof",
    "tree": "a trunk with leaves",
    "car": "a vehicle with wheels",
    "fish": "it swims",
    "cup": "one drinks from it",
    "flower": "it has petals",
    "cloud": "seen in the sky",
    "bottle": "it holds a drink",
    "red": "like blood",
    "orange": "like the fruit",
    "yellow": "like a lemon",
    "green": "like grass",
    "blue": "like the sea",
    "purple": "like a plum",
    "pink": "light red",
    "brown": "like wood",
    "black": "very dark, like coal",
    "white": "like snow",
    "gray": "between black and white",
}
_ALIKE = {"fish", "trousers", "glasses", "french fries", "grapes", "cherries", "scissors", "clapping hands", "dice"}
_UNEVEN = (("butterfly", "butterflies"), ("strawberry", "strawberries"), ("mouse", "mice"), ("lady", "ladies"))
PLACES = (
    ("left", "right"),
    ("top", "bottom"),
    ("top left", "top right", "bottom left", "bottom right"),
    ("left", "middle", "right"),
)


def a_name(rng: random.Random, name: str) -> str:
    """A shape or colour by one of its names."""
    return rng.choice(SYNONYMS.get(name, (name,)))


def plural(name: str) -> str:
    """More than one of a shape or thing."""
    if name in _ALIKE:
        return name
    for one, many in _UNEVEN:
        if name.endswith(one):
            return name.removesuffix(one) + many
    return name + ("es" if name.endswith(("s", "x", "ch")) else "s")
