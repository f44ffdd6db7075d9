"""Batch: what a batch was asked to be and how far it is, and OpenAI's batch object made of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from photocall.jobs import Webhook

ENDPOINTS = ("/v1/systemone", "/v1/decisions", "/v1/jobs")
Kind = Literal["jsonl", "zip", "tar", "folder"]


class BatchStatus(StrEnum):
    """validating -> in_progress -> finalizing -> completed | failed; before the end also -> cancelling -> cancelled,
    or -> expired. A batch whose rows all failed is failed too, with an error that says so."""

    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """It never changes again."""
        return self in (BatchStatus.COMPLETED, BatchStatus.FAILED, BatchStatus.EXPIRED, BatchStatus.CANCELLED)


@dataclass(frozen=True, slots=True)
class BatchError:
    """Why an input cannot be run. `line` counts from 1; None where it is not about a line."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None

    def shown(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "param": self.param, "line": self.line}


@dataclass(frozen=True, slots=True)
class Head:
    """What never changes. `template` is the body that each picture of an archive or a folder is put into."""

    id: str
    owner: str
    endpoint: str
    kind: Kind
    input_file_id: str
    completion_window: str
    created_at: int
    expires_at: int
    metadata: dict[str, str] = field(default_factory=dict)
    template: dict[str, Any] = field(default_factory=dict)
    folder: str | None = None
    retry_of: str | None = None
    webhook: dict[str, Any] | None = None  # url and events

    @property
    def hook(self) -> Webhook:
        """Of a batch that has one."""
        assert self.webhook is not None
        return Webhook(self.webhook["url"], tuple(self.webhook["events"]))

    @property
    def output_file_id(self) -> str:
        return f"file-{self.id.removeprefix('batch_')}-output"

    @property
    def error_file_id(self) -> str:
        return f"file-{self.id.removeprefix('batch_')}-errors"


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as its ledger has it. `output_bytes` and `error_bytes` are how far its results are committed."""

    head: Head
    status: BatchStatus
    cancel_asked: bool
    fence: int
    total: int
    completed: int
    failed: int
    output_bytes: int
    output_lines: int
    error_bytes: int
    error_lines: int
    input_tokens: int
    output_tokens: int
    model: str | None
    paused: str | None  # why no row is sent at the moment
    times: dict[str, int]  # "<status>_at"
    errors: list[dict[str, Any]]

    @property
    def shown_status(self) -> BatchStatus:
        """`cancelling` while somebody's wish to cancel is not fulfilled."""
        return BatchStatus.CANCELLING if self.cancel_asked and not self.status.terminal else self.status

    def shown(self) -> dict[str, Any]:
        """OpenAI's batch object; `paused`, `retry_of`, `folder`, `webhook` and `urls` are ours beside it."""
        head = self.head
        at: Mapping[str, int] = self.times
        base = f"/v1/batches/{head.id}"
        webhook = {**head.webhook, "state": None, "attempts": []} if head.webhook else None
        return {
            "id": head.id,
            "object": "batch",
            "endpoint": head.endpoint,
            "errors": {"object": "list", "data": self.errors} if self.errors else None,
            "input_file_id": head.input_file_id,
            "completion_window": head.completion_window,
            "status": self.shown_status.value,
            "output_file_id": head.output_file_id if self.output_lines else None,
            "error_file_id": head.error_file_id if self.error_lines else None,
            "created_at": head.created_at,
            "in_progress_at": at.get("in_progress_at"),
            "expires_at": head.expires_at,
            "finalizing_at": at.get("finalizing_at"),
            "completed_at": at.get("completed_at"),
            "failed_at": at.get("failed_at"),
            "expired_at": at.get("expired_at"),
            "cancelling_at": at.get("cancelling_at"),
            "cancelled_at": at.get("cancelled_at"),
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
            "usage": {
                "input_tokens": self.input_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": self.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": self.input_tokens + self.output_tokens,
            },
            "model": self.model,
            "metadata": head.metadata or None,
            "paused": self.paused,
            "retry_of": head.retry_of,
            "folder": head.folder,
            "webhook": webhook,
            "urls": {"self": base, "cancel": f"{base}/cancel", "events": f"{base}/events"},
        }
