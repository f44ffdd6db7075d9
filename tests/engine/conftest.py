from __future__ import annotations

import pytest

from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import write_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    """Single characters and bytes as tokens."""
    return ChatTokenizer(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))
