"""What an API key must be for to make a call, by its method and path."""

from __future__ import annotations

# Channels ask for a scope message by message.
_ANY = frozenset({"/v1/models", "/v1/status", "/v1/webhooks/secret", "/v1/channels"})
_BATCH = ("/v1/files", "/v1/batches")
_SEEN_BY_ADMINS = ("/v1/jobs", "/v1/batches")
_ADMIN = ("/v1/keys",)


def scopes_for(method: str, path: str) -> tuple[str, ...]:
    """One of these is needed, the first for a caller of its own things; none: any key will do."""
    if path in _ANY:
        return ()
    if _below(path, _ADMIN):
        return ("admin",)
    scope = "batch" if _below(path, _BATCH) else "ask"
    reads_or_ends = method in ("GET", "HEAD") or (method == "POST" and path.endswith("/cancel"))
    return (scope, "admin") if reads_or_ends and _below(path, _SEEN_BY_ADMINS) else (scope,)


def _below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)
