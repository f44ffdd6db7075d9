"""What stands on papers and labels: dates, times, amounts and codes as people print them."""

from __future__ import annotations

import random
from decimal import Decimal

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"


def date(rng: random.Random) -> str:
    """A day between 1990 and 2039 in one of six forms."""
    day, month, year = rng.randint(1, 28), rng.randint(1, 12), rng.randint(1990, 2039)
    return rng.choice(
        (
            f"{year}-{month:02}-{day:02}",
            f"{day:02}.{month:02}.{year}",
            f"{day:02}/{month:02}/{year}",
            f"{day} {_MONTHS[month - 1]} {year}",
            f"{_MONTHS[month - 1]} {day}, {year}",
            f"{day}.{month}.{year % 100:02}",
        )
    )


def time(rng: random.Random) -> str:
    """A time of day."""
    return f"{rng.randint(0, 23):02}:{rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50, rng.randint(0, 59))):02}"


def code(rng: random.Random) -> str:
    """Letters and digits: of a plate, a seat or a batch."""

    def letters(count: int) -> str:
        return "".join(rng.choice(_LETTERS) for _ in range(count))

    form = rng.randrange(5)
    if form == 0:
        return f"{letters(2)}-{letters(2)} {rng.randint(1, 9999)}"
    if form == 1:
        return f"{rng.randint(1, 99)}{letters(1)}"
    if form == 2:
        return f"{letters(3)} {rng.randint(100, 999)}"
    if form == 3:
        return f"{letters(1)}-{rng.randint(100, 99999)}"
    return f"{letters(2)}{rng.randint(10, 99)} {letters(3)}"


def amount(rng: random.Random, most: int = 3) -> Decimal:
    """An amount of money of up to `most` digits before the point, with two behind it."""
    whole = rng.randint(0, 10 ** rng.randint(1, most) - 1)
    cents = rng.choice((0, 50, 99, 95, rng.randint(0, 99), rng.randint(0, 99), rng.randint(0, 99)))
    return Decimal(f"{whole}.{cents:02}")


def priced(rng: random.Random, value: Decimal) -> str:
    """An amount as it is printed; often bare."""
    return rng.choice(("{}", "{}", "${}", "£{}", "{} EUR", "€ {}", "$ {}")).format(value)


def decimal(rng: random.Random) -> Decimal:
    """A measured value: one or two decimals, negative now and then."""
    places = rng.choice((1, 1, 2))
    value = Decimal(rng.randint(0, 10 ** rng.randint(2, 4))).scaleb(-places)
    return -value if value and rng.random() < 0.2 else value
