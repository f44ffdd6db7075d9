"""PROTOCOL.md says what the code does: version, message types with their fields, keys."""

from __future__ import annotations

import inspect
import re
from importlib import resources
from typing import Any, get_type_hints

from photocall import keys, messages
from photocall.messages import TYPES, VERSION, Header
from photocall.streams import FIELD

TEXT = (resources.files("photocall") / "PROTOCOL.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    section = TEXT.split(f"{heading}\n", 1)[1].split("\n#", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def type_name(hint: Any) -> str:
    if hint is Any:
        return "any"
    return str(getattr(getattr(hint, "__origin__", hint), "__name__", hint))


def test_version() -> None:
    assert f"Version {VERSION}." in TEXT


def test_header_fields_in_order() -> None:
    line = re.search(r"1\. `header`: map of (.*?), all text", TEXT, re.S)
    assert line is not None
    fields = list(Header.__annotations__)
    assert re.findall(r"`(\w+)`", line[1]) == [name for name in fields if name in Header.__required_keys__]
    assert {name for name in fields if f"`{name}`" in TEXT.partition("2. `parent_header`")[0]} == set(fields)


def test_message_types_and_their_fields() -> None:
    documented = {
        name.strip("`"): (channel, re.findall(r"`(\w+)` (\w+)", content))
        for name, channel, content in rows("### Types")
    }
    hints = {name: dict(get_type_hints(cls)) for name, cls in TYPES.items()}
    written = {
        name: (cls.channel, [(field, type_name(hints[name][field])) for field in messages.schema(cls)])
        for name, cls in TYPES.items()
    }
    assert documented == written


def test_entry_field() -> None:
    assert f"under the field `{FIELD.decode()}`" in TEXT


def written_keys() -> set[str]:
    """Every key of keys.py, with <parameter> in place of what is filled in."""
    found = {value for name, value in vars(keys).items() if name.isupper() and str(value).startswith(keys.PREFIX)}
    for function in (item for item in vars(keys).values() if inspect.isfunction(item)):
        parameters = inspect.signature(function).parameters
        if any(parameter.annotation == "bytes" for parameter in parameters.values()):
            continue  # it reads what Redis returned, and names no key
        key = str(function(*(f"<{name}>" for name in parameters)))
        if key.startswith(keys.PREFIX):
            found.add(re.sub(r"[0-9a-f]{64}", "<hash of idempotency_key>", key))
    return found - {keys.PREFIX}


def test_keys() -> None:
    assert {row[0].strip("`") for row in rows("## Keys")} == written_keys()


def test_lanes_group_and_function() -> None:
    row = next(row for row in rows("## Keys") if row[0] == "`photocall:engine:<lane>`")
    assert f"group `{keys.ENGINE_GROUP}`" in row[2]
    assert all(f"`{lane}`" in row[2] for lane in keys.LANES)
    assert all(f"`{queue}`" in TEXT for queue in keys.PREP_QUEUE.values())
    assert f"`{keys.PREPARE_JOB}`" in TEXT
