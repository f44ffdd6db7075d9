"""`photocall completion SHELL`: a script for bash, zsh or fish, made of the same table and parsers as the help."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, _HelpAction, _SubParsersAction
from collections.abc import Iterator
from dataclasses import dataclass

from photocall.cli.parser import PROGRAM, parser

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True, slots=True)
class Place:
    """What may follow the words of a command: further commands, options, and what an option may be given."""

    words: tuple[str, ...]
    commands: dict[str, str]
    options: dict[str, str]
    choices: dict[str, tuple[str, ...]]


def add_arguments(parser: ArgumentParser) -> None:
    """What may stand behind `photocall completion`."""
    parser.add_argument("shell", choices=SHELLS, help="`source <(photocall completion bash)` in ~/.bashrc, for one")


def run_completion(options: Namespace) -> int:
    """Print the script."""
    found = list(places())
    sys.stdout.write({"bash": bash, "zsh": zsh, "fish": fish}[options.shell](found))
    return 0


def places(of: ArgumentParser | None = None, words: tuple[str, ...] = ()) -> Iterator[Place]:
    """Every command and what is below it, the program itself first."""
    of = of or parser()
    commands: dict[str, str] = {}
    options: dict[str, str] = {}
    choices: dict[str, tuple[str, ...]] = {}
    below: dict[str, ArgumentParser] = {}
    for action in of._actions:
        if isinstance(action, _SubParsersAction):
            commands = {each.dest: str(each.help) for each in action._choices_actions}
            below = dict(action.choices)
        elif action.option_strings and not isinstance(action, _HelpAction):
            for name in action.option_strings:
                options[name] = said(of, action.help)
                if action.choices:
                    choices[name] = tuple(map(str, action.choices))
        elif action.choices:
            commands |= dict.fromkeys(map(str, action.choices), "")
    yield Place(words, commands, {**options, "--help": "say what it takes"}, choices)
    for name, each in below.items():
        yield from places(each, (*words, name))


def said(of: ArgumentParser, words: str | None) -> str:
    """A help text with its defaults filled in is argparse's; here they are left out."""
    return (words or "").replace(" (%(default)s)", "").replace(" (%(default)g)", "")


def bash(found: list[Place]) -> str:
    """A function that knows which words come next, by the words before; files otherwise."""
    lines = [
        f"# {PROGRAM}: completion for bash",
        f"_{PROGRAM}() {{",
        '  local at="" word words="" last="${COMP_WORDS[COMP_CWORD-1]}"',
    ]
    lines += ["  COMPREPLY=()", '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do', '    case "$at $word" in']
    lines += [
        f'      "{_key(place.words[:-1])} {place.words[-1]}") at="{_key(place.words)}" ;;'
        for place in found
        if place.words
    ]
    lines += ["    esac", "  done", '  case "$at $last" in']
    for place in found:
        lines += [
            f'    "{_key(place.words)} {name}") words="{" ".join(may)}" ;;' for name, may in place.choices.items()
        ]
    lines += ['    *) case "$at" in']
    lines += [
        f'      "{_key(place.words)}") words="{" ".join([*place.commands, *place.options])}" ;;' for place in found
    ]
    lines += ["    esac ;;", "  esac", '  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))', "}"]
    return "\n".join([*lines, f"complete -o default -F _{PROGRAM} {PROGRAM}", ""])


def zsh(found: list[Place]) -> str:
    """The function for bash, which zsh runs as it is."""
    needed = "(( $+functions[compdef] )) || { autoload -U compinit && compinit }"
    return f"#compdef {PROGRAM}\n{needed}\nautoload -U +X bashcompinit && bashcompinit\n{bash(found)}"


def fish(found: list[Place]) -> str:
    """A line for each word, with the condition under which it may come next."""
    lines = [f"# {PROGRAM}: completion for fish"]
    for place in found:
        when = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in place.words)
        if place.commands:
            none_yet = f"not __fish_seen_subcommand_from {' '.join(place.commands)}"
            condition = _quoted("; and ".join(filter(None, (when, none_yet))))
            lines += [
                f"complete -c {PROGRAM} -n {condition} -f -a {name} -d {_quoted(words)}"
                for name, words in place.commands.items()
            ]
        for name, words in place.options.items():
            flag = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            given = f" -x -a {_quoted(' '.join(place.choices[name]))}" if name in place.choices else ""
            condition = f" -n {_quoted(when)}" if when else ""
            lines.append(f"complete -c {PROGRAM}{condition} {flag}{given} -d {_quoted(words)}")
    return "\n".join([*lines, ""])


def _key(words: tuple[str, ...]) -> str:
    return "/".join(words)


def _quoted(words: str) -> str:
    return "'" + words.replace("\\", "\\\\").replace("'", "\\'") + "'"
