"""Completion: the script for bash in bash itself; those for zsh and fish where these shells are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from photocall.cli import main
from photocall.cli.commands import COMMANDS
from photocall.cli.completion import places


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Path:
    shell = str(request.param)
    assert main(["completion", shell]) == 0
    file = tmp_path / shell
    file.write_text(capsys.readouterr().out)
    return file


def completed(script: Path, *words: str) -> set[str]:
    """What bash would offer for the last of the words."""
    line = " ".join(f"'{word}'" for word in ("photocall", *words))
    asked = (
        f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _photocall; printf '%s\\n' ${{COMPREPLY[@]}}"
    )
    found = subprocess.run(["bash", "--norc", "-euc", asked], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes(script: Path) -> None:
    assert completed(script, "") == {"--version", "--help", *(command.name for command in COMMANDS)}
    assert completed(script, "ba") == {"batch"}
    assert completed(script, "batch", "") == {"run", "ls", "get", "cancel", "retry-failed", "--help"}
    assert completed(script, "batch", "run", "-i", "x", "--en") == {"--endpoint"}
    assert completed(script, "batch", "run", "--endpoint", "/v1/s") == {"/v1/systemone"}
    assert completed(script, "jobs", "ls", "--status", "q") == {"queued"}
    assert completed(script, "keys", "revoke", "--") == {"--help", "--json"}
    assert completed(script, "completion", "f") == {"fish"}
    assert completed(script, "ask", "batch", "--toge") == {"--together"}, "a picture may have a command's name"


def test_every_option_of_every_command_is_in_the_table() -> None:
    found = {place.words: place for place in places()}
    assert set(found[()].commands) == {command.name for command in COMMANDS}
    assert {"--question", "-q", "--choices", "--json", "--url"} <= set(found["ask",].options)
    assert found["inspect",].choices["--fidelity"] == ("fast", "exact")
    assert not [words for place in found.values() for words in place.options.values() if "%(" in words]


CHECKS = {
    "zsh": "source {script}; whence -w _photocall",
    "fish": "source {script}; complete -C 'photocall batch re'",
}


@pytest.mark.parametrize(("script", "shell"), [(name, name) for name in CHECKS], indirect=["script"])
def test_other_shells_take_it(script: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    asked = CHECKS[shell].format(script=script)
    found = subprocess.run([shell, "-c", asked], capture_output=True, text=True, check=True)
    assert found.stderr == ""
    assert "function" in found.stdout or "retry-failed" in found.stdout
