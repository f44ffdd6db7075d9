"""Fields of a parsed JSON object, read with their type; what is wrong is said with the field's dotted name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ConfigError(ValueError):
    """A field of config.json is missing, malformed or not supported; the message starts with its dotted name."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"config.json: {field}: {problem}")
        self.field = field


class Fields:
    """A JSON object that knows its own name, so that errors can say which field they mean."""

    def __init__(self, raw: Mapping[str, Any], name: str) -> None:
        self._raw = raw
        self._name = name

    def dotted(self, field: str) -> str:
        return f"{self._name}.{field}" if self._name else field

    def fail(self, field: str, problem: str) -> ConfigError:
        return ConfigError(self.dotted(field), problem)

    def has(self, field: str) -> bool:
        return self._raw.get(field) is not None

    def written(self, field: str) -> bool:
        """The field is there, if only as null."""
        return field in self._raw

    def get(self, field: str, default: Any = None) -> Any:
        value = self._raw.get(field)
        return default if value is None else value

    def section(self, field: str) -> Fields:
        value = self._raw.get(field)
        if not isinstance(value, Mapping):
            raise self.fail(field, "expected an object")
        return Fields(value, self.dotted(field))

    def optional_section(self, field: str) -> Fields | None:
        return self.section(field) if self.has(field) else None

    def known(self, names: list[str], problem: str) -> None:
        """Every field is one of `names`."""
        for name in self._raw:
            if name not in names:
                raise self.fail(name, problem)

    def integer(self, field: str, default: int | None = None, minimum: int = 1) -> int:
        value = self.get(field, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise self.fail(field, f"expected an integer >= {minimum}, got {value!r}")
        return value

    def number(self, field: str, default: float | None = None) -> float:
        value = self.get(field, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise self.fail(field, f"expected a number > 0, got {value!r}")
        return float(value)

    def flag(self, field: str, default: bool = False) -> bool:
        value = self.get(field, default)
        if not isinstance(value, bool):
            raise self.fail(field, f"expected true or false, got {value!r}")
        return value

    def only(self, field: str, allowed: Any) -> None:
        """The field may be absent or hold `allowed`."""
        if self.has(field) and self._raw[field] != allowed:
            raise self.fail(field, f"{self._raw[field]!r} is not supported, only {allowed!r}")
