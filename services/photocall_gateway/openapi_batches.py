"""The description of files and batches: OpenAI's objects, and what is ours beside them."""

from __future__ import annotations

from photocall.webhooks import BATCH_EVENTS
from photocall_gateway.batches.batch import ENDPOINTS, BatchStatus
from photocall_gateway.openapi_parts import Schema, obj, ref

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_TIME: Schema = {"type": ["integer", "null"], "description": "Seconds since the epoch."}
_MAYBE: Schema = {"type": ["string", "null"]}
_WORDS: Schema = {"type": ["object", "null"], "maxProperties": 16, "additionalProperties": {"type": "string"}}
_PAGE: dict[str, Schema] = {"first_id": _MAYBE, "last_id": _MAYBE, "has_more": {"type": "boolean"}}
_TIMES: dict[str, Schema] = {
    f"{name}_at": _TIME
    for name in ("in_progress", "expires", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
}
_ERRORS: Schema = {
    "type": ["object", "null"],
    "properties": {
        "object": {"const": "list"},
        "data": {
            "type": "array",
            "items": obj(
                ("code", "message"), code=_TEXT, message=_TEXT, param=_MAYBE, line={"type": ["integer", "null"]}
            ),
        },
    },
}
_EXPIRY: dict[str, Schema] = {
    "expires_after[anchor]": {"const": "created_at"},
    "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2_592_000},
}
_ENDPOINT: Schema = {"enum": list(ENDPOINTS)}

FILE_SCHEMAS: dict[str, Schema] = {
    "Upload": obj(
        ("file", "purpose"),
        file={"type": "string", "contentMediaType": "application/octet-stream"},
        purpose={"enum": ["batch", "user_data"]},
        **_EXPIRY,
    ),
    "File": obj(
        ("id", "object", "bytes", "created_at", "filename", "purpose", "status"),
        id=_TEXT,
        object={"const": "file"},
        bytes={**_COUNT, "description": "Of a result that is still written: so far."},
        created_at={"type": "integer"},
        expires_at=_TIME,
        filename=_TEXT,
        purpose={"enum": ["batch", "batch_output", "user_data"]},
        status={"const": "processed"},
        status_details=_MAYBE,
    ),
    "FileList": obj(
        ("object", "data", "has_more"),
        object={"const": "list"},
        data={"type": "array", "items": ref("File")},
        **_PAGE,
    ),
    "FileDeleted": obj(("id", "object", "deleted"), id=_TEXT, object={"const": "file"}, deleted={"const": True}),
}

BATCH_SCHEMAS: dict[str, Schema] = {
    "BatchRequest": obj(
        ("endpoint",),
        endpoint=_ENDPOINT,
        input_file_id={**_MAYBE, "description": "JSONL, or a zip or tar of pictures."},
        input_folder={**_MAYBE, "description": "Instead: a folder below PHOTOCALL_BATCH_ROOT."},
        request={
            "type": ["object", "null"],
            "description": "What is asked of each picture: a body of the endpoint, without pictures.",
        },
        completion_window={**_TEXT, "pattern": "^[1-9][0-9]{0,6}[smhd]$", "default": "24h"},
        metadata=_WORDS,
        webhook={"oneOf": [ref("BatchWebhook"), {"type": "null"}]},
    ),
    "BatchWebhook": obj(
        ("url",),
        url={**_TEXT, "description": "https, at a public address."},
        events={"type": ["array", "null"], "minItems": 1, "items": {"enum": list(BATCH_EVENTS)}},
    ),
    "BatchDeleted": obj(("id", "object", "deleted"), id=_TEXT, object={"const": "batch"}, deleted={"const": True}),
    "Batch": obj(
        ("id", "object", "endpoint", "input_file_id", "completion_window", "status", "created_at", "request_counts"),
        id=_TEXT,
        object={"const": "batch"},
        endpoint=_ENDPOINT,
        errors=_ERRORS,
        input_file_id=_TEXT,
        completion_window=_TEXT,
        status={"enum": [status.value for status in BatchStatus]},
        output_file_id={**_MAYBE, "description": "Answers; can be read while they are written."},
        error_file_id={**_MAYBE, "description": "Rows without an answer."},
        created_at={"type": "integer"},
        **_TIMES,
        request_counts=obj(("total", "completed", "failed"), total=_COUNT, completed=_COUNT, failed=_COUNT),
        usage={"type": "object"},
        model=_MAYBE,
        metadata=_WORDS,
        paused={**_MAYBE, "description": "Why no row is sent at the moment."},
        retry_of=_MAYBE,
        folder=_MAYBE,
        webhook={"type": ["object", "null"], "description": "`url`, `events`, `state` and `attempts`, as of a job."},
        urls=obj(("self", "cancel", "events"), self=_TEXT, cancel=_TEXT, events=_TEXT),
    ),
    "BatchEstimate": obj(
        ("object", "rows", "distinct_rows", "input_tokens", "output_tokens", "seconds", "measured"),
        object={"const": "batch.estimate"},
        endpoint=_ENDPOINT,
        errors=_ERRORS,
        rows=_COUNT,
        distinct_rows={**_COUNT, "description": "Equal rows are answered once."},
        refused_share={"type": "number", "description": "Of the rows that were looked at."},
        input_tokens=_COUNT,
        output_tokens=_COUNT,
        seconds={"type": ["number", "null"]},
        measured={"type": "boolean", "description": "From rows of earlier batches; else a guess."},
    ),
    "BatchList": obj(
        ("object", "data", "has_more"),
        object={"const": "list"},
        data={"type": "array", "items": ref("Batch")},
        **_PAGE,
    ),
}
