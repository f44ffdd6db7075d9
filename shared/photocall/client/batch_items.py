"""What a batch is made of, as a program has it: a folder, a glob, a list, a table or a file, as requests with ids.

A folder or an archive goes to the server as it is, with one request for all. Anything else becomes a JSONL of whole
requests, written as it is read: only what the caller holds is in memory.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sized
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from photocall.client.batch_source import Source
from photocall.client.pictures import Image, Images, marker
from photocall.client.questions import Questions, named
from photocall.client.request import body_of

ENDPOINT = "/v1/jobs"  # takes all that a question may say
PICTURE_COLUMN = "image"
_GLOB = frozenset("*?[")

State: TypeAlias = Any
"""A text, JSON, or a function of a row that gives one of these."""


@dataclass(frozen=True, slots=True)
class Given:
    """What `client.batch` was given, ready to be created. `labels` are what a table calls its rows, in their order."""

    source: Source
    endpoint: str
    request: dict[str, Any] | None = None
    labels: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column of a table is the row's picture, and which its id. None: `image`, where there is one; the place."""

    image: str | None = None
    id: str | None = None


EVERY_COLUMN = Columns()
_OF_THE_BATCH = ("completion_window", "metadata", "webhook")


def split(fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is said of the batch, and what of each of its rows."""
    own = {name: value for name, value in fields.items() if name in _OF_THE_BATCH}
    return own, {name: value for name, value in fields.items() if name not in own}


def given(source: Any, questions: Questions | None, state: State, columns: Columns, fields: Mapping[str, Any]) -> Given:
    """Raises ValueError and TypeError for what is no batch, and OSError."""
    if isinstance(source, str) and _GLOB & set(source) and not Path(source).exists():
        source = _found(source)
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no such file or folder")
        if path.is_dir() or path.suffix.lower() != ".jsonl":
            return Given(path, ENDPOINT, _template(questions, state, fields))
        if questions is None:
            return Given(path, _endpoint(path))
        return Given(_requests(_rows(_lines(path), columns, state, path.parent), questions, fields), ENDPOINT)
    if questions is None:
        raise ValueError("there are no questions: only the rows of a JSONL file bring their own")
    labels, items = _items(source, columns, state)
    return Given(_requests(items, questions, fields), ENDPOINT, labels=labels)


@dataclass(frozen=True, slots=True)
class _Item:
    """One row before its questions."""

    id: str
    images: Images
    state: Any


def _items(source: Any, columns: Columns, state: State) -> tuple[list[Any] | None, Iterator[_Item]]:
    """The rows of what is neither a file nor a folder, and what they are called where that is no text."""
    if hasattr(source, "to_pylist") and hasattr(source, "column_names"):  # pyarrow
        source = source.to_pylist()
    if hasattr(source, "to_dict") and hasattr(source, "columns"):  # pandas
        names = [str(name) for name in source.columns]
        cells = ((_cell(cell) for cell in row) for row in source.itertuples(index=False, name=None))
        rows = (dict(zip(names, row, strict=True)) for row in cells)
        labels = list(source.index)
        return labels, _rows(rows, columns, state, None, labels)
    if isinstance(source, Mapping):
        pairs = ((str(name), image) for name, image in source.items())
        return None, (_Item(name, image, state) for name, image in pairs)
    if not isinstance(source, Iterable) or isinstance(source, bytes):
        raise TypeError(f"{type(source).__name__} is no batch: expected a folder, a glob, a list, a table or a file")
    if isinstance(source, Sized) and not len(source):
        raise ValueError("there is nothing in this batch")
    return None, _mixed(source, columns, state)


def _cell(cell: Any) -> Any:
    """What is missing in a frame is NaN; what numpy counts with is none of JSON's."""
    if isinstance(cell, float) and cell != cell:
        return None
    return cell.item() if type(cell).__module__ == "numpy" and hasattr(cell, "item") and not cell.shape else cell


def _mixed(source: Iterable[Any], columns: Columns, state: State) -> Iterator[_Item]:
    """Rows of a table, or pictures: each is seen by itself."""
    seen: set[str] = set()
    for number, item in enumerate(source, 1):
        if isinstance(item, Mapping):
            yield _row(item, number, columns, state, None, None)
            continue
        name = str(item) if isinstance(item, str | Path) and len(str(item)) <= 500 else str(number)
        name = f"{name} ({number})" if name in seen else name
        seen.add(name)
        yield _Item(name, item, state)


def _rows(
    rows: Iterable[Mapping[str, Any]],
    columns: Columns,
    state: State,
    folder: Path | None,
    labels: list[Any] | None = None,
) -> Iterator[_Item]:
    for number, row in enumerate(rows, 1):
        label = labels[number - 1] if labels is not None else None
        yield _row(row, number, columns, state, folder, label)


def _row(row: Mapping[str, Any], number: int, columns: Columns, state: State, folder: Path | None, label: Any) -> _Item:
    """A row of a table. Without a picture and a state, the row is what is asked about."""
    name = str(row[columns.id] if columns.id is not None else number if label is None else label)
    image: Image = row[columns.image] if columns.image is not None else row.get(PICTURE_COLUMN)
    if isinstance(image, str) and folder is not None and (folder / image).exists():
        image = folder / image
    if callable(state):
        told = state(row)
    elif state is not None:
        told = _filled(state, row)
    else:
        told = {key: value for key, value in row.items() if key != columns.id} if image is None else None
    return _Item(name, image, told)


def _filled(state: Any, row: Mapping[str, Any]) -> Any:
    """A state whose texts name columns in braces, for one row."""
    if isinstance(state, str):
        return state.format_map(row)
    if isinstance(state, Mapping):
        return {key: _filled(value, row) for key, value in state.items()}
    return [_filled(value, row) for value in state] if isinstance(state, list | tuple) else state


def _requests(
    items: Iterable[_Item], questions: Questions, fields: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    asked = named(questions)
    for item in items:
        try:
            body, _ = body_of(item.images, asked, item.state, fields, with_bytes=True)
        except (OSError, TypeError, ValueError) as error:
            error.add_note(f"in row {item.id!r} of the batch")
            raise
        yield item.id, body


def _template(questions: Questions | None, state: State, fields: Mapping[str, Any]) -> dict[str, Any]:
    if questions is None:
        raise ValueError("there are no questions: only the rows of a JSONL file bring their own")
    if callable(state):
        raise ValueError("a folder's pictures have no row that a state could be made of")
    told = {name: value for name, value in fields.items() if value is not None}
    return {"state": marker(1) if state is None else state, "questions": named(questions), **told}


def _found(pattern: str) -> list[Path]:
    paths = sorted(Path(path) for path in glob.glob(pattern, recursive=True) if Path(path).is_file())
    if not paths:
        raise ValueError(f"{pattern}: no file is called so")
    return paths


def _lines(path: Path) -> Generator[Mapping[str, Any], None, None]:
    with path.open(encoding="utf-8") as lines:
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
            if not isinstance(row, Mapping):
                raise ValueError(f"{path}, line {number}: expected an object")
            yield row


def _endpoint(path: Path) -> str:
    """Where the requests of a JSONL file go: what its first line says; the server compares the others."""
    with closing(_lines(path)) as lines:
        first = next(lines, None)
    if first is None:
        raise ValueError(f"{path}: there is no line in this file")
    return str(first.get("url", ENDPOINT))
