"""One whole service on models/mini for every test here that only asks it: each start took ten seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ops.running import running


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Where it is. Others have asked it too: nobody may count on an empty list, or on what it remembers."""
    with running() as where:
        yield where
