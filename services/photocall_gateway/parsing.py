"""From a request body to a checked request: questions, state, and the pictures behind each asset.

Every shape ends in `checked`. Nothing here touches Redis or the event loop, so a large body can be parsed in a thread.
A picture never appears in an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from photocall.addresses import BadUrl, parse_url
from photocall.asking import PLAIN, Asking, parse_abstain, parse_order
from photocall.asks import Ask, mentioned
from photocall.errors import CodedError
from photocall.jobs import Webhook
from photocall.question_parsing import parse_questions
from photocall.questions import Box, InvalidField, Json, Loc, Question
from photocall.recalibration import Recalibration, parse_calibration
from photocall.views import PLAIN as PLAIN_VIEW
from photocall.views import Budget
from photocall.webhooks import JOB_EVENTS
from photocall_gateway.assets import read_assets
from photocall_gateway.body import Body, Limits, open_body
from photocall_gateway.dialects import listed, without_parts
from photocall_gateway.pictures import Picture, Remote
from photocall_gateway.viewing import budget_of

MAX_METADATA = 16


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A checked request. `images` holds the bytes of its distinct pictures by hash, but for the stored ones."""

    ask: Ask
    images: dict[str, bytes]
    hash: str  # over everything that decides the answer, and the job's own fields: equal bodies have equal hashes
    view: Mapping[str, Any] = field(default_factory=dict)  # how a shape of its own shows the answers
    calibration_id: str | None = None  # of a stored one, which `Calibrator` puts into the ask


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The fields of a native job beside the question."""

    priority: Literal["interactive", "batch"] = "interactive"
    deadline_s: float | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    webhook: Webhook | None = None
    budget: Budget | None = None


def parse_systemone(body: Body, limits: Limits) -> ParsedRequest:
    """Raises InvalidField, or CodedError `malformed`, `unsupported_type`, `body_too_large`, `image_*` and others."""
    raw, parts = open_body(body, limits)
    request, digest = _request(raw, parts, limits, native=False)
    return calibrated(request, digest, raw)


def parse_job(body: Body, limits: Limits, max_deadline_s: float) -> tuple[ParsedRequest, JobOptions]:
    """As parse_systemone; a multipart body may also send a picture as a part named by the word that stands for it."""
    raw, parts = open_body(body, limits)
    options = replace(_options(raw, max_deadline_s), webhook=webhook_of(raw.get("webhook"), limits))
    request, digest = _request(raw, parts, limits, native=True)
    _none_nested(raw["questions"])
    request = calibrated(request, digest, raw)
    if options.budget is not None:
        request = replace(request, ask=replace(request.ask, budget=options.budget))
        digest.update(f"budget {options.budget}".encode())
    digest.update(repr((options.priority, options.deadline_s, sorted(options.metadata.items()))).encode())
    if options.webhook is not None:
        digest.update(repr(options.webhook).encode())
    return replace(request, hash=digest.hexdigest()), options


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """The fields of a turn beside the question; None: as the session says."""

    remember: bool | None = None
    deadline_s: float | None = None
    metadata: dict[str, str] = field(default_factory=dict)


MESSAGE_TOKENS = 256


def parse_turn(body: Body, limits: Limits, max_deadline_s: float) -> tuple[ParsedRequest, TurnOptions]:
    """As parse_job, but the state may be left out, and `text` may stand for one question answered by a text."""
    raw, parts = open_body(body, limits)
    if raw.get("webhook") is not None:
        raise InvalidField(("webhook",), "A turn has no webhook: follow the session's events", "unsupported_field")
    if raw.get("budget") is not None:  # an evicted transcript is prepared again, and must come out the same
        raise InvalidField(("budget",), "A turn has none: pictures of a session are all alike", "unsupported_field")
    options = _options({name: raw.get(name) for name in ("deadline_s", "metadata")}, max_deadline_s)
    remember = raw.get("remember")
    if remember is not None and not isinstance(remember, bool):
        raise InvalidField(("remember",), "Expected true or false", "bool_type")
    if raw.get("text") is not None:
        if raw.get("questions") is not None:
            raise InvalidField(("text",), "Either `text` or `questions`", "exclusive")
        text = {"type": "text", "instructions": raw["text"], "max_tokens": raw.get("max_tokens", MESSAGE_TOKENS)}
        if not isinstance(raw["text"], str):
            raise InvalidField(("text",), "Expected a string", "string_type")
        raw = {**raw, "questions": {"text": text}}
    request, digest = _request({"state": None, **raw}, parts, limits, native=True, stateless=True)
    for key in request.ask.views:
        msg = "A turn's pictures are all shown alike: no frame, page, dpi, background or budget"
        raise InvalidField(("assets", key), msg, "unsupported_field")
    request = calibrated(request, digest, raw)
    digest.update(repr((remember, options.deadline_s, sorted(options.metadata.items()))).encode())
    turn = TurnOptions(remember, options.deadline_s, options.metadata)
    return replace(request, hash=digest.hexdigest()), turn


def provenance_of(raw: Mapping[str, Json]) -> bool:
    """Whether a body asks what its answer comes from. Raises InvalidField."""
    wanted = raw.get("provenance")
    if wanted is not None and not isinstance(wanted, bool):
        raise InvalidField(("provenance",), "Expected true or false", "bool_type")
    return bool(wanted)


def model_name(raw: Mapping[str, Json]) -> str | None:
    """The model that a body asks for. Raises InvalidField."""
    model = raw.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidField(("model",), "Expected a string", "string_type")
    return model


def checked(
    model: str | None,
    state: Json,
    questions: tuple[Question, ...],
    pictures: Mapping[str, Picture],
    limits: Limits,
    view: Mapping[str, Any] | None = None,
    loc: Loc = ("assets",),
    by_question: bool = False,
    provenance: bool = False,
) -> tuple[ParsedRequest, Any]:
    """A request put together, and the digest that its hash came from. `loc` is where its pictures stand.

    `by_question`: one question that cannot be answered does not fail the others.

    Raises InvalidField, or CodedError `prompt_too_long`.
    """
    for found in pictures.values():
        if found.remote is not None:
            _check_remote(found.remote, limits)
    hashes = {key: found.named for key, found in pictures.items()}
    images = {found.sha256: found.data for found in pictures.values() if found.data is not None}
    views = {key: found.view for key, found in pictures.items() if found.view != PLAIN_VIEW}
    ask = Ask(model, state, questions, hashes, by_question, views=views, provenance=provenance)
    num_pictures = len(set(ask.pictures.values()))  # one file in two views is two pictures
    if num_pictures > limits.max_images:
        msg = f"At most {limits.max_images} pictures, got {num_pictures}"
        raise InvalidField(loc, msg, "too_long")
    digest = hashlib.sha256(repr((model, check_length(ask, limits), hashes, by_question)).encode())
    if views:
        digest.update(repr(sorted((key, str(view)) for key, view in views.items())).encode())
    if view:
        digest.update(repr(view).encode())
    if provenance:
        digest.update(b"provenance")
    return ParsedRequest(ask, images, digest.hexdigest(), view or {}), digest


def calibrated(request: ParsedRequest, digest: Any, raw: Mapping[str, Json]) -> ParsedRequest:
    """With the caller's own calibration, which decides the answer as everything else does.

    One that is named has the hash of one that is sent whole: its id is what it says. Raises InvalidField.
    """
    own = parse_calibration(raw.get("calibration"))
    if own is None:
        return request
    name = own if isinstance(own, str) else own.id
    digest.update(name.encode())
    request = replace(request, hash=digest.hexdigest())
    return replace(request, calibration_id=own) if isinstance(own, str) else with_calibration(request, own)


def with_calibration(request: ParsedRequest, own: Recalibration) -> ParsedRequest:
    """With what of a calibration concerns its questions, by the names that its caller gave them."""
    names: dict[str, str | None] = {question.name: question.name for question in request.ask.questions}
    if "questions" in request.view:  # Decisions: a name stands aside, several may have one, or none
        names = {str(i): view["name"] for i, view in enumerate(request.view["questions"])}
    ask = replace(request.ask, calibration=own.for_questions(names))
    return replace(request, ask=ask, calibration_id=None)


def _check_remote(remote: Remote, limits: Limits) -> None:
    if not limits.fetch_urls:
        raise InvalidField(remote.loc, "URLs are not fetched: send the picture as a data URL", "url_not_fetched")
    try:
        parse_url(remote.url, limits.plain_http)
    except BadUrl as error:
        raise InvalidField(remote.loc, str(error), "url") from error


def check_length(ask: Ask, limits: Limits) -> str:
    """State and questions as JSON. Raises CodedError `prompt_too_long` with the numbers."""
    body: str = ask.to_content()["body"]
    if len(body) > limits.max_text_chars:
        msg = f"State and questions have {len(body)} characters, limit {limits.max_text_chars}"
        raise CodedError("prompt_too_long", msg, characters=len(body), limit=limits.max_text_chars)
    return body


def _request(
    raw: Mapping[str, Json], parts: dict[str, bytes], limits: Limits, *, native: bool, stateless: bool = False
) -> tuple[ParsedRequest, Any]:
    model = model_name(raw)
    state = None if stateless and raw.get("state") is None else _state(raw)
    if "questions" not in raw:
        raise InvalidField(("questions",), "Field required", "missing")
    questions = parse_questions(raw["questions"], _for_all(raw) if native else PLAIN)
    state, in_state = without_parts(state, limits.max_image_bytes)
    check_length(Ask(model, state, questions), limits)
    assets = read_assets(raw.get("assets"), parts, limits.max_image_bytes, name_parts=native)
    _all_mentioned(assets, state, questions)
    state, in_lists = listed(raw, state, questions, limits.max_image_bytes)
    for key in in_lists.keys() & assets.keys():
        raise InvalidField(("assets", key), "A picture of a list has this name", "duplicate")
    pictures = {**assets, **in_state, **in_lists}
    if not pictures and not stateless:  # a turn's may stand in an earlier one
        for question in questions:
            if isinstance(question, Box):
                raise InvalidField(("questions", question.name, "box"), "A box needs a picture", "missing")
    by_question = native and not stateless
    return checked(model, state, questions, pictures, limits, by_question=by_question, provenance=provenance_of(raw))


def _for_all(raw: Mapping[str, Json]) -> Asking:
    """How all questions are asked that do not say it themselves."""
    return Asking(parse_order(raw.get("order"), ()) or "as_given", parse_abstain(raw.get("abstain"), ()))


def _state(raw: Mapping[str, Json]) -> Json:
    if "state" not in raw:
        raise InvalidField(("state",), "Field required", "missing")
    state = raw["state"]
    if not isinstance(state, str | Mapping | list):
        raise InvalidField(("state",), "Expected a string, an object or an array", "content_type")
    return state


def _all_mentioned(pictures: Mapping[str, Picture], state: Json, questions: tuple[Question, ...]) -> None:
    found = mentioned(pictures.keys(), state, questions)
    for key in pictures:
        if key not in found:
            msg = f"Asset {key[:80]!r} is not referenced in the request"
            raise CodedError("unreferenced_asset", msg, asset=key[:80])


def _options(raw: Mapping[str, Json], max_deadline_s: float) -> JobOptions:
    priority = raw.get("priority", "interactive")
    if priority not in ("interactive", "batch"):
        raise InvalidField(("priority",), "Expected 'interactive' or 'batch'", "literal_error")
    deadline = raw.get("deadline_s")
    if deadline is not None and (isinstance(deadline, bool) or not isinstance(deadline, int | float)):
        raise InvalidField(("deadline_s",), "Expected a number of seconds", "float_type")
    if deadline is not None and not 0 < deadline <= max_deadline_s:
        raise InvalidField(("deadline_s",), f"Expected above 0, at most {max_deadline_s:g}", "out_of_range")
    budget = budget_of(raw.get("budget"), ("budget",))
    deadline_s = None if deadline is None else float(deadline)
    return JobOptions(priority, deadline_s, metadata_of(raw.get("metadata")), budget=budget)


def _none_nested(questions: Json) -> None:
    """What changes an answer and stands in a question instead of beside all of them is not ignored in silence."""
    for name, question in questions.items() if isinstance(questions, Mapping) else ():
        for field_name in ("budget", "calibration"):
            if isinstance(question, Mapping) and question.get(field_name) is not None:
                msg = "Stands beside `questions`, and holds for all of them"
                raise InvalidField(("questions", name, field_name), msg, "unsupported_field")


def webhook_of(raw: Json, limits: Limits, events: Collection[str] = JOB_EVENTS) -> Webhook | None:
    """Where a caller wants to be told of its job or batch. Raises InvalidField."""
    if raw is None:
        return None
    if not limits.webhooks:
        raise InvalidField(("webhook",), "Webhooks are switched off here", "unsupported_field")
    if not isinstance(raw, Mapping):
        raise InvalidField(("webhook",), "Expected an object with a url", "dict_type")
    url = raw.get("url")
    if not isinstance(url, str):
        raise InvalidField(("webhook", "url"), "Field required", "missing")
    try:
        parse_url(url, limits.plain_http)
    except BadUrl as error:
        raise InvalidField(("webhook", "url"), str(error), "url") from error
    wanted = raw.get("events")
    if wanted is None:
        return Webhook(url)
    if not isinstance(wanted, list) or not wanted or not all(item in events for item in wanted):
        raise InvalidField(("webhook", "events"), f"Expected a list of {', '.join(events)}", "literal_error")
    return Webhook(url, tuple(dict.fromkeys(map(str, wanted))))


def metadata_of(raw: Json) -> dict[str, str]:
    """The caller's own words on a job, a session or a batch. Raises InvalidField."""
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise InvalidField(("metadata",), "Expected an object of strings", "dict_type")
    if len(raw) > MAX_METADATA:
        raise InvalidField(("metadata",), f"At most {MAX_METADATA} entries, got {len(raw)}", "too_long")
    checked: dict[str, str] = {}
    for key, value in raw.items():
        if not isinstance(value, str):
            raise InvalidField(("metadata", key), "Expected a string", "string_type")
        if len(key) > 64 or len(value) > 512:
            raise InvalidField(("metadata", key[:64]), "A key has at most 64 characters, a value 512", "too_long")
        checked[key] = value
    return checked
