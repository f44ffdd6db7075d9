"""What a caller says to create a batch: OpenAI's fields, and ours for pictures under one question set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from photocall.questions import InvalidField, Json
from photocall.settings import DAY_S
from photocall.webhooks import BATCH_EVENTS
from photocall_gateway.batches import row_shapes
from photocall_gateway.batches.batch import ENDPOINTS
from photocall_gateway.batches.inputs import with_picture
from photocall_gateway.body import Limits
from photocall_gateway.parsing import metadata_of, webhook_of

MAX_WINDOW_S = 30 * DAY_S
_WINDOW = re.compile(r"([1-9][0-9]{0,6})([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": DAY_S}
_SOME_PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(8)


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A checked request. Either `input_file_id` or `folder`; `template` where rows are pictures."""

    endpoint: str
    window: str
    window_s: int
    input_file_id: str | None
    folder: str | None
    template: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    webhook: dict[str, Any] | None = None


def read_new_batch(raw: Mapping[str, Json], limits: Limits) -> NewBatch:
    """Raises InvalidField, and CodedError as the endpoint's own parser does for `request`."""
    endpoint = raw.get("endpoint")
    if endpoint not in ENDPOINTS:
        raise InvalidField(("endpoint",), f"Expected one of {', '.join(ENDPOINTS)}", "literal_error")
    window = raw.get("completion_window", "24h")
    match = _WINDOW.fullmatch(window) if isinstance(window, str) else None
    window_s = int(match[1]) * _UNIT_S[match[2]] if match else 0
    if not 1 <= window_s <= MAX_WINDOW_S:
        raise InvalidField(("completion_window",), "Expected a time like '24h', of 30 days at most", "literal_error")
    file_id, folder, template = raw.get("input_file_id"), raw.get("input_folder"), raw.get("request")
    if (file_id is None) == (folder is None):
        raise InvalidField(("input_file_id",), "Field required, or input_folder instead", "missing")
    for name, value in (("input_file_id", file_id), ("input_folder", folder)):
        if value is not None and not isinstance(value, str):
            raise InvalidField((name,), "Expected a string", "string_type")
    if template is not None and not isinstance(template, dict):
        raise InvalidField(("request",), "Expected an object", "dict_type")
    if template is not None:
        check_template(str(endpoint), template, limits)
    webhook = webhook_of(raw.get("webhook"), limits, BATCH_EVENTS)
    return NewBatch(
        endpoint=str(endpoint),
        window=str(window),
        window_s=window_s,
        input_file_id=None if file_id is None else str(file_id),
        folder=None if folder is None else str(folder),
        template=template or {},
        metadata=metadata_of(raw.get("metadata")),
        webhook=None if webhook is None else {"url": webhook.url, "events": list(webhook.events)},
    )


def check_template(endpoint: str, template: dict[str, Any], limits: Limits) -> None:
    """A request that no picture could be asked with is refused at once. Raises as read_new_batch."""
    for name in ("images", "media", "assets"):
        if template.get(name) is not None:
            raise InvalidField(("request", name), "Each row's own picture stands here", "unsupported_field")
    try:
        row_shapes.parse(endpoint, with_picture(endpoint, template, _SOME_PICTURE), limits)
    except InvalidField as error:
        raise InvalidField(("request", *error.loc), error.msg, error.type) from error
