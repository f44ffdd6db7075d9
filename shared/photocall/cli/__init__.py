"""The `photocall` command: parses and calls. Reaches prep and the engine as subprocesses only."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from photocall.cli import errors
from photocall.cli.commands import COMMANDS
from photocall.cli.parser import parser_for


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status. Raises SystemExit for arguments that cannot be taken, and after `--help`."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    name = given[0] if given else ""
    try:
        options = parser_for(given).parse_args(given)
        [command] = [each for each in COMMANDS if each.name == options.command]
        name = " ".join(filter(None, (command.name, getattr(options, "action", None))))
        status = command.run(options)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        return errors.told(name, error)
    return status
