"""How questions are worded. `(a|b|)` is a free choice, `{slot}` is filled in; three splits share no wording.

The held-out and validation wordings are in `heldout.json`; the training ones are here.
"""

from __future__ import annotations

import random
import re

from ops.train.wordings import FAMILIES

_ARTICLE = re.compile(r"\b([Aa]) (?=(?!one\b)[aeio]|um)")
_GROUP = re.compile(r"\(([^()]*)\)")
LEAD = (
    "(|||||Look at the picture. |In this (picture|image|photo): |Please answer. |Check the image. |About the photo: )"
)

TRAIN: dict[str, tuple[str, ...]] = {
    **FAMILIES,
    "what_shape": (
        "(What|Which) (shape|thing|object) is (shown|in the (picture|image|photo)|visible|this)?",
        "What (do you see|can be seen)(| here| in the (picture|image|photo))?",
        "(Name|Identify|Give) the (shape|object|thing)(| shown| in the (picture|image|photo)).",
        "(Which|What) (kind|type|sort) of (shape|object|thing) (is it|is this|is shown|do you see)?",
        "(Shape|Object|Thing)(:|?)",
    ),
    "what_color": (
        "(What|Which) (color|colour) is the {thing}?",
        "The {thing} is (what|which) (color|colour)?",
        "(Give|Name|Tell) the (color|colour) of the {thing}.",
        "(What|Which) (color|colour) does the {thing} have?",
        "(Color|Colour) of the {thing}(:|?)",
    ),
    "which_of_color": (
        "(What|Which) (thing|shape|object|one) is {color}?",
        "(What|Which) (shape|object) has the (color|colour) {color}?",
        "(What|Which) (kind|type) of (thing|shape|object) is the {color} one?",
        "(Name|Identify) the {color} (thing|shape|object).",
        "What is the {color} (thing|shape|object)?",
    ),
    "exists": (
        "Is there (a|any) {thing}(| in the (picture|image|photo)| here)?",
        "(Do you see|Can you see|Can you find) a {thing}(| in the (picture|image|photo))?",
        "(Does|Would) the (picture|image|photo) (show|contain|have|include) a {thing}?",
        "(Is a|Is one) {thing} (shown|visible|present|there)?",
        "Does a {thing} appear(| here| in the (picture|image|photo))?",
    ),
    "count": (
        "How many {things} are (there|shown|visible|in the (picture|image|photo))?",
        "(Count|Tally) the {things}(| in the (picture|image|photo)).",
        "(What is|Give|Tell) the number of {things}(|.)",
        "How many {things} (do you see|can you see|can you count)?",
        "(Number|Count) of {things}(:|?)",
    ),
    "where": (
        "Where is the {thing}(| in the (picture|image|photo))?",
        "(In|On) (which|what) part of the (picture|image|photo) is the {thing}?",
        "(Which|What) (position|place|area) is the {thing} in?",
        "(Locate|Find) the {thing}.",
        "(Position|Place) of the {thing}(:|?)",
    ),
    "relation": (
        "Is the {a} {relation} the {b}?",
        "(Can you see|Do you see) the {a} {relation} the {b}?",
        "(True or false|Yes or no|Right or wrong): the {a} is {relation} the {b}.",
        "Does the (picture|image|photo) show the {a} {relation} the {b}?",
    ),
    "size": (
        "(What|Which) (thing|shape|object|one) is the {size}?",
        "(What|Which) is the {size} (thing|shape|object)(| in the (picture|image|photo)| shown)?",
        "(Name|Pick|Find) the {size} (one|thing|shape|object).",
        "Of (all|the) (things|shapes|objects)(| shown), which is the {size}?",
    ),
    "size_color": (
        "(What|Which) (color|colour) is the {size} (thing|shape|object|one)?",
        "(Give|Name) the (color|colour) of the {size} (thing|shape|object).",
        "The {size} (thing|shape|object) has (which|what) (color|colour)?",
    ),
    "empty": (
        "Is the {place} empty?",
        "Is there nothing (in|on) the {place}?",
        "Are there no things (in|on) the {place}?",
        "(Check|Tell me): is the {place} (completely|entirely|) empty?",
    ),
    "more": (
        "Are there more {a} than {b}?",
        "(Do you see|Can you count) more {a} than {b}?",
        "Is the number of {a} (larger|greater|higher) than the number of {b}?",
        "(True or false|Yes or no): more {a} than {b}(| are shown).",
    ),
    "same": (
        "(Do|Does) all of them have the same {trait}?",
        "Are all the (things|shapes|objects) of the same {trait}?",
        "Is the {trait} the same for (all|every one) of them?",
        "(Do|) all (things|shapes|objects) share (one|a single|the same) {trait}?",
    ),
    "direction": (
        "(Which way|In which direction|Where) does the {arrow} point?",
        "(What|Which) direction is the {arrow} (pointing|facing)?",
        "(Give|Name) the direction of the {arrow}.",
        "(Direction of|Which way is) the {arrow}(:|?)",
    ),
    "direction_yes": (
        "Does the {arrow} point {direction}?",
        "Is the {arrow} (pointing|facing|turned) {direction}?",
        "(True or false|Yes or no): the {arrow} points {direction}.",
    ),
    "read_word": (
        "What does the {board} say?",
        "(What|Which) (word|text) is (printed|written|shown)(| on the {board})?",
        "Read the {board}.",
        "(What is|Read|Give|Copy) the (word|text|writing)(| on the {board})(|.)",
        "(Transcribe|Type|Spell) (what is|the word|the text) on the {board}.",
        "(Text|Word|Writing) on the {board}(:|?)",
    ),
    "which_word": (
        "(What|Which) word is (printed|written|shown)(| on the {board})?",
        "(Which|What) {board} is (shown|this|in the (picture|image|photo))?",
        "What does the {board} say?",
        "(Pick|Choose|Select) the word on the {board}.",
    ),
    "word_yes": (
        "Does the {board} say {word}?",
        'Does the {board} say "{word}"?',
        "Is the word {word} (printed|written|shown)(| on the {board})?",
        'Is "{word}" (printed|written|shown) on the {board}?',
        "(True or false|Yes or no): the {board} (says|reads) {word}.",
    ),
    "first_letter": (
        "(What|Which) letter does the word on the {board} (start|begin) with?",
        "(Give|Name) the first letter (on|of the word on) the {board}.",
        "(What|Which) is the first letter of the (printed|written) word on the {board}?",
    ),
    "read_number": (
        "(What|Which) number is (printed|written|shown|)(| on the {board})?",
        "Read the number(| on the {board}).",
        "(What|Which) number (can you read|do you see|is there)(| on the {board})?",
        "(Give|Copy|Tell) the (number|digits) on the {board}.",
        "The {board} (shows|has|says) (what|which) number?",
        "(Number|Digits) on the {board}(:|?)",
    ),
    "number_yes": (
        "Is the number on the {board} {relation} {number}?",
        "(True or false|Yes or no): the number on the {board} is {relation} {number}.",
        "Does the {board} show a number {relation} {number}?",
    ),
    "number_is": (
        "Is the number(| on the {board}) {number}?",
        "Does the {board} (show|say|have) (|the number ){number}?",
        "(True or false|Yes or no): the {board} (shows|says) {number}.",
        "(Do you see|Can you read) the number {number}(| on the {board})?",
    ),
    "which_board": (
        "(What|Which) (color|colour) is the (tag|label|sign) (with|that says|showing) {text}?",
        "{text} is on the (tag|label|sign) of (what|which) (color|colour)?",
        "(Find|Look for) {text}: (what|which) (color|colour) is (its|that) (tag|label|sign)?",
    ),
    "text_yes": (
        "Is there any (text|writing|word or number)(| in the (picture|image|photo))?",
        "Does the (picture|image|photo) (have|contain|show) any (text|writing|letters or digits)?",
        "(Can you see|Do you see) any (writing|text|printed words or numbers)?",
        "(True or false|Yes or no): (something is written|there is writing|there is some text)(| here).",
        "(True or false|Yes or no): a word or number is shown(| here).",
        "Is (anything|something) (written|printed)(| here| in the (picture|image|photo))?",
    ),
    "level": (
        "How full is the {gauge}?",
        "(What|Which) (level|mark) is the {gauge} at?",
        "(Give|Rate|Judge) the (fill |)level of the {gauge}.",
        "How much is in the {gauge}?",
        "To (which|what) level is the {gauge} filled?",
    ),
    "level_yes": (
        "Is the {gauge} {level}?",
        "(Would you say|Can you see) that the {gauge} is {level}?",
        "(True or false|Yes or no): the {gauge} is {level}.",
    ),
    "percent": (
        "How (many percent|much, in percent,) of the {gauge} is (full|filled)?",
        "(What|Which) percentage of the {gauge} is (full|filled)?",
        "(Give|Tell) the (fill |)level of the {gauge} in percent.",
    ),
    "light": (
        "(What|Which) (light|lamp) is (on|lit)?",
        "(What|Which) (color|colour) (is|does) the traffic light(| show)?",
        "The traffic light is (what|which) (color|colour)?",
        "(State|Color|Colour) of the traffic light(:|?)",
    ),
    "light_yes": (
        "Is the traffic light {color}?",
        "Is the {color} (light|lamp) (on|lit)?",
        "Does the traffic light show {color}?",
    ),
    "may_go": (
        "(May|Can) (cars|I|we|a car) (go|drive|pass)(| now)?",
        "Does the traffic light (allow|let) (cars|us|me) (to |)go?",
        "(Is it|Does the light say it is) time to go?",
    ),
    "mostly": (
        "What does the (picture|image|photo) (mostly|mainly|) show?",
        "What (kind|type|sort) of (picture|image|photo) is (this|it)?",
        "(Which|What) describes the (picture|image|photo) best?",
        "(Pick|Choose) the best description(| of the (picture|image|photo)).",
    ),
    "field": (
        "What is the (value of the field |)(|field ){key}?",
        "What is (the|its) {key}?",
        "(Give|Copy|Read|Tell) the {key}(| from the (record|data|state)).",
        "(Which|What) {key} is (given|stated|in the record)?",
        "{key}(:|?)",
    ),
    "field_yes": (
        "Is the {key} {value}?",
        "Does the field {key} say {value}?",
        "(True or false|Yes or no): {key} is {value}.",
        "Is {value} the {key}?",
    ),
    "spell": (
        "(Spell|Write|Copy|Repeat) the word {word}.",
        'Write "{word}" again.',
        "(Answer|Reply) with {word}.",
    ),
}


def expand(template: str, rng: random.Random) -> str:
    """One sentence of a template, innermost groups first."""
    while found := _GROUP.search(template):
        template = template[: found.start()] + rng.choice(found.group(1).split("|")) + template[found.end() :]
    return template


class Phrasebook:
    """The wordings of one split, by question kind; `filler` words stand before a question now and then."""

    def __init__(self, wordings: dict[str, tuple[str, ...]], filler: tuple[str, ...] = ()) -> None:
        missing = TRAIN.keys() - wordings.keys()
        if missing:
            raise ValueError(f"no wording for {sorted(missing)}")
        self._wordings = wordings
        self._filler = filler

    def say(self, kind: str, rng: random.Random, **slots: str) -> str:
        """A question of the kind, its slots filled in, in one of three letter cases now and then."""
        template = LEAD + rng.choice(self._wordings[kind])
        said = _ARTICLE.sub(r"\1n ", expand(template, rng).format(**slots))
        if self._filler and rng.random() < 0.08:  # words that mean nothing here, so that unknown ones do no harm
            said = " ".join(rng.choice(self._filler) for _ in range(rng.randint(1, 4))).capitalize() + ". " + said
        if rng.random() < 0.06:
            said = said[0].lower() + said[1:]
        if rng.random() < 0.06:
            said = said.rstrip("?.")
        return said
