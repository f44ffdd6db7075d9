"""`photocall models`: the names that a request may ask for."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from photocall.cli.output import add_json, print_json, print_table
from photocall.cli.server import add_server, connected


def add_arguments(parser: ArgumentParser) -> None:
    """What may stand behind `photocall models`."""
    add_json(parser)
    add_server(parser)


def run_models(options: Namespace) -> int:
    """0 when done."""
    with connected(options) as server:
        models = server.call("GET", "/v1/models").body["models"]
    if options.json:
        for model in models:
            print_json(model)
    else:
        print_table(("NAME", "WHAT IT IS"), ((model["name"], model["description"]) for model in models))
    return 0
