"""The command line as argparse sees it: one parser for each command of the table, and mistakes said in one line."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from typing import NoReturn

from photocall import __version__
from photocall.cli.commands import COMMANDS, Command

PROGRAM = "photocall"
EPILOG = (
    f"`{PROGRAM} COMMAND --help` says more. Exit status: 0 done, 1 something did not succeed, 2 not possible as asked."
)


class Parser(ArgumentParser):
    """One that says a mistake in one line, with what to do."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (`{self.prog} --help` says what it takes)\n")


def parser(wanted: Iterable[Command] = COMMANDS) -> Parser:
    """The parser of the whole line. Only the commands that are `wanted` know their arguments; nothing else is imported.

    `options.command` is the name of the chosen one.
    """
    whole = Parser(prog=PROGRAM, description="A self-hosted decision server for pictures.", epilog=EPILOG)
    whole.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = list(wanted)
    for command in COMMANDS:
        its_own = commands.add_parser(command.name, help=command.help, description=f"{_sentence(command.help)}.")
        if command in wanted:
            command.add_arguments(its_own)
    return whole


def parser_for(arguments: list[str]) -> Parser:
    """The parser for one command line, as quick to make as may be."""
    named = arguments[0] if arguments else ""
    return parser([command for command in COMMANDS if command.name == named])


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def warn(message: str) -> None:
    """One line on standard error."""
    print(message, file=sys.stderr, flush=True)
