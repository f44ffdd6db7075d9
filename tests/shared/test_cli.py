"""The command line as a whole: quick to start, mistakes in one line, statuses, pipes that close."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from photocall.cli import errors, main, up
from photocall.cli.asked import questions_of, state_of, words_of
from photocall.cli.commands import COMMANDS, Command
from photocall.cli.completion import places
from photocall.cli.errors import Unable
from photocall.cli.output import Progress, moment, print_table
from photocall.cli.parser import parser
from photocall.client import RequestRefused

SLOW = ("asyncio", "httpx", "redis", "json", "urllib.request", "photocall.settings", "photocall.client")


def photocall(*arguments: str, stdin: bytes = b"", **environ: str) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, without the settings of this one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PHOTOCALL_")}
    command = [sys.executable, "-m", "photocall.cli", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, env=kept | environ, check=False, timeout=60)


def test_help_names_every_command_and_imports_none() -> None:
    """It took half a second when every command was imported first."""
    script = (
        "import sys\nfrom photocall.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n"
        "    print(*sys.modules, file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert [command.name for command in COMMANDS] == re.findall(r"^    (\w+)", found.stdout, re.MULTILINE)
    assert not set(SLOW) & set(found.stderr.split())


def test_every_command_has_its_arguments_and_its_run() -> None:
    whole = parser()
    for command in COMMANDS:
        assert callable(getattr(command.module, f"run_{command.name}"))
        assert command.help[0].islower()
        with pytest.raises(SystemExit) as left:
            whole.parse_args([command.name, "--help"])
        assert left.value.code == 0


def test_whatever_prints_results_prints_them_as_json_too() -> None:
    """`completion` prints a script: that is its result."""
    without = [
        place.words for place in places() if place.words and not place.commands and "--json" not in place.options
    ]
    assert [words for words in without if words != ("completion",)] == []


@contextlib.contextmanager
def gateway(statuses: list[int]) -> Iterator[str]:
    """A server whose `/readyz` answers with these, one after the other."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses.pop(0))
            self.end_headers()

        def log_message(self, *words: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_up_says_where_once_it_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    with gateway([503, 200, 200]) as address:
        up._announce(address, threading.Event(), as_json=True)
        [line] = capsys.readouterr().out.splitlines()
        told = json.loads(line)
        assert told == {"address": address, "ready_after_s": told["ready_after_s"]}
        assert told["ready_after_s"] >= up.READY_POLL_S, "it was not ready at first"
        up._announce(address, threading.Event(), as_json=False)
        assert capsys.readouterr().out.startswith(f"photocall is ready at {address} after 0.")


MISTAKES = {
    "an unknown command": (["frob"], "invalid choice: 'frob'"),
    "no command": ([], "required: COMMAND"),
    "an argument missing": (["review", "--below"], "expected one argument"),
    "a file that is not there": (["ask", "nofile.png"], "no question: ask one with -q"),
    "a batch that is not there": (["batch", "run", "-i", "/nowhere", "-o", "x"], "/nowhere: there is no such file"),
    "an option before its question": (["ask", "a.png", "--choices", "a,b"], "put it behind its -q"),
    "two kinds of question": (["ask", "a.png", "-q", "?", "--number", "--text"], "leave one of them out"),
    "half a question": (["ask", "a.png", "-q", "Which? -> red"], "expected `red, green`"),
    "an empty question": (["ask", "a.png", "-q", " "], "-q is empty"),
    "nothing to ask about": (["ask", "-q", "?"], "name a picture"),
    "standard input twice": (["ask", "-", "-", "-q", "?"], "write `-` once"),
    "a bad URL": (["models", "--url", "ftp://x"], "PHOTOCALL_URL='ftp://x': expected http"),
    "nobody listens": (["models", "--url", "http://127.0.0.1:1"], "start one with `photocall up`"),
    "no such host": (["jobs", "ls", "--url", "http://nowhere.invalid"], "no server answers at http://nowhere.invalid"),
    "a key file that is not named": (["keys", "list"], "name the file with --file or PHOTOCALL_API_KEYS"),
    "results that are not there": (["review", "/nowhere"], "/nowhere"),
    "a bad port": (["up", "--port", "99999"], "PHOTOCALL_PORT='99999'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_status_2(
    mistake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PHOTOCALL_")]:
        monkeypatch.delenv(name)
    arguments, words = MISTAKES[mistake]
    try:
        status: object = main(arguments)
    except SystemExit as left:
        status = left.code
    out, err = capsys.readouterr()
    assert status == 2
    assert out == ""
    assert words in err
    assert err.startswith("photocall")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [], "a mistake leaves nothing behind"


@pytest.mark.parametrize("name", sorted(errors.MISTAKES))
def test_a_mistake_that_is_known_by_name_is_there(name: str) -> None:
    """A class that moves would turn its line into a traceback."""
    module, _, cls = name.rpartition(".")
    found = getattr(importlib.import_module(module), cls)
    assert f"{found.__module__}.{found.__name__}" == name
    assert issubclass(found, Exception)


def test_what_a_server_refuses_is_said_with_what_to_do() -> None:
    def said(status: int, after_s: float | None = None, **problem: object) -> str:
        found = errors.explained(RequestRefused(status, problem, False, after_s))
        assert found is not None
        assert found[0] == 2
        return found[1]

    assert said(401, detail="No key.") == (
        "No key: set PHOTOCALL_API_KEY to a key of this server (`photocall keys create ID` makes one)"
    )
    assert said(429, 7.0, detail="too many calls") == "too many calls: try again in 7 s"
    assert "call with a key that has the scope" in said(403, detail="missing scope batch")
    assert said(422, detail="Expected a string", loc=["questions", "q1"]) == "Expected a string (at questions.q1)"
    assert "run the same command again" in said(0, detail="no answer")
    assert "give the server more room" in said(507, detail="the store is full")


def test_a_defect_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing hides a traceback that somebody has to see."""

    class Broken:
        def __init__(self, fault: type[BaseException]) -> None:
            self._fault = fault

        def add_arguments(self, parser: object) -> None: ...

        def run_broken(self, options: Namespace) -> int:
            raise self._fault("broken")

    monkeypatch.setattr("photocall.cli.COMMANDS", commands := (Command("broken", "break"),))
    monkeypatch.setattr("photocall.cli.parser.COMMANDS", commands)
    for fault, status in ((KeyboardInterrupt, 130), (Unable, 2), (BrokenPipeError, 1)):
        monkeypatch.setitem(sys.modules, "photocall.cli.broken", Broken(fault))
        assert main(["broken"]) == status
    monkeypatch.setitem(sys.modules, "photocall.cli.broken", Broken(RuntimeError))
    with pytest.raises(RuntimeError, match="broken"):
        main(["broken"])


def test_a_full_disk_and_a_closed_pipe() -> None:
    """Python would try again at its end, and say so in its own words with status 120."""
    command = [sys.executable, "-m", "photocall.cli", "settings"]
    with Path("/dev/full").open("wb") as full:
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr == ("photocall settings: the disk is full: free some room, and run the same command again\n")
    reading, writing = os.pipe()
    os.close(reading)
    found = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (found.returncode, found.stderr) == (1, "")


def test_a_package_that_is_missing_is_named() -> None:
    script = (
        "import sys\nsys.modules['httpx'] = None\nfrom photocall.cli import main\n"
        "sys.exit(main(['models', '--url', 'http://127.0.0.1:1']))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert "httpx" in found.stderr
    assert "pip install" in found.stderr


def test_questions_of_a_line() -> None:
    words = "a.png -q Which? --choices red,blue --name colour -q Damaged? -q How? --min 0 --unit kg --order auto"
    options = parser().parse_args(["ask", *words.split(), "-q", "Says?", "--one-of", "A, B", "--abstain"])
    assert questions_of(options) == {
        "colour": {"type": "choice", "instructions": "Which?", "criteria": ["red", "blue"]},
        "q2": {"type": "noul", "instructions": "Damaged?"},
        "q3": {"type": "number", "instructions": "How?", "min": 0.0, "unit": "kg", "order": "auto"},
        "q4": {"type": "text", "instructions": "Says?", "one_of": ["A", "B"], "abstain": True},
    }
    [short] = questions_of(parser().parse_args(["ask", "-q", "How full? -> empty < half < full"])).values()
    assert short == {"type": "score", "instructions": "How full?", "criteria": ["empty", "half", "full"]}
    options.question[1]["name"] = "colour"
    with pytest.raises(Unable, match="two questions are named colour"):
        questions_of(options)


def test_questions_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "questions.json"
    file.write_text('{"wet": {"type": "noul", "instructions": "Is it wet?"}}')
    options = parser().parse_args(["ask", "a.png", "--questions", str(file), "-q", "Dry?"])
    assert list(questions_of(options)) == ["wet", "q1"]
    for bad in ("{", "[]", "{}"):
        file.write_text(bad)
        with pytest.raises(Unable, match="correct it"):
            questions_of(options)


def test_every_picture_stands_in_the_state() -> None:
    said = parser().parse_args(["ask", "--state", "Before [image 2], after"])
    assert state_of(said, 2) == "[image 1]\nBefore [image 2], after"
    assert state_of(parser().parse_args(["ask"]), 1) == "[image 1]"


def test_answers_in_words() -> None:
    assert words_of({"type": "noul", "noul": 0.25}) == ("no", 0.75)
    assert words_of({"type": "choice", "choice": "b", "probabilities": {"a": 0.25, "b": 0.75}}) == ("b", 0.75)
    score = {"type": "score", "legend": {"0": "low", "1": "high"}, "probabilities": {"0": 0.5, "1": 0.5}}
    assert words_of(score) == ("low", 0.5)
    assert words_of({"type": "number", "number": 3.0, "confidence": 0.5}) == ("3", 0.5)
    assert words_of({"type": "text", "text": "EXIT"}) == ("EXIT", None)
    assert words_of({"type": "not_asked", "message": "it hangs on q1"}) == ("(not asked: it hangs on q1)", None)


def test_others_words_move_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("A", "B"), [("\x1b[2Jred\n", None), ("x", 7)])
    assert capsys.readouterr().out == "A         B\n�[2Jred�  -\nx         7\n"
    assert moment(0.0) == "1970-01-01 00:00:00Z"


def test_progress_is_for_terminals(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with Progress() as progress:
        progress.show("half")
    assert capsys.readouterr() == ("", "")
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress() as progress:
        progress.show("half")
    assert terminal.getvalue() == "\r\x1b[Khalf\r\x1b[K"
