"""`photocall settings`: every setting as a table."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    """Nothing stands behind it."""


def run_settings(options: Namespace) -> int:
    """Print docs/settings.md's table."""
    from photocall.settings import table

    sys.stdout.write(table())
    return 0
