"""`photocall keys create|list|revoke`: the file that PHOTOCALL_API_KEYS names. Gateways notice a change in a second."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from photocall.api_keys import SCOPES, KeyFile, KeyFileError

VARIABLE = "PHOTOCALL_API_KEYS"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may stand behind `photocall keys`."""
    parser.add_argument("--file", type=Path, metavar="FILE", help=f"the file of keys ({VARIABLE})")
    actions = parser.add_subparsers(dest="action", required=True)
    create = actions.add_parser("create", help="make a key and print it, once")
    create.add_argument("id", metavar="ID", help="whose it is; what is asked with it belongs to this id")
    create.add_argument("--scopes", default=",".join(SCOPES), metavar="S,S", help="of " + ", ".join(SCOPES))
    actions.add_parser("list", help="print ids and scopes")
    revoke = actions.add_parser("revoke", help="remove a key")
    revoke.add_argument("id", metavar="ID")


def run_keys(options: argparse.Namespace) -> int:
    """0 when done, 2 when it cannot be."""
    named = options.file or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if named is None:
        print(f"photocall keys: name the file with --file or {VARIABLE}", file=sys.stderr)
        return 2
    file = KeyFile(named.expanduser())
    try:
        if options.action == "create":
            print(file.create(options.id, options.scopes.split(",")))
        elif options.action == "revoke":
            file.revoke(options.id)
        else:
            for key in file.read():
                print(f"{key.id} {','.join(scope for scope in SCOPES if scope in key.scopes)}")
    except (KeyFileError, OSError) as error:
        print(f"photocall keys: {file.path}: {error}", file=sys.stderr)
        return 2
    return 0
