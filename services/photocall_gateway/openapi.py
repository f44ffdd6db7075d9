"""The description of the API, put together from the routes: each stands beside its own part of it (described.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.routing import BaseRoute

from photocall import __version__
from photocall_gateway.described import Described, DescribedSocket
from photocall_gateway.openapi_parts import Schema
from photocall_gateway.openapi_schemas import SCHEMAS


def document(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """OpenAPI 3.1 of these routes. Raises ValueError for a schema that two routes describe differently."""
    paths: dict[str, dict[str, Schema]] = {}
    schemas = dict(SCHEMAS)
    for route in routes:
        if not isinstance(route, Described | DescribedSocket):
            raise ValueError(f"{route} has no description")
        paths.setdefault(route.path, {})[route.method.lower()] = route.operation
        for name, schema in route.schemas.items():
            if schemas.setdefault(name, schema) != schema:
                raise ValueError(f"schema {name} has two meanings")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "photocall",
            "version": __version__,
            "description": "Ask a picture typed questions; get answers with probabilities.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }
