"""The table of commands: what stands behind `photocall`, from which come its help, its completion and docs/cli.md."""

from __future__ import annotations

import importlib
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True, slots=True)
class Command:
    """One word behind `photocall`, and what it is for in a line.

    `photocall.cli.NAME` has `add_arguments(parser)` and `run_NAME(options)`, which gives the exit status or raises what
    errors.py knows. It is imported when it is needed: a module that is slow to import slows its own command only.
    """

    name: str
    help: str

    @property
    def module(self) -> ModuleType:
        return importlib.import_module(f"photocall.cli.{self.name}")

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What may stand behind it."""
        self.module.add_arguments(parser)

    def run(self, options: Namespace) -> int:
        """Its exit status."""
        return int(getattr(self.module, f"run_{self.name}")(options))


COMMANDS = (
    Command("up", "start everything on this machine and stay until Ctrl-C or SIGTERM"),
    Command("ask", "ask pictures questions, and print the answers with their probabilities"),
    Command("batch", "ask many rows at once, and write the answers to a file"),
    Command("jobs", "list, follow and cancel jobs"),
    Command("models", "list the names that the served model answers to"),
    Command("inspect", "say what the model would see of picture files"),
    Command("calibrate", "fit a calibration to labelled answers"),
    Command("review", "write a queue of a batch's answers for people to look at"),
    Command("replay", "ask again what a job asked, and compare the answers bit by bit"),
    Command("drift", "measure how far answers about your own pictures move, and by what"),
    Command("verify", "compare the engine with transformers on a checkpoint of your own"),
    Command("keys", "make, list and revoke API keys"),
    Command("doctor", "look at everything that photocall needs here, and say what to do"),
    Command("bench", "measure a running server: pictures a second and latencies"),
    Command("completion", "print a script that completes this command in a shell"),
    Command("settings", "print every setting as a table"),
)
