"""Which room may import what: walked in the source, and proved by importing each room with the rest forbidden."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = {
    "photocall": ROOT / "shared" / "photocall",
    "photocall_gateway": ROOT / "services" / "photocall_gateway",
    "photocall_prep": ROOT / "services" / "photocall_prep",
    "photocall_engine": ROOT / "services" / "photocall_engine",
}
FORBIDDEN = {
    "photocall": {"torch", "PIL", "starlette", "photocall_gateway", "photocall_prep", "photocall_engine"},
    "photocall_gateway": {"torch", "PIL", "photocall_prep", "photocall_engine"},
    "photocall_prep": {"torch", "starlette", "photocall_gateway", "photocall_engine"},
    "photocall_engine": {"PIL", "starlette", "rq", "photocall_gateway", "photocall_prep"},
}
POLICY = [
    "box_reader",
    "detokenizer",
    "greedy",
    "held",
    "room",
    "session",
    "transcript",
    "engine",
    "sequence",
    "scheduler",
    "pages",
    "window",
    "prefix_cache",
    "soft_cache",
    "readout",
    "calibration",
    "fake_runner",
    "prompt",
    "provenance",
    "checkpoint_hash",
    "tokenizer",
    "rows",
    "runner",
    "composer",
    "digits",
    "edges",
    "limits",
    "number_tree",
    "steps",
    "waiting",
]
EXECUTORS = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}


def sources(room: str) -> list[Path]:
    return sorted(ROOMS[room].rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Top-level package of every import in a file, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("room", ROOMS)
def test_no_file_of_a_room_imports_what_it_must_not(room: str) -> None:
    assert len(sources(room)) > 3
    broken = {str(p.relative_to(ROOT)): bad for p in sources(room) if (bad := set(imports(p)) & FORBIDDEN[room])}
    assert broken == {}


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_on_the_wire_can_be_pickled(room: str) -> None:
    assert {str(p) for p in sources(room) if set(imports(p)) & EXECUTORS} == set()


@pytest.mark.parametrize("name", POLICY)
def test_policy_does_not_import_torch(name: str) -> None:
    path = ROOMS["photocall_engine"] / f"{name}.py"
    assert "torch" not in set(imports(path))


def test_only_settings_reads_the_environment() -> None:
    def reads_environment(path: Path) -> bool:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        return any(isinstance(n, ast.Attribute) and n.attr in {"environ", "getenv", "environb"} for n in nodes)

    readers = {str(p.relative_to(ROOT)) for room in ROOMS for p in sources(room) if reads_environment(p)}
    entry_points = {r for r in readers if r.endswith("__main__.py") or "/cli/" in r}  # they pass os.environ on, once
    assert readers - entry_points <= {"shared/photocall/settings.py"}


def modules(room: str) -> list[str]:
    base = ROOMS[room].parent
    names = [".".join(p.relative_to(base).with_suffix("").parts).removesuffix(".__init__") for p in sources(room)]
    return [name for name in names if not name.endswith("__main__")]


@pytest.mark.parametrize("room", ["photocall", "photocall_gateway", "photocall_prep"])
def test_a_room_can_be_imported_where_the_forbidden_packages_are_missing(room: str) -> None:
    script = f"""
import importlib, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(FORBIDDEN[room])!r}:
            raise ImportError("forbidden in this room: " + name)
sys.meta_path.insert(0, Refuse())
for name in {modules(room)!r}:
    importlib.import_module(name)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert found.returncode == 0, found.stderr


def test_the_walk_sees_imports_inside_functions(tmp_path: Path) -> None:
    path = tmp_path / "sly.py"
    path.write_text("def f():\n    from torch.nn import Linear\n    import PIL.Image\n")
    assert set(imports(path)) == {"torch", "PIL"}
