"""JSON schemas of the types that the code itself uses, so that what is described cannot drift from what is made.

A TypedDict becomes an object (its NotRequired keys are optional), a Literal an enum, and so on; a type that is not
known here is an error, never a gap. A class' docstring becomes the description.
"""

from __future__ import annotations

import types
import typing
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from photocall_gateway.openapi_parts import Schema, obj

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
}


def schema_of(kind: Any) -> Schema:
    """The JSON schema of a type. Raises TypeError for one that JSON has no word for."""
    if kind is Any:
        return {}
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if is_typeddict(kind):
        return _object(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    if origin is NotRequired:
        return schema_of(arguments[0])
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    if origin in (Union, types.UnionType):
        return _union([schema_of(argument) for argument in arguments])
    raise TypeError(f"no JSON schema for {kind}")


def _union(options: list[Schema]) -> Schema:
    names = [option["type"] for option in options if set(option) == {"type"}]
    if len(names) < len(options):
        return {"anyOf": options}
    if "number" in names and "integer" in names:
        names.remove("integer")  # which a number may be anyway
    return {"type": names[0] if len(names) == 1 else names}


def _object(kind: Any) -> Schema:
    hints = get_type_hints(kind, include_extras=True)
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    described = obj(
        tuple(name for name in hints if name not in optional),
        **{name: schema_of(typing.get_args(hint)[0] if name in optional else hint) for name, hint in hints.items()},
    )
    said = " ".join((kind.__doc__ or "").split())
    return {**described, "description": said} if said else described
