"""What the client does, call by call, without doing it: generators that give calls and pauses and are sent the answers.

`sync_client.py` and `async_client.py` run the same flows over httpx, so the two clients cannot differ.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlencode

from photocall.client.errors import JobFailed, NotAnswered, RequestRefused, problem_of, refused
from photocall.client.pictures import Images, by_name
from photocall.client.questions import Questions
from photocall.client.request import body_of
from photocall.client.shown import Job

T = TypeVar("T")
MAX_TRIES = 5
MAX_UPLOADS = 2  # of one picture in one call: a server that forgets at once is not argued with
POLL_S = 20.0  # one long poll; proxies cut longer ones
WATCHED_POLL_S = 1.0  # where somebody looks on
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 20.0
LONGEST_PAUSE_S = 60.0  # that a server may ask for: who is sent away for longer is told so instead
AGAIN = frozenset({408, 429, 502, 503, 504, 507, 529})
_UNHEARD = frozenset({0, 502, 504})  # the server may have done what was asked; the others say that it has not


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP call to make. `read_s`: how long its answer may take. `file` goes as the file of a form."""

    method: str
    path: str
    json: Any = None
    data: bytes | None = None
    file: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    read_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds to let pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. Status 0: nothing did, and nothing is known of what the server has taken; `body` says why.

    `body` is its JSON, `content` its bytes where it is something else.
    """

    status: int
    headers: Mapping[str, str]
    body: Any
    content: bytes = b""


Flow: TypeAlias = Generator[Call | Pause, Reply | None, T]
Look: TypeAlias = Callable[[Job], object]
"""Sees a job while it is waited for."""


def call(made: Call) -> Flow[Reply]:
    """One call, made again where that may help, after the pause that the server asks for. Raises RequestRefused.

    Every call that is made here may be repeated: it reads, stands under a hash or an idempotency key, or asks for an
    end, which whoever makes it may find come already (`RequestRefused.repeated`).
    """
    pause_s = FIRST_PAUSE_S
    lost = False
    reply = Reply(0, {}, None)
    for left in reversed(range(MAX_TRIES)):
        answered = yield made
        assert answered is not None
        reply = answered
        if 0 < reply.status < 400:
            return reply
        in_progress = reply.status == 409 and problem(reply).get("code") == "in_progress"
        if not left or not (reply.status == 0 or reply.status in AGAIN or in_progress):
            break
        wanted_s = retry_after_s(reply) or pause_s
        if wanted_s > LONGEST_PAUSE_S:
            break
        lost = lost or reply.status in _UNHEARD
        yield Pause(wanted_s)
        pause_s = min(2 * pause_s, LAST_PAUSE_S)
    raise refused(reply.status, problem(reply), lost, retry_after_s(reply))


def submit(images: Images, questions: Questions, state: Any, key: str | None, fields: Mapping[str, Any]) -> Flow[Job]:
    """Accept a job: its pictures are named by hash, and sent when the server says that it does not have one."""
    body, pictures = body_of(images, questions, state, fields)
    known = {picture.name: picture.data for picture in pictures if picture.data is not None}
    made = Call("POST", "/v1/jobs", body, headers={"idempotency-key": key or secrets.token_hex(16)})
    for sha256 in known:
        if not (yield from stored(sha256)):
            yield from upload(sha256, known[sha256])
    uploads = dict.fromkeys(known, 0)
    while True:
        try:
            return Job((yield from call(made)).body, by_name(images))
        except RequestRefused as error:
            sha256 = str(error.problem.get("sha256", ""))
            if error.code != "image_expired" or uploads.get(sha256, MAX_UPLOADS) >= MAX_UPLOADS:
                raise
            uploads[sha256] += 1
            yield from upload(sha256, known[sha256])


def stored(sha256: str) -> Flow[bool]:
    """Whether a picture is stored for this API key; then it is kept a while longer."""
    try:
        yield from call(Call("HEAD", f"/v1/images/{sha256}"))
    except RequestRefused as error:
        if error.status == 404:
            return False
        raise
    return True


def upload(sha256: str, data: bytes) -> Flow[None]:
    """Store a picture."""
    yield from call(Call("PUT", f"/v1/images/{sha256}", data=data, read_s=120.0))


def get(job: Job | str, wait_s: float = 0.0) -> Flow[Job]:
    """A job; with `wait_s`, once it has ended or the time is over."""
    headers = {"prefer": f"wait={int(wait_s)}"} if wait_s >= 1 else {}
    reading = Call("GET", f"/v1/jobs/{_id(job)}", headers=headers, read_s=30.0 + wait_s)
    return Job((yield from call(reading)).body, job.images if isinstance(job, Job) else {})


def wait(job: Job | str, timeout_s: float | None, look: Look | None = None) -> Flow[Job]:
    """The job once it has ended, however; `look` sees it meanwhile. Raises NotAnswered."""
    started = time.monotonic()
    poll_s = POLL_S if look is None else WATCHED_POLL_S
    while True:
        left_s = poll_s if timeout_s is None else timeout_s - (time.monotonic() - started)
        found = yield from get(job, min(poll_s, max(0.0, left_s)))
        if look is not None:
            look(found)
        if found.ended:
            return found
        if timeout_s is not None and time.monotonic() - started >= timeout_s:
            raise NotAnswered(found.id, timeout_s)
        if left_s < 1:  # less than a long poll can be told
            yield Pause(min(0.1, max(0.01, left_s)))


def ask(submitting: Flow[Job], timeout_s: float | None, look: Look | None = None) -> Flow[Job]:
    """A job from start to end. Raises JobFailed when it ends without answers."""
    job = yield from submitting
    if look is not None:
        look(job)
    if not job.ended:
        job = yield from wait(job, timeout_s, look)
    if not job.succeeded:
        raise JobFailed(job.fields)
    return job


def replay(job: Job | str) -> Flow[Job]:
    """Ask again what a job asked; the new job."""
    made = Call("POST", f"/v1/jobs/{_id(job)}/replay", headers={"idempotency-key": secrets.token_hex(16)})
    return Job((yield from call(made)).body, job.images if isinstance(job, Job) else {})


def cancel(job: Job | str) -> Flow[Job]:
    """End it early; one that has ended stays as it is."""
    found = (yield from call(Call("POST", f"/v1/jobs/{_id(job)}/cancel"))).body
    return Job(found, job.images if isinstance(job, Job) else {})


def delete(job: Job | str) -> Flow[None]:
    """Cancel and forget it. One that a try without an answer has taken away is gone, as was wanted."""
    try:
        yield from call(Call("DELETE", f"/v1/jobs/{_id(job)}"))
    except RequestRefused as error:
        if not (error.repeated and error.status in (404, 410)):
            raise


def jobs(status: str | None, after: str | None, limit: int) -> Flow[list[Job]]:
    """The caller's jobs, newest first."""
    return [Job(each) for each in (yield from listed("/v1/jobs", status=status, after=after, limit=limit))]


def models() -> Flow[list[str]]:
    """The names that the server's models answer to."""
    return [str(model["id"]) for model in (yield from listed("/v1/models"))]


def listed(path: str, **query: Any) -> Flow[list[dict[str, Any]]]:
    """The `data` of a list."""
    told = urlencode({name: value for name, value in query.items() if value is not None})
    found = (yield from call(Call("GET", f"{path}?{told}" if told else path))).body["data"]
    return list(found)


def _id(job: Job | str) -> str:
    return job if isinstance(job, str) else job.id


def problem(reply: Reply) -> dict[str, Any]:
    """Why a call was refused, as a problem document."""
    return {"detail": reply.body or "no answer"} if reply.status == 0 else problem_of(reply.body)


def retry_after_s(reply: Reply) -> float | None:
    """The pause that an answer asks for; `retry-after-ms` is the finer of the two."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = reply.headers.get(name, "")
        if text.isdecimal():
            return int(text) / unit
    return None
