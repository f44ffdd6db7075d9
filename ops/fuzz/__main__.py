"""`python -m ops.fuzz TARGET [libFuzzer options]`: fuzz one target with atheris, from its seeds, until it is stopped.

What it finds interesting goes to a directory of its own (`--found`, a temporary one by default); what fails is written
where libFuzzer's `-artifact_prefix` says. `python -m ops.fuzz TARGET FILE...` runs the target on files.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from ops.fuzz.seeds import directory

MAX_BYTES = 16_384
INSTRUMENTED = ["photocall", "photocall_gateway", "photocall_prep", "PIL", "python_multipart", "tarfile", "json"]


def main() -> None:
    """Ends with libFuzzer."""
    parser = argparse.ArgumentParser(prog="python -m ops.fuzz", description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--found", type=Path)
    known, rest = parser.parse_known_args()
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed: pip install atheris")
    with atheris.instrument_imports(include=INSTRUMENTED):
        from ops.fuzz.targets import TARGETS
    if known.target not in TARGETS:
        sys.exit(f"no such target: one of {', '.join(TARGETS)}")
    if rest and Path(rest[0]).exists():
        for name in rest:
            TARGETS[known.target](Path(name).read_bytes())
        return
    found = known.found or Path(tempfile.mkdtemp(prefix=f"photocall-fuzz-{known.target}-"))
    found.mkdir(parents=True, exist_ok=True)
    options = [sys.argv[0], f"-max_len={MAX_BYTES}", *rest, str(found), str(directory(known.target))]
    atheris.Setup(options, TARGETS[known.target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
