"""What the rooms share: messages, records, questions, settings. Imports no torch, pillow or starlette.

The client's names (`photocall.Client`, `photocall.choice`, ...) are here too, and imported when they are first used:
a service that imports this has nothing of the client.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from photocall.client import *  # noqa: F403

__version__ = "0.1.0"

_CLIENT = frozenset({
    "AccessRefused", "Answer", "Answers", "AsyncClient", "Batch", "BatchFailed", "BatchRun", "Box", "Busy",
    "Client", "ClientError", "Columns", "Event", "InvalidRequest", "Job", "JobFailed", "Live", "MissingPackage",
    "NoAnswer", "NotAnswered", "NotFound", "Picture", "RequestRefused", "Row", "Unreachable", "box", "choice",
    "load_ipython_extension", "number", "question_of", "questions_of", "score", "text", "to_arrow", "to_pandas",
    "to_rows", "yes_no",
})  # fmt: skip


if not TYPE_CHECKING:  # a checker sees the names themselves, and misses those that are not there

    def __getattr__(name: str) -> Any:
        if name not in _CLIENT:
            raise AttributeError(f"module 'photocall' has no attribute {name!r}")
        try:
            from photocall import client
        except ModuleNotFoundError as error:
            if error.name != "httpx":
                raise
            raise ImportError(f"photocall.{name} needs the extra `client`: pip install 'photocall[client]'") from None
        return getattr(client, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_CLIENT])
