"""The Python client: `Client` and `AsyncClient`, for jobs, batches and their answers. Needs the extra `client` (httpx).

    import photocall

    with photocall.Client() as client:
        job = client.ask("parcel.jpg", {
            "damaged": photocall.yes_no("Is the parcel damaged?"),
            "label": photocall.choice("Which label is on it?", ["fragile", "this side up", "none"]),
        })
        print(job["damaged"].probability, job["label"].choice)

A picture is uploaded once, under the hash of its bytes, and again by itself when the server has forgotten it.
"""

from photocall.client.answer import Alternative, Answer, Box
from photocall.client.answers import (
    Answers,
    BoxAnswer,
    ChoiceAnswer,
    NotAsked,
    NumberAnswer,
    Refused,
    ScoreAnswer,
    TextAnswer,
    YesNoAnswer,
)
from photocall.client.async_batch_run import AsyncBatchRun
from photocall.client.async_client import AsyncClient
from photocall.client.batch_flows import Batch, Row
from photocall.client.batch_items import Columns
from photocall.client.batch_run import BatchRun
from photocall.client.errors import (
    AccessRefused,
    BatchFailed,
    Busy,
    ClientError,
    InvalidRequest,
    JobFailed,
    MissingPackage,
    NoAnswer,
    NotAnswered,
    NotFound,
    RequestRefused,
    Unreachable,
)
from photocall.client.event_stream import Event
from photocall.client.magic import Live, load_ipython_extension
from photocall.client.pictures import Image, Images, Picture
from photocall.client.questions import Question, Questions, box, choice, number, score, text, yes_no
from photocall.client.shorthand import question_of, questions_of
from photocall.client.shown import Job
from photocall.client.sync_client import Client
from photocall.client.tables import to_arrow, to_pandas, to_rows

__all__ = [
    "AccessRefused",
    "Alternative",
    "Answer",
    "Answers",
    "AsyncBatchRun",
    "AsyncClient",
    "Batch",
    "BatchFailed",
    "BatchRun",
    "Box",
    "BoxAnswer",
    "Busy",
    "ChoiceAnswer",
    "Client",
    "ClientError",
    "Columns",
    "Event",
    "Image",
    "Images",
    "InvalidRequest",
    "Job",
    "JobFailed",
    "Live",
    "MissingPackage",
    "NoAnswer",
    "NotAnswered",
    "NotAsked",
    "NotFound",
    "NumberAnswer",
    "Picture",
    "Question",
    "Questions",
    "Refused",
    "RequestRefused",
    "Row",
    "ScoreAnswer",
    "TextAnswer",
    "Unreachable",
    "YesNoAnswer",
    "box",
    "choice",
    "load_ipython_extension",
    "number",
    "question_of",
    "questions_of",
    "score",
    "text",
    "to_arrow",
    "to_pandas",
    "to_rows",
    "yes_no",
]
