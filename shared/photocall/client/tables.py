"""Answers as a table: a row for each job or row of a batch, a few columns for each question.

Of a question `q`: `q` is what was said (None where nothing was), `q_probability` (of yes, for yes or no),
`q_confidence`, to sort by, and `q_status`; of a number also `q_low` and `q_high`, its interval. `id` is the job's or
the row's, `error` the code of one without answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from photocall.client.answer import Answer, Box
from photocall.client.answers import Answers, NumberAnswer, YesNoAnswer
from photocall.client.errors import JobFailed
from photocall.client.packages import needed


class Answered(Protocol):
    """A job, or a row of a batch."""

    @property
    def id(self) -> str: ...

    @property
    def answers(self) -> Answers: ...


def to_rows(results: Iterable[Answered], *, probabilities: bool = False) -> Iterator[dict[str, Any]]:
    """A dict each; with `probabilities` a column more for each option of a question, `q_p_red`."""
    for result in results:
        try:
            answers = result.answers
        except JobFailed as failed:
            yield {"id": result.id, "error": failed.code or "failed"}
            continue
        row: dict[str, Any] = {"id": result.id, "error": None}
        for name, answer in answers.items():
            row |= _columns(name, answer)
            if probabilities and not isinstance(answer, YesNoAnswer | NumberAnswer):
                row |= {f"{name}_p_{label}": p for label, p in answer.probabilities.items()}
        yield row


def to_pandas(results: Iterable[Answered], *, probabilities: bool = False) -> Any:
    """The table as a DataFrame. Raises MissingPackage without pandas."""
    pandas = needed("pandas", "a DataFrame")
    return pandas.DataFrame.from_records(_whole(results, probabilities))


def to_arrow(results: Iterable[Answered], *, probabilities: bool = False) -> Any:
    """The table as one of Arrow's. Raises MissingPackage without pyarrow."""
    pyarrow = needed("pyarrow", "an Arrow table")
    return pyarrow.Table.from_pylist(_whole(results, probabilities))


def _whole(results: Iterable[Answered], probabilities: bool) -> list[dict[str, Any]]:
    """Each row with every column, in the order in which they first come, `error` last."""
    rows = list(to_rows(results, probabilities=probabilities))
    columns = dict.fromkeys(name for row in rows for name in row if name != "error")
    return [{name: row.get(name) for name in (*columns, "error")} for row in rows]


def _columns(name: str, answer: Answer) -> dict[str, Any]:
    value = answer.value._asdict() if isinstance(answer.value, Box) else answer.value
    found = {name: value, f"{name}_probability": answer.probability, f"{name}_confidence": answer.confidence}
    found[f"{name}_status"] = answer.status
    if isinstance(answer, NumberAnswer):
        found |= dict(zip((f"{name}_low", f"{name}_high"), answer.interval, strict=True))
    return found
