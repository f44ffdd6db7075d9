"""`%load_ext photocall`: a notebook cell of questions, `%%ask`, and its progress in place while it is answered.

%%ask parcel.jpg
damaged: Is the parcel damaged?
label: Which label is on it? -> fragile, this side up, none
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from photocall.client.card import progress_line
from photocall.client.errors import ClientError
from photocall.client.packages import needed
from photocall.client.shorthand import questions_of
from photocall.client.shown import Job
from photocall.client.sync_client import Client


class Live:
    """Shows how a job stands, in one place of a notebook that is written anew: what `on_progress` takes."""

    def __init__(self) -> None:
        self._display = needed("IPython.display", "a notebook's progress")
        self._handle: Any = None

    def __call__(self, job: Job) -> None:
        self._show(progress_line(job))

    def clear(self) -> None:
        """Leave nothing behind."""
        if self._handle is not None:
            self._show("")

    def _show(self, text: str) -> None:
        drawn = self._display.HTML(text)
        if self._handle is None:
            self._handle = self._display.display(drawn, display_id=True)
        else:
            self._handle.update(drawn)


def load_ipython_extension(ipython: Any) -> None:
    """What `%load_ext photocall` calls."""
    usage_error = needed("IPython.core.error", "%%ask").UsageError

    def ask(line: str, cell: str) -> Job:
        try:
            return asked(line, cell, ipython.user_ns)
        except (ClientError, OSError, ValueError) as error:
            raise usage_error(str(error)) from None  # which IPython shows in one line

    ask.__doc__ = USAGE
    ipython.register_magic_function(ask, "cell", "ask")


USAGE = """%%ask [-o NAME] [--state TEXT] [--timeout SECONDS] PICTURE...

Asks the questions of the cell, one a line, about the pictures: paths, URLs, or variables. The answers are the cell's
result, and are kept as NAME. It asks the notebook's `client`, where there is a photocall.Client of this name."""


def asked(line: str, cell: str, names: dict[str, Any]) -> Job:
    """Ask what a cell says; `names` are the notebook's variables. Raises ClientError, OSError and ValueError."""
    options = _parser().parse_args(shlex.split(line))
    pictures = [_picture(word, names) for word in options.pictures]
    questions = questions_of(cell)
    found = names.get("client")
    client = found if isinstance(found, Client) else Client()
    live = Live()
    try:
        images = None if not pictures else pictures[0] if len(pictures) == 1 else pictures
        job = client.ask(images, questions, state=options.state, timeout_s=options.timeout, on_progress=live)
    finally:
        live.clear()
        if client is not found:
            client.close()
    if options.o is not None:
        names[options.o] = job
    return job


def _picture(word: str, names: Mapping[str, Any]) -> Any:
    return names[word] if word.isidentifier() and word in names and not Path(word).exists() else word


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; usage: {USAGE.partition(chr(10))[0]}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%ask", add_help=False)
    parser.add_argument("-o", metavar="NAME")
    parser.add_argument("--state")
    parser.add_argument("--timeout", type=float)
    parser.add_argument("pictures", nargs="*")
    return parser
