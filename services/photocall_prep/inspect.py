"""`photocall inspect FILE...`: what the model would see of picture files, without a server.

Limits, checkpoint, budget, background and fidelity are those of a prep worker with the same settings. Status 0 when
every file can be prepared, 1 when one cannot, 2 for arguments or settings that cannot be used.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from photocall.cli.inspect import add_arguments
from photocall.grid import ProcessorConfig, ProcessorConfigError
from photocall.settings import PrepSettings, SettingsError
from photocall.views import AUTO, Budget, View
from photocall_prep.prepare import ImagePrep, PreparedImage
from photocall_prep.refusal import ImageRefused
from photocall_prep.show import png, report

_PROGRAM = "photocall inspect"


class _Unusable(Exception):
    """Arguments or settings that cannot be used."""


@dataclass(frozen=True, slots=True)
class Inspector:
    """Prepares files as a worker would."""

    prep: ImagePrep
    budget: Budget
    view: View
    max_bytes: int

    def look(self, file: Path) -> tuple[PreparedImage, dict[str, Any]]:
        """The picture, and the report of it. Raises ImageRefused, OSError."""
        if file.stat().st_size > self.max_bytes:
            reason = f"{file.stat().st_size} bytes; at most {self.max_bytes} are accepted"
            raise ImageRefused("image_too_large", reason)
        data = file.read_bytes()
        started = time.perf_counter()
        prepared = self.prep.prepare(data, self.budget, self.view)
        took_ms = 1000 * (time.perf_counter() - started)
        return prepared, {**report(data, prepared, took_ms), "patch_bytes": len(prepared.patches)}


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Inspect, print, and say how it went."""
    options = _parser().parse_args(arguments)
    warnings.filterwarnings("ignore", category=UserWarning, module="PIL")  # on damaged metadata; damage is handled
    try:
        inspector = _inspector(options, environ)
        seen = _Seen(options.seen, len(options.files))
    except (_Unusable, SettingsError, ProcessorConfigError) as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return 2
    status = 0
    for file in options.files:
        try:
            prepared, found = inspector.look(file)
            seen.write(file, prepared)
        except (ImageRefused, OSError) as error:
            status = 1
            code, reason = _why(error)
            if options.json:
                print(json.dumps({"file": str(file), "error": {"code": code, "message": reason}}))
            print(f"{_PROGRAM}: {file}: {reason}", file=sys.stderr)
            continue
        print(json.dumps({"file": str(file), **found}) if options.json else described(str(file), found))
    return status


def described(file: str, found: dict[str, Any]) -> str:
    """A report as a person reads it."""
    frame = "" if found["frames"] in (None, 1) and not found["frame"] else f", number {found['frame']} (from 0)"
    if found["frames"] not in (None, 1):
        frame += f" of {found['frames']}"
    upright = "" if found["orientation"] == 1 else f", {_by(found['size_upright'])} once upright"
    rows, columns = found["grid"]
    return "\n".join(
        (
            f"{file}: {found['decoder']} of {found['bytes']:,} bytes{frame}",
            f"  stored   {_by(found['size_in'])} ({found['mode']}), orientation {found['orientation']}{upright}",
            f"  decoded  {_by(found['size_decoded'])} ({found['fidelity']}), colours {found['colour']}",
            f"  seen     {_by(found['size_out'])}, {rows}x{columns} patches, {found['patch_bytes']:,} bytes",
            f"  tokens   {found['soft_tokens']} of {found['budget']} ({found['budget_why']})",
            f"  took     {found['ms']} ms",
        )
    )


class _Seen:
    """Where the pictures go that the model sees; nowhere unless asked for."""

    def __init__(self, out: Path | None, num_files: int) -> None:
        self._out = out
        self._is_folder = out is not None and (num_files > 1 or out.is_dir())
        if out is not None and self._is_folder:
            try:
                out.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _Unusable(f"--seen {out}: a folder is needed for {num_files} files: {error.strerror}") from error

    def write(self, file: Path, prepared: PreparedImage) -> None:
        if self._out is not None:
            target = self._out / f"{file.name}.png" if self._is_folder else self._out
            target.write_bytes(png(prepared))


def _inspector(options: argparse.Namespace, environ: Mapping[str, str]) -> Inspector:
    settings = PrepSettings.from_env(environ)
    config = ProcessorConfig.read(settings.model)
    budget: Budget = options.budget or settings.budget or config.budget
    if budget != AUTO and budget not in config.allowed:
        raise _Unusable(f"a budget of {budget}: {settings.model} has auto, {', '.join(map(str, config.allowed))}")
    fidelity = options.fidelity or settings.fidelity
    prep = ImagePrep(settings, fidelity, settings.background, config.allowed)
    frame = options.frame if options.page is None else options.page - 1
    view = View(frame or None, options.dpi, options.background)
    return Inspector(prep, budget, view, settings.max_image_bytes)


def _why(error: ImageRefused | OSError) -> tuple[str, str]:
    if isinstance(error, ImageRefused):
        return error.code, error.reason
    return "unreadable", error.strerror or str(error)


def _by(size: Sequence[int]) -> str:
    return f"{size[0]}x{size[1]}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_PROGRAM, description="What the model would see of picture files.")
    add_arguments(parser)
    return parser
