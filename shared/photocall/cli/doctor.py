"""`photocall doctor`: whether photocall can work here, a line for each thing that it needs, with what to do."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from photocall.cli import machine_checks, service_checks
from photocall.cli.checks import Check, Finding, Machine, failure
from photocall.cli.errors import FAILED
from photocall.cli.output import Progress, add_json, print_json, shown
from photocall.settings import SettingsError

CHECKS: dict[str, Check] = {
    "settings": service_checks.settings,
    "packages": machine_checks.packages,
    "processor": machine_checks.processor,
    "gpu": machine_checks.gpu,
    "memory": machine_checks.memory,
    "disk": machine_checks.disk,
    "shm": machine_checks.shared_memory,
    "port": machine_checks.port,
    "redis": service_checks.store,
    "model": service_checks.model,
    "keys": service_checks.keys,
    "server": service_checks.server,
}


def add_arguments(parser: ArgumentParser) -> None:
    """What may stand behind `photocall doctor`."""
    told = f"only these of {', '.join(CHECKS)}"
    parser.add_argument("--only", type=_names, default=list(CHECKS), metavar="A,B", help=told)
    add_json(parser)


def run_doctor(options: Namespace) -> int:
    """0 when nothing fails."""
    return examine(Machine(os.environ), options.only, options.json)


def examine(machine: Machine, names: list[str], as_json: bool = False) -> int:
    """Make the checks, print what each finds, and say whether all is well."""
    failed = False
    with Progress() as progress:
        for name in names:
            progress.show(f"looking at {name}")
            found = look(CHECKS[name], machine)
            progress.clear()
            failed = failed or found.state == "fail"
            if as_json:
                print_json({"check": name, "state": found.state, "what": found.what, "remedy": found.remedy or None})
            else:
                remedy = f": {found.remedy}" if found.remedy else ""
                print(f"{found.state:<4}  {name:<9}  {shown(found.what + remedy)}", flush=True)
    return FAILED if failed else 0


def look(check: Check, machine: Machine) -> Finding:
    """What a check finds. One that cannot be made is a finding, too: it does not hide the others."""
    try:
        return check(machine)
    except SettingsError as error:
        return failure(str(error), "correct it; `photocall settings` says what it is")
    except (OSError, ValueError) as error:
        return failure(f"cannot be looked at: {error}", "see to that first")


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in CHECKS:
            raise ArgumentTypeError(f"{name!r} is no check: they are {', '.join(CHECKS)}")
    return names
