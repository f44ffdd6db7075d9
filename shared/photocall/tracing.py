"""Traces: what a request spent its time on in each process, as spans of one trace. Off unless PHOTOCALL_TRACES is set.

Off costs a comparison with None, and imports nothing of OpenTelemetry. A trace is carried as W3C's `traceparent`: from
the caller's header, or begun by the gateway, then in the header that every message about the job repeats as its
parent's. Spans of prep and the engine are written down once they are over, from times that are taken anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeAlias

from photocall.settings import SettingsError

Value: TypeAlias = str | int | float
_PARENT: ContextVar[str] = ContextVar("traceparent", default="")


class Span(Protocol):
    """One that is not over yet."""

    @property
    def traceparent(self) -> str:
        """What makes other spans its children."""

    def end(self, name: str, **about: Value) -> None:
        """It is over, and this is what it was."""


class Spans(Protocol):
    """Where the spans of a process go. Times are seconds since the epoch."""

    def begin(self, parent: str) -> Span:
        """A span that is open now; without a parent it is the first of a trace."""

    def record(self, name: str, parent: str, began_at: float, ended_at: float, **about: Value) -> str:
        """A span that is over; its `traceparent`. Nothing without a parent: then the request is not traced."""

    def close(self) -> None:
        """Send what is left; ends within some seconds, whatever becomes of it."""


def open_spans(url: str, process: str, instance: str) -> Spans | None:
    """None where no URL is set. Raises SettingsError where OpenTelemetry is not installed."""
    if not url:
        return None
    try:
        from photocall.otel import sending_to
    except ImportError as error:
        expected = f"the extra photocall[otel], which is not installed ({error.name} is missing)"
        raise SettingsError("PHOTOCALL_TRACES", url, expected) from None
    return sending_to(url, process, instance)


@contextmanager
def within(traceparent: str) -> Iterator[None]:
    """Jobs that are accepted from here on, on this task, belong to this trace."""
    token = _PARENT.set(traceparent)
    try:
        yield
    finally:
        _PARENT.reset(token)


def current() -> str:
    """The trace that is being served; empty: none."""
    return _PARENT.get()


def parent_of(header: Mapping[str, object] | None) -> str:
    """The trace that a job belongs to, by the header of its request; empty: none."""
    return str(header.get("traceparent", "")) if header else ""
