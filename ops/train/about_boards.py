"""Questions about what is printed: words and numbers to read, to compare and to look for."""

from __future__ import annotations

from decimal import Decimal

from ops.train.about_items import place
from ops.train.asker import Asker, Made
from ops.train.backgrounds import COLORS
from ops.train.scene import Board
from photocall.questions import Choice, Number, Option, Text


def board_where(a: Asker) -> Made:
    board = a.rng.choice(a.boards)
    name = a.board_name(board)
    if name is None:
        return None
    x0, y0, x1, y1 = board.box
    truth, pool = place(a, (x0 + x1) / 2 / a.scene.width, (y0 + y1) / 2 / a.scene.height)
    return a.one_of("where", truth, pool, least=len(pool), thing=name) if truth else None


def _similar(a: Asker, word: str) -> str:
    """A word one letter off, or another of the same length."""
    spot = a.rng.choice([i for i, c in enumerate(word) if c.isalnum()])
    letters = "abcdefghijklmnopqrstuvwxyz"
    every = "0123456789" if word[spot].isdigit() else letters if word[spot].islower() else letters.upper()
    letter = a.rng.choice(every)
    return word[:spot] + letter + word[spot + 1 :]


def _other_words(a: Asker, word: str, count: int) -> list[str]:
    if any(c.isdigit() for c in word):  # a date, a time or a code
        return [other for other in dict.fromkeys(_similar(a, word) for _ in range(count + 2)) if other != word]
    same_case = str.upper if word.isupper() else str.capitalize if word[:1].isupper() else str.lower
    found = [same_case(a.rng.choice(a.words)) for _ in range(count)]
    if a.rng.random() < 0.3:
        found[0] = _similar(a, word)
    return [other for other in dict.fromkeys(found) if other != word]


def read_word(a: Asker) -> Made:
    found = a.line(number=False)
    return (Text("q", a.say("read_word", board=found[1])), found[2]) if found else None


def which_word(a: Asker) -> Made:
    found = a.line(number=False)
    if found is None:
        return None
    board, name, word = found
    on_others = [line.text for b in a.boards if b is not board for line in b.lines if not line.number]
    return a.one_of("which_word", word, [*on_others, *_other_words(a, word, 7)], board=name)


def word_yes(a: Asker) -> Made:
    found = a.line(number=False)
    if found is None:
        return None
    _, name, word = found
    answer = a.coin()
    others = _other_words(a, word, 2)
    if not answer and not others:
        return None
    return a.yes_no(a.say("word_yes", board=name, word=word if answer else others[0]), answer)


def first_letter(a: Asker) -> Made:
    found = a.line(number=False)
    if found is None or not ("A" <= found[2][0].upper() <= "Z"):
        return None
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    if a.rng.random() < 0.3:
        return a.choice(a.say("first_letter", board=found[1]), list(letters), found[2][0].upper())
    return a.one_of("first_letter", found[2][0].upper(), letters, board=found[1])


def _value(text: str) -> int | Decimal:
    """What a printed number says, without what stands around it."""
    bare = "".join(c for c in text.removeprefix("No. ") if c in "-.0123456789")
    return Decimal(bare) if "." in bare else int(bare)


def _whole(a: Asker) -> tuple[Board, str, int] | None:
    """A board with one number, if that is a whole one and not negative."""
    found = a.line(number=True)
    value = _value(found[2]) if found else -1
    return (found[0], found[1], value) if found and isinstance(value, int) and value >= 0 else None


def read_number(a: Asker) -> Made:
    found = a.line(number=True)
    if found is None:
        return None
    rng = a.rng
    low, high = (0.0, rng.choice((9999.0, 99999.0))) if rng.random() < 0.3 else (None, None)
    step = 1.0 if rng.random() < 0.3 else None
    unit = rng.choice(("euros", "dollars", "kg", "metres", "minutes")) if rng.random() < 0.08 else None
    value = _value(found[2])
    if isinstance(value, Decimal):
        low, high, step = (0.0 if value >= 0 else -9999.0, 9999.0, None) if low is not None else (None, None, None)
    if value < 0 or value > 9999:
        low, high = None, None
    return Number("q", a.say("read_number", board=found[1]), low, high, step, unit), value


def _near_number(a: Asker, number: int) -> int:
    text = str(number)
    if a.coin():
        spot = a.rng.randrange(len(text))
        text = text[:spot] + str(a.rng.randint(1 if spot == 0 else 0, 9)) + text[spot + 1 :]
        return int(text)
    return a.rng.randint(0 if len(text) == 1 else 10 ** (len(text) - 1), 10 ** len(text) - 1)


def number_choice(a: Asker) -> Made:
    found = _whole(a)
    if found is None:
        return amount_choice(a)
    number = found[2]
    pool = [str(_near_number(a, number)) for _ in range(7)]
    if a.rng.random() < 0.01:  # more than 26 options: codes of two letters
        labels = list(
            dict.fromkeys([str(number), *(str(a.rng.randint(0, 9999)) for _ in range(a.rng.randint(27, 34)))])
        )
        a.rng.shuffle(labels)
        return Choice("q", a.say("read_number", board=found[1]), tuple(Option(label) for label in labels)), str(number)
    return a.one_of("read_number", str(number), pool, board=found[1])


def amount_choice(a: Asker) -> Made:
    """A price or a decimal among others a digit off."""
    found = a.line(number=True)
    if found is None:
        return None
    return a.one_of("read_number", found[2], [_similar(a, found[2]) for _ in range(6)], board=found[1])


def no_number(a: Asker) -> Made:
    """A number is asked for where only words are printed, or a word where only numbers are: there is no answer."""
    board = a.rng.choice(a.boards)
    name = a.board_name(board)
    if name is None or len({line.number for line in board.lines}) > 1:
        return None
    if board.lines[0].number:
        said = a.say("read_word", board=name)
        return (Text("q", said), None) if "word" in str(said) else None
    if any(c.isdigit() for line in board.lines for c in line.text):
        return None
    return Number("q", a.say("read_number", board=name)), None


def number_yes(a: Asker) -> Made:
    found = _whole(a)
    if found is None:
        return None
    number = found[2]
    limit = a.rng.choice(
        (number + a.rng.randint(-number, max(9, number)), a.rng.choice((10, 50, 100, 500, 1000, 5000)))
    )
    if limit == number:
        return None
    above = a.coin()
    said = a.rng.choice(
        ("greater than", "larger than", "more than", "above") if above else ("less than", "smaller than", "below")
    )
    return a.yes_no(a.say("number_yes", board=found[1], relation=said, number=str(limit)), (number > limit) == above)


def number_is(a: Asker) -> Made:
    found = _whole(a)
    if found is None:
        return None
    number = found[2]
    shown = number if a.coin() else _near_number(a, number)
    return a.yes_no(a.say("number_is", board=found[1], number=str(shown)), shown == number)


def board_color(a: Asker) -> Made:
    board = a.rng.choice(a.boards)
    if board.form == "bare" or len(a.boards) > 1:
        return None
    return a.one_of(
        "what_color", board.color, tuple(COLORS), thing=a.rng.choice(("sign", "label", "tag", "plate", "board"))
    )


def which_board(a: Asker) -> Made:
    board = a.rng.choice(a.boards)
    texts = [line.text for b in a.boards for line in b.lines]
    line = a.rng.choice(board.lines)
    if texts.count(line.text) > 1 or board.form == "bare" or sum(b.color == board.color for b in a.boards) > 1:
        return None
    pool = [b.color for b in a.boards]
    if a.coin():
        pool += a.rng.sample(list(COLORS), 4)
    return a.one_of("which_board", board.color, pool, text=line.text)


def count_boards(a: Asker) -> Made:
    if any(b.form == "bare" for b in a.boards):
        return None
    return Number("q", a.say("count", things=a.rng.choice(("signs", "labels", "tags")))), len(a.boards)


def text_yes(a: Asker) -> Made:
    return a.yes_no(a.say("text_yes"), bool(a.boards), "something is written", "nothing is written")
