"""docs/cli.md's reference of the `photocall` command, from the parsers that read its arguments."""

from __future__ import annotations

from argparse import SUPPRESS, Action, ArgumentParser, _HelpAction, _SubParsersAction
from collections.abc import Iterator

from photocall.cli.commands import COMMANDS
from photocall.cli.parser import parser


def reference() -> str:
    """Every command with its actions, arguments and options."""
    lines = ["| command | what it does |", "|---|---|"]
    lines += [f"| [`{command.name}`](#photocall-{command.name}) | {command.help} |" for command in COMMANDS]
    for name, each, words in commands(parser()):
        lines += ["", f"## photocall {name}" if " " not in name else f"### photocall {name}", "", f"{words}.", ""]
        lines += section(each)
    return "\n".join(lines).rstrip()


def commands(of: ArgumentParser, before: str = "") -> Iterator[tuple[str, ArgumentParser, str]]:
    """Every command and what is below it: its words, its parser, what it is for."""
    for action in of._actions:
        if isinstance(action, _SubParsersAction):
            said = {each.dest: each.help or "" for each in action._choices_actions}
            for name, each in action.choices.items():
                words = said[name]
                yield f"{before}{name}", each, words[:1].upper() + words[1:]
                yield from commands(each, f"{before}{name} ")


def section(of: ArgumentParser) -> list[str]:
    """A table of what a command takes; nothing for one that takes nothing."""
    rows = [row(of, action) for action in of._actions if shown(action)]
    return ["| | |", "|---|---|", *rows] if rows else []


def shown(action: Action) -> bool:
    """Not what every command has, and not its actions, which have sections of their own."""
    return not isinstance(action, _HelpAction | _SubParsersAction) and action.help is not SUPPRESS


def row(of: ArgumentParser, action: Action) -> str:
    """An argument or an option, with what it may be given."""
    given = action.metavar if isinstance(action.metavar, str) else "|".join(map(str, action.choices or ()))
    if action.option_strings:
        given = "" if action.nargs == 0 else f" {given or action.dest.upper()}"
        name = ", ".join(action.option_strings) + given
    else:
        many = {"+": "...", "*": "... (or none)", "?": " (or none)"}.get(str(action.nargs), "")
        name = f"{given or action.dest}{many}"
    words = of._get_formatter()._expand_help(action) if action.help else ""
    needed = "; needed" if action.option_strings and action.required else ""
    return f"| `{name}` | {words}{needed} |".replace("a|b", "a\\|b")
