"""`photocall settings`: every setting as a table."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace

from photocall.cli.output import add_json, print_json


def add_arguments(parser: ArgumentParser) -> None:
    """What may stand behind `photocall settings`."""
    add_json(parser, "one JSON object a line, with the value that is set here")


def run_settings(options: Namespace) -> int:
    """0: docs/settings.md's table is printed."""
    from photocall.settings import described, table

    if options.json:
        for setting in described(os.environ):
            print_json(setting)
    else:
        sys.stdout.write(table())
    return 0
