"""Packages that only some callers have: imported when they are needed, and named when they lack.

Nothing of the client imports Pillow, numpy, pandas, pyarrow, tqdm or IPython otherwise.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from photocall.client.errors import MissingPackage

_DISTRIBUTIONS = {"PIL": "pillow", "IPython": "ipython"}  # where pip has another name than Python


def needed(module: str, purpose: str) -> Any:
    """The module. Raises MissingPackage, which says what it was wanted for and what to install."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # it is there, and lacks something itself
        raise MissingPackage(_DISTRIBUTIONS.get(package, package), purpose) from None


def installed(package: str) -> bool:
    """Whether it is there, without importing it."""
    return importlib.util.find_spec(package) is not None
