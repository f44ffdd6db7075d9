"""The session object of the native API."""

from __future__ import annotations

import time
from typing import Any

from photocall.sessions import SessionView


def session_object(view: SessionView) -> dict[str, Any]:
    """A session as its caller sees it."""
    record, holding = view.record, view.holding
    base = f"/v1/sessions/{record.session_id}"
    held = None
    if holding is not None:
        held = {
            "engine": holding.engine_id,
            "tokens": holding.tokens,
            "bytes": holding.bytes,
            "expires_in_s": round(max(0.0, holding.until - time.time()), 1),
        }
    return {
        "id": record.session_id,
        "object": "session",
        "created_at": round(record.created_at, 3),
        "mode": record.mode,
        "remember": record.remember,
        "state": record.state,
        "metadata": record.metadata,
        "ttl_s": record.ttl_s,
        "expires_in_s": None if view.expires_in_s is None else round(view.expires_in_s, 1),
        "turns": {
            "accepted": record.turns,
            "answered": record.answered,
            "remembered": view.remembered,
            "unfinished": view.line,
        },
        "held": held,
        "reused": {"turns": record.reused_turns, "tokens": record.reused_tokens},
        "notices": view.notices,
        "urls": {
            "self": base,
            "turns": f"{base}/turns",
            "interrupt": f"{base}/interrupt",
            "events": f"{base}/events",
        },
    }
