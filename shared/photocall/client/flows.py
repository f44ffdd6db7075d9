"""What the client does, call by call, without doing it: generators that give calls and pauses and are sent the answers.

`sync_client.py` and `async_client.py` run the same flows over httpx, so the two clients cannot differ.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from photocall.client.errors import JobFailed, NotAnswered, RequestRefused


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture and how it is to be shown; None: as the server is set up. docs/images.md says what the fields mean."""

    image: bytes | Path | str
    page: int | None = None
    frame: int | None = None
    dpi: int | None = None
    background: str | None = None
    budget: int | Literal["auto"] | None = None

    def fields(self) -> dict[str, Any]:
        """Those that stand beside the picture in a request."""
        told: dict[str, Any] = {"page": self.page, "frame": self.frame, "dpi": self.dpi}
        told |= {"background": self.background, "budget": self.budget}
        return {name: value for name, value in told.items() if value is not None}


Image: TypeAlias = bytes | Path | str | Picture
"""Bytes, a path, or a text: the hash of a picture that is stored, or a URL where the server fetches these; or how one
of these is to be shown."""

T = TypeVar("T")
MAX_TRIES = 5
MAX_UPLOADS = 2  # of one picture in one call: a server that forgets at once is not argued with
POLL_S = 20.0  # one long poll; proxies cut longer ones
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 20.0
LONGEST_PAUSE_S = 60.0  # that a server may ask for: who is sent away for longer is told so instead
_AGAIN = frozenset({408, 429, 502, 503, 504, 507, 529})
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
    """What came back. Status 0: nothing did, and nothing is known of what the server has taken.

    `body` is its JSON, `content` its bytes where it is something else.
    """

    status: int
    headers: Mapping[str, str]
    body: Any
    content: bytes = b""


Flow: TypeAlias = Generator[Call | Pause, Reply | None, T]


@dataclass(frozen=True, slots=True)
class Shown:
    """An object as the server shows it; `ENDS` are the states that it ends in."""

    ENDS: ClassVar[tuple[str, ...]]
    fields: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.fields["id"])

    @property
    def status(self) -> str:
        return str(self.fields["status"])

    @property
    def ended(self) -> bool:
        return self.status in self.ENDS


@dataclass(frozen=True, slots=True)
class Job(Shown):
    """A job object, as the server shows it."""

    ENDS: ClassVar[tuple[str, ...]] = ("succeeded", "failed", "cancelled", "expired")

    @property
    def answers(self) -> dict[str, Any]:
        """The answers by question. Raises JobFailed for a job without any."""
        if self.status != "succeeded":
            raise JobFailed(self.fields)
        return dict(self.fields["result"]["answers"])


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
        in_progress = reply.status == 409 and _problem(reply).get("code") == "in_progress"
        if not left or not (reply.status == 0 or reply.status in _AGAIN or in_progress):
            break
        wanted_s = _retry_after_s(reply) or pause_s
        if wanted_s > LONGEST_PAUSE_S:
            break
        lost = lost or reply.status in _UNHEARD
        yield Pause(wanted_s)
        pause_s = min(2 * pause_s, LAST_PAUSE_S)
    raise RequestRefused(reply.status, _problem(reply), lost, _retry_after_s(reply))


def submit(
    state: Any, questions: Mapping[str, Any], images: Mapping[str, Image], key: str | None, fields: Mapping[str, Any]
) -> Flow[Job]:
    """Accept a job: its pictures are named by hash, and sent when the server says that it does not have one."""
    shown = {name: image if isinstance(image, Picture) else Picture(image) for name, image in images.items()}
    data = {name: _loaded(each.image) for name, each in shown.items()}
    known = {hashlib.sha256(image).hexdigest(): image for image in data.values() if isinstance(image, bytes)}
    assets = {name: {**_asset(image), **shown[name].fields()} for name, image in data.items()}
    body = {"state": state, "questions": questions, **({"assets": assets} if assets else {})}
    body |= {name: value for name, value in fields.items() if value is not None}
    made = Call("POST", "/v1/jobs", body, headers={"idempotency-key": key or secrets.token_hex(16)})
    for sha256 in known:
        if not (yield from stored(sha256)):
            yield from upload(sha256, known[sha256])
    uploads = dict.fromkeys(known, 0)
    while True:
        try:
            return Job((yield from call(made)).body)
        except RequestRefused as refused:
            sha256 = str(refused.problem.get("sha256", ""))
            if refused.code != "image_expired" or uploads.get(sha256, MAX_UPLOADS) >= MAX_UPLOADS:
                raise
            uploads[sha256] += 1
            yield from upload(sha256, known[sha256])


def stored(sha256: str) -> Flow[bool]:
    """Whether a picture is stored for this API key; then it is kept a while longer."""
    try:
        yield from call(Call("HEAD", f"/v1/images/{sha256}"))
    except RequestRefused as refused:
        if refused.status == 404:
            return False
        raise
    return True


def upload(sha256: str, data: bytes) -> Flow[None]:
    """Store a picture."""
    yield from call(Call("PUT", f"/v1/images/{sha256}", data=data, read_s=120.0))


def get(job_id: str, wait_s: float = 0.0) -> Flow[Job]:
    """A job; with `wait_s`, once it has ended or the time is over."""
    headers = {"prefer": f"wait={int(wait_s)}"} if wait_s >= 1 else {}
    return Job((yield from call(Call("GET", f"/v1/jobs/{job_id}", headers=headers, read_s=30.0 + wait_s))).body)


def wait(job_id: str, timeout_s: float | None) -> Flow[Job]:
    """The job once it has ended, however. Raises NotAnswered."""
    started = time.monotonic()
    while True:
        left_s = POLL_S if timeout_s is None else timeout_s - (time.monotonic() - started)
        job = yield from get(job_id, min(POLL_S, max(0.0, left_s)))
        if job.ended:
            return job
        if timeout_s is not None and time.monotonic() - started >= timeout_s:
            raise NotAnswered(job_id, timeout_s)
        if left_s < 1:  # less than a long poll can be told
            yield Pause(min(0.1, max(0.01, left_s)))


def ask(submitting: Flow[Job], timeout_s: float | None) -> Flow[Job]:
    """A job from start to end. Raises JobFailed when it ends without answers."""
    job = yield from submitting
    if not job.ended:
        job = yield from wait(job.id, timeout_s)
    if job.status != "succeeded":
        raise JobFailed(job.fields)
    return job


def _loaded(image: bytes | Path | str) -> bytes | str:
    return image.read_bytes() if isinstance(image, Path) else image


def _asset(image: bytes | str) -> dict[str, str]:
    if isinstance(image, bytes):
        return {"type": "image", "sha256": hashlib.sha256(image).hexdigest()}
    return {"type": "image", "url" if ":" in image else "sha256": image}


def _problem(reply: Reply) -> dict[str, Any]:
    if reply.status == 0:
        return {"detail": "no answer"}
    if not isinstance(reply.body, Mapping):
        return {"detail": "not an answer of photocall"}
    error = reply.body.get("error")
    if isinstance(error, Mapping):  # OpenAI's shape, on the routes of files and batches
        return {**error, "detail": error.get("message")}
    return dict(reply.body)


def _retry_after_s(reply: Reply) -> float | None:
    """`retry-after-ms` is the finer of the two."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = reply.headers.get(name, "")
        if text.isdecimal():
            return int(text) / unit
    return None
