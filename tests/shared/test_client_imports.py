"""What importing costs: a service that imports photocall has no client, and the client no heavy package."""

from __future__ import annotations

import subprocess
import sys

import pytest

import photocall
from photocall import client
from photocall.client import MissingPackage
from photocall.client.packages import installed, needed

HEAVY = ("PIL", "numpy", "pandas", "pyarrow", "IPython", "tqdm", "torch", "starlette")


def imported_by(statements: str) -> set[str]:
    script = f"import sys\n{statements}\nprint(*(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_service_has_nothing_of_the_client() -> None:
    assert "httpx" not in imported_by("import photocall, photocall.records, photocall.settings; dir(photocall)")


def test_the_client_has_no_heavy_package() -> None:
    found = imported_by("import photocall; photocall.Client('http://127.0.0.1:1').close()")
    assert "httpx" in found
    assert found.isdisjoint(HEAVY)


def test_every_name_that_is_promised_is_there() -> None:
    for name in photocall._CLIENT:
        assert getattr(photocall, name) is getattr(client, name)
    assert {"Client", "choice"} <= set(dir(photocall))
    with pytest.raises(AttributeError, match="Klient"):
        _ = photocall.Klient  # type: ignore[attr-defined]


def test_without_httpx_it_says_what_to_install() -> None:
    script = "import sys\nsys.modules['httpx'] = None\nimport photocall\nphotocall.Client"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("photocall.Client needs the extra `client`: pip install 'photocall[client]'")


def test_a_package_that_lacks_is_named() -> None:
    with pytest.raises(MissingPackage, match="a table needs nothing_like_it, which is not installed: pip install"):
        needed("nothing_like_it.frames", "a table")
    assert isinstance(MissingPackage("x", "y"), ImportError)
    assert needed("json", "x").loads("1") == 1
    assert (installed("json"), installed("nothing_like_it")) == (True, False)
