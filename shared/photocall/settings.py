"""Settings of every room: the only module that reads the environment.

A setting is a dataclass field that names its variable, its default, its parser and what it is for; `table()` prints
them for the documentation. A value that cannot be taken stops the start with the variable and the value named; nothing
falls back to a default silently.
"""

# ruff: noqa: RUF009  `setting(...)` makes a dataclass field; its defaults are immutable
from __future__ import annotations

import ipaddress
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit

from photocall.addresses import Network
from photocall.key_limits import MOST, BadLimit, parse_rate
from photocall.views import AUTO, Budget, parse_colour

_IDENTIFIER = re.compile(r"[A-Za-z0-9._:-]{1,128}")
MIB = 1 << 20
DAY_S = 86_400

# What one step holds where nobody says otherwise. On the CPU the tower takes as long as many steps of answers, so one
# typical picture. On a GPU a row is cheapest in the largest step, and a picture's tower pass costs a fraction of its
# rows, so a step may be full of new pictures.
STEP_ROWS = {"cpu": 1536, "cuda": 4096}
STEP_SOFT_TOKENS = {"cpu": 140, "cuda": 4096}


class SettingsError(Exception):
    """A variable whose value cannot be taken; the message names both."""

    def __init__(self, variable: str, value: str, expected: str) -> None:
        super().__init__(f"{variable}={value!r}: expected {expected}")
        self.variable = variable
        self.value = value


class _Expected(ValueError):
    """What a parser wanted to see."""


def setting(variable: str, default: Any, parse: Callable[[str], Any], doc: str, secret: bool = False) -> Any:
    """A dataclass field that is read from `variable`. A secret's value stays out of the repr and of errors."""
    return field(
        default=default, repr=not secret, metadata={"variable": variable, "parse": parse, "doc": doc, "secret": secret}
    )


def text(value: str) -> str:
    """Any text but the empty one."""
    if not value:
        raise _Expected("a value that is not empty")
    return value


def identifier(value: str) -> str:
    """What may be part of a Redis key."""
    if not _IDENTIFIER.fullmatch(value):
        raise _Expected("up to 128 letters, digits and . _ : -")
    return value


def path(value: str) -> Path:
    """A path; `~` is the home directory."""
    return Path(text(value)).expanduser()


def integer(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """A whole number within bounds."""
    wanted = f"an integer >= {minimum}" if maximum is None else f"an integer from {minimum} to {maximum}"

    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise _Expected(wanted) from None
        if number < minimum or (maximum is not None and number > maximum):
            raise _Expected(wanted)
        return number

    return parse


def zero_or(parse: Callable[[str], int]) -> Callable[[str], int]:
    """`0`, which leaves the choice to the process, or what `parse` takes."""

    def either(value: str) -> int:
        if value == "0":
            return 0
        try:
            return parse(value)
        except _Expected as expected:
            raise _Expected(f"0, or {expected}") from None

    return either


def seconds(minimum: float) -> Callable[[str], float]:
    """A duration in seconds."""
    wanted = f"a number of seconds >= {minimum:g}"

    def parse(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            raise _Expected(wanted) from None
        if not minimum <= number < float("inf"):
            raise _Expected(wanted)
        return number

    return parse


def fraction(value: str) -> float:
    """A share of something, above 0 and up to 1."""
    try:
        number = float(value)
    except ValueError:
        raise _Expected("a number above 0 and up to 1") from None
    if not 0.0 < number <= 1.0:
        raise _Expected("a number above 0 and up to 1")
    return number


def one_of(*allowed: str) -> Callable[[str], str]:
    """One of a few words."""

    def parse(value: str) -> str:
        if value not in allowed:
            raise _Expected("one of " + ", ".join(allowed))
        return value

    return parse


def flag(value: str) -> bool:
    """`1` or `0`."""
    return one_of("0", "1")(value) == "1"


def words(value: str) -> tuple[str, ...]:
    """Words between commas; blanks around them do not count."""
    return tuple(word.strip() for word in value.split(",") if word.strip())


def colour(value: str) -> str:
    """A colour as rrggbb, in lower case."""
    found = parse_colour(value)
    if found is None:
        raise _Expected("a colour as rrggbb, six hexadecimal digits")
    return found


def soft_tokens(value: str) -> Budget:
    """Soft tokens, 0 for the checkpoint's number, or `auto`."""
    if value == AUTO:
        return AUTO
    try:
        return integer(0, 1120)(value)
    except _Expected as expected:
        raise _Expected(f"auto, or {expected}") from None


def networks(value: str) -> tuple[Network, ...]:
    """IP networks between commas, as `10.1.0.0/16`."""
    try:
        return tuple(ipaddress.ip_network(word) for word in words(value))
    except ValueError:
        raise _Expected("IP networks between commas, as 10.1.0.0/16") from None


def rate(value: str) -> str:
    """A rate as `photocall keys` takes it."""
    try:
        parse_rate(value)
    except BadLimit as error:
        raise _Expected(str(error)) from None
    return value


def redis_url(value: str) -> str:
    """Where a Redis is: `unix:///path`, `redis://host` or `rediss://host`."""
    parts = urlsplit(value)
    if not ((parts.scheme == "unix" and parts.path) or (parts.scheme in ("redis", "rediss") and parts.hostname)):
        raise _Expected("unix:///path, redis://host:port/db or rediss://host:port/db")
    return value


def blobs_url(value: str) -> str:
    """Where patch blobs go: `dir:/path`, or a Redis without persistence."""
    if value.startswith("dir:/"):
        return value
    try:
        return redis_url(value)
    except _Expected:
        raise _Expected("dir:/absolute/path or a Redis URL") from None


class Address(NamedTuple):
    """Where a process listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(value: str) -> Address:
    """`host:port`, an IPv6 address in brackets."""
    host, _, port = value.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise _Expected("an address to listen on, as 127.0.0.1:9464")
    return Address(host, int(port))


def http_url(value: str) -> str:
    """An http or https URL with a host."""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _Expected("an http or https URL")
    return value


def _each(by_device: Mapping[str, int]) -> str:
    return ", ".join(f"{value} on {device}" for device, value in by_device.items())


def server_url(value: str) -> str:
    """Where a photocall is asked, without a slash at its end."""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _Expected("http://host:port or https://host")
    return value.rstrip("/")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Whatever is read from the environment."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read every setting of this class. Raises SettingsError."""
        values: dict[str, Any] = {}
        for item in fields(cls):
            variable = item.metadata["variable"]
            if variable not in environ:
                continue
            try:
                values[item.name] = item.metadata["parse"](environ[variable])
            except _Expected as expected:
                shown = "<hidden>" if item.metadata["secret"] else environ[variable]
                raise SettingsError(variable, shown, str(expected)) from None
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class ClientSettings(Settings):
    """Whom the Python client and the commands that ask a server talk to, where nothing else is said."""

    url: str = setting("PHOTOCALL_URL", "http://127.0.0.1:8080", server_url, "the server that is asked")
    api_key: str | None = setting("PHOTOCALL_API_KEY", None, text, "the key that it is asked with", secret=True)


def client_settings() -> ClientSettings:
    """Those of this process, for a client that is made inside somebody's program. Raises SettingsError."""
    return ClientSettings.from_env(os.environ)


@dataclass(frozen=True, kw_only=True)
class SharedSettings(Settings):
    """What every process is told."""

    redis_url: str = setting(
        "PHOTOCALL_REDIS_URL", "redis://127.0.0.1:6379/0", redis_url, "Redis with persistence", secret=True
    )
    signing_key_hex: str = setting(
        "PHOTOCALL_SIGNING_KEY", "", text, "signs every message; made in PHOTOCALL_DATA when unset", secret=True
    )
    data: Path = setting("PHOTOCALL_DATA", Path(".photocall"), path, "state directory")
    model: Path = setting("PHOTOCALL_MODEL", Path("models/mini"), path, "checkpoint directory")
    blobs: str = setting("PHOTOCALL_BLOBS", "dir:/dev/shm/photocall", blobs_url, "patch blobs", secret=True)
    blob_bytes: int = setting("PHOTOCALL_BLOB_BYTES", 512 * MIB, integer(MIB), "bytes of patch blobs kept at most")
    job_ttl_s: int = setting("PHOTOCALL_JOB_TTL_S", 3600, integer(1), "a finished job is kept so long")
    image_ttl_s: int = setting("PHOTOCALL_IMAGE_TTL_S", 3600, integer(1), "a picture no live job uses is kept so long")
    event_limit: int = setting("PHOTOCALL_EVENT_LIMIT", 1000, integer(10), "events kept per job")
    allow_networks: tuple[Network, ...] = setting(
        "PHOTOCALL_ALLOW_NETWORKS", (), networks, "private networks that pictures by URL and webhooks may reach"
    )
    log_format: Literal["line", "json"] = setting(
        "PHOTOCALL_LOG_FORMAT", "line", one_of("line", "json"), "log lines for people, or one JSON object a line"
    )
    traces: str = setting(
        "PHOTOCALL_TRACES", "", http_url, "OTLP over HTTP: traces go to this URL, as http://collector:4318/v1/traces"
    )
    failpoint: str = setting("PHOTOCALL_FAILPOINT", "", text, "tests only: die once at this named point")

    def signing_key(self) -> bytes:
        """The key all messages are signed with: the variable's, else the one in the state directory, made on need."""
        if self.signing_key_hex:
            return self.signing_key_hex.encode()
        return load_or_make_key(self.data / "signing.key")

    @property
    def model_name(self) -> str:
        """The name the checkpoint answers to: its directory's, and `photocall-mini` for the one that ships."""
        name = self.model.resolve().name
        return "photocall-mini" if name == "mini" else name


def _metrics() -> Any:
    return setting("PHOTOCALL_METRICS", None, address, "where prep or engine shows metrics; unset: nowhere")


@dataclass(frozen=True, kw_only=True)
class GatewaySettings(SharedSettings):
    """The gateway's own."""

    host: str = setting("PHOTOCALL_HOST", "127.0.0.1", text, "address the gateway listens on")
    port: int = setting("PHOTOCALL_PORT", 8080, integer(0, 65535), "port the gateway listens on; 0 takes a free one")
    behind_loopback: bool = setting(
        "PHOTOCALL_BEHIND_LOOPBACK", False, flag, "the port is published on loopback only, so no API key is needed"
    )
    api_keys: Path | None = setting("PHOTOCALL_API_KEYS", None, path, "file of API keys; `photocall keys` makes it")
    allowed_hosts: tuple[str, ...] = setting("PHOTOCALL_ALLOWED_HOSTS", (), words, "further names in the Host header")
    max_body_bytes: int = setting("PHOTOCALL_MAX_BODY_BYTES", 32 * MIB, integer(1024), "largest request body")
    max_decompressed_bytes: int = setting(
        "PHOTOCALL_MAX_DECOMPRESSED_BYTES", 64 * MIB, integer(1024), "largest request body after decompression"
    )
    max_image_bytes: int = setting("PHOTOCALL_MAX_IMAGE_BYTES", 32 * MIB, integer(1024), "largest picture file")
    max_text_chars: int = setting(
        "PHOTOCALL_MAX_TEXT_CHARS", 1_000_000, integer(1000), "characters of state and questions together at most"
    )
    max_images: int = setting("PHOTOCALL_MAX_IMAGES", 32, integer(1), "different pictures of one request at most")
    max_queue_depth: int = setting("PHOTOCALL_MAX_QUEUE_DEPTH", 1024, integer(1), "unfinished jobs accepted at most")
    max_queue_depth_per_key: int = setting(
        "PHOTOCALL_MAX_QUEUE_DEPTH_PER_KEY", 512, integer(1), "unfinished jobs of one API key at most"
    )
    max_queue_bytes: int = setting(
        "PHOTOCALL_MAX_QUEUE_BYTES", 1024 * MIB, integer(MIB), "bytes kept for unfinished jobs at most"
    )
    max_queue_bytes_per_key: int = setting(
        "PHOTOCALL_MAX_QUEUE_BYTES_PER_KEY", 512 * MIB, integer(MIB), "bytes kept for one API key's unfinished jobs"
    )
    fetch_urls: bool = setting("PHOTOCALL_FETCH_URLS", False, flag, "pictures may be named by https URLs")
    console: bool = setting("PHOTOCALL_CONSOLE", True, flag, "the web console is served at /")
    webhooks: bool = setting("PHOTOCALL_WEBHOOKS", True, flag, "a job may name a webhook; rows of batches have none")
    sync_wait_s: float = setting("PHOTOCALL_SYNC_WAIT_S", 9.0, seconds(0.1), "a synchronous call is answered by then")
    sync_queue_s: float = setting(
        "PHOTOCALL_SYNC_QUEUE_S", 3.0, seconds(0.0), "a synchronous call that would wait longer in the queue is refused"
    )
    max_wait_s: float = setting("PHOTOCALL_MAX_WAIT_S", 60.0, seconds(0.0), "longest `Prefer: wait`")
    default_deadline_s: float = setting("PHOTOCALL_DEADLINE_S", 3600.0, seconds(1.0), "a job without one gets this")
    drain_s: float = setting("PHOTOCALL_DRAIN_S", 10.0, seconds(0.0), "time for open calls at shutdown")
    drain_notice_s: float = setting(
        "PHOTOCALL_DRAIN_NOTICE_S", 0.0, seconds(0.0), "at shutdown /readyz says so, and calls are still taken, so long"
    )
    max_file_bytes: int = setting("PHOTOCALL_MAX_FILE_BYTES", 4096 * MIB, integer(1024), "largest file of a batch")
    max_files_per_key: int = setting("PHOTOCALL_MAX_FILES_PER_KEY", 1000, integer(1), "files of one API key at most")
    file_ttl_s: int = setting(
        "PHOTOCALL_FILE_TTL_S", 30 * DAY_S, integer(1), "files without an expiry and ended batches are kept so long"
    )
    calibration_ttl_s: int = setting(
        "PHOTOCALL_CALIBRATION_TTL_S", 90 * DAY_S, integer(1), "a stored calibration is kept so long after its last use"
    )
    max_calibrations_per_key: int = setting(
        "PHOTOCALL_MAX_CALIBRATIONS_PER_KEY", 100, integer(1), "stored calibrations of one API key at most"
    )
    min_free_bytes: int = setting(
        "PHOTOCALL_MIN_FREE_BYTES", 256 * MIB, integer(0), "no file is taken while the disk has less room than this"
    )
    max_batch_rows: int = setting("PHOTOCALL_MAX_BATCH_ROWS", 10_000_000, integer(1), "rows of one batch at most")
    batch_in_flight: int = setting(
        "PHOTOCALL_BATCH_IN_FLIGHT", 256, integer(1), "rows of one batch that are jobs at once, at most"
    )
    batch_root: Path | None = setting(
        "PHOTOCALL_BATCH_ROOT", None, path, "folders of pictures below it may be batches; unset: none may"
    )
    model_aliases: tuple[str, ...] = setting(
        "PHOTOCALL_MODEL_ALIASES",
        ("jev-latest", "jev-preview", "jev-1.*", "nimble-latest"),
        words,
        "further names the model answers to; `*` stands for anything",
    )


@dataclass(frozen=True, kw_only=True)
class KeySettings(SharedSettings):
    """What `photocall keys` gives a new key where its command line says nothing."""

    api_keys: Path | None = setting("PHOTOCALL_API_KEYS", None, path, "file of API keys; `photocall keys` makes it")
    key_rate: str = setting("PHOTOCALL_KEY_RATE", "", rate, "calls a new API key may make: 10/s, 600/min; unset: any")
    key_burst: int = setting("PHOTOCALL_KEY_BURST", 0, integer(0, MOST), "of these at once; 0: as the rate's number")
    key_concurrency: int = setting(
        "PHOTOCALL_KEY_CONCURRENCY", 0, integer(0, MOST), "unfinished jobs a new API key may have; 0: any number"
    )


@dataclass(frozen=True, kw_only=True)
class PrepSettings(SharedSettings):
    """The prep worker's own."""

    budget: Budget = setting(
        "PHOTOCALL_BUDGET",
        0,
        soft_tokens,
        "soft tokens a picture; 0 takes the checkpoint's; auto goes by size and detail",
    )
    background: str = setting("PHOTOCALL_BACKGROUND", "ffffff", colour, "rrggbb behind what is transparent")
    max_image_bytes: int = setting("PHOTOCALL_MAX_IMAGE_BYTES", 32 * MIB, integer(1024), "largest picture file")
    fidelity: Literal["fast", "exact"] = setting(
        "PHOTOCALL_FIDELITY",
        "fast",
        one_of("fast", "exact"),
        "exact: the reference processor's pixels, to one level; fast: as near as docs/images.md says, sooner",
    )
    fetch_urls: bool = setting("PHOTOCALL_FETCH_URLS", False, flag, "pictures may be named by https URLs")
    fetch_timeout_s: float = setting("PHOTOCALL_FETCH_TIMEOUT_S", 5.0, seconds(0.1), "time for one picture by URL")
    max_pixels: int = setting("PHOTOCALL_MAX_PIXELS", 64_000_000, integer(1), "largest picture, width x height")
    renew_pictures: int = setting(
        "PHOTOCALL_PREP_RENEW_PICTURES", 20_000, integer(0), "a prep worker begins anew after so many; 0: never"
    )
    renew_bytes: int = setting(
        "PHOTOCALL_PREP_RENEW_BYTES", 512 * MIB, integer(0), "a prep worker that holds more begins anew; 0: never"
    )
    max_frames: int = setting("PHOTOCALL_MAX_FRAMES", 1000, integer(1), "most frames or pages of one file")
    decode_s: float = setting(
        "PHOTOCALL_DECODE_S", 20.0, seconds(0.1), "a picture whose decoder takes longer is refused, the decoder killed"
    )
    decode_bytes: int = setting(
        "PHOTOCALL_DECODE_BYTES", 1536 * MIB, integer(128 * MIB), "memory that a decoder may allocate"
    )
    metrics: Address | None = _metrics()


@dataclass(frozen=True, kw_only=True)
class EngineSettings(SharedSettings):
    """The engine's own."""

    device: str = setting("PHOTOCALL_DEVICE", "cpu", one_of("cpu", "cuda"), "where the model runs")
    numerics: str = setting("PHOTOCALL_NUMERICS", "invariant", one_of("invariant", "fast"), "same bits, or cuBLAS")
    weights: str = setting(
        "PHOTOCALL_WEIGHTS", "bf16", one_of("bf16", "fp8"), "fp8 keeps the decoder's linears in 8 bits, one scale a row"
    )
    runner: str = setting("PHOTOCALL_RUNNER", "model", one_of("model", "fake"), "tests only: `fake` runs no model")
    threads: int = setting("PHOTOCALL_THREADS", 0, integer(0), "CPU threads of the model; 0 takes every core")
    pages: int = setting("PHOTOCALL_PAGES", 0, integer(0), "K/V pages; 0 plans them from memory")
    gpu_memory: float = setting(
        "PHOTOCALL_GPU_MEMORY",
        0.9,
        fraction,
        "share of the GPU's memory that may be full once the engine runs",
    )
    kv_bytes: int = setting("PHOTOCALL_KV_BYTES", 1024 * MIB, integer(MIB), "bytes of K/V on the CPU")
    max_rows: int = setting("PHOTOCALL_MAX_ROWS", 4096, integer(1136), "rows of one forward at most")
    token_budget: int = setting(  # `from_env` puts the device's for 0; likewise below
        "PHOTOCALL_TOKEN_BUDGET",
        0,
        zero_or(integer(1136)),
        f"rows the scheduler plans per step; 0 takes the device's: {_each(STEP_ROWS)}",
    )
    encode_budget: int = setting(
        "PHOTOCALL_ENCODE_BUDGET",
        0,
        zero_or(integer(1)),
        f"soft tokens of new pictures per step; a first one always; 0 takes the device's: {_each(STEP_SOFT_TOKENS)}",
    )
    max_requests: int = setting("PHOTOCALL_MAX_REQUESTS", 64, integer(1), "requests in the engine at once")
    engine_id: str = setting("PHOTOCALL_ENGINE_ID", "", identifier, "name in heartbeats; default host and process id")
    drain_s: float = setting("PHOTOCALL_DRAIN_S", 10.0, seconds(0.0), "time to finish running requests at shutdown")
    hold_s: float = setting("PHOTOCALL_SESSION_HOLD_S", 300.0, seconds(1.0), "a session's K/V is held so long at most")
    canary_s: float = setting(
        "PHOTOCALL_CANARY_S", 300.0, seconds(0.0), "an idle engine asks its start's question again so often; 0: never"
    )
    metrics: Address | None = _metrics()

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read every setting; budgets that are left to the device become the device's. Raises SettingsError."""
        settings = super().from_env(environ)
        return replace(
            settings,
            token_budget=settings.token_budget or STEP_ROWS[settings.device],
            encode_budget=settings.encode_budget or STEP_SOFT_TOKENS[settings.device],
        )


@dataclass(frozen=True, kw_only=True)
class LocalSettings(GatewaySettings):
    """What `photocall up` needs beside what it tells its processes."""

    prep_workers: int = setting(
        "PHOTOCALL_PREP_WORKERS", 0, integer(0, 64), "prep workers that `up` starts; 0: one for each core it may use"
    )
    redis_memory: int = setting("PHOTOCALL_REDIS_MEMORY", 1024 * MIB, integer(64 * MIB), "maxmemory of `up`'s Redis")
    metrics: Address | None = _metrics()


def load_or_make_key(file: Path) -> bytes:
    """Read a secret key file, or make it (0600). Processes that start together all get the same key."""
    try:
        return file.read_bytes().strip()
    except FileNotFoundError:
        pass
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    mine = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(secrets.token_hex(32).encode())
        out.flush()
        os.fsync(out.fileno())
    try:
        os.link(mine, file)  # fails where another process was first; its key is the one that counts
    except FileExistsError:
        pass
    finally:
        mine.unlink()
    return file.read_bytes().strip()


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment for a process that is trusted with no key and no way to Redis."""
    read = (*fields(SharedSettings), *fields(ClientSettings))
    secret = {item.metadata["variable"] for item in read if item.metadata["secret"]}
    return {name: value for name, value in environ.items() if name not in secret}


def _readers() -> dict[str, type[Settings]]:
    return {
        "all": SharedSettings,
        "gateway": GatewaySettings,
        "prep": PrepSettings,
        "engine": EngineSettings,
        "up": LocalSettings,
        "keys": KeySettings,
        "client": ClientSettings,
    }


def known_variables() -> frozenset[str]:
    """Every variable that is a setting."""
    return frozenset(item.metadata["variable"] for cls in _readers().values() for item in fields(cls))


def described(environ: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Every setting, for programs: variable, default, what it is, and what is set; a secret's value is never told."""
    found = {item.metadata["variable"]: item for cls in _readers().values() for item in fields(cls)}
    for variable, item in found.items():
        value = environ.get(variable)
        yield {
            "variable": variable,
            "default": _shown(item.default).strip("`"),
            "what": item.metadata["doc"],
            "set": "<hidden>" if value is not None and item.metadata["secret"] else value,
        }


def table() -> str:
    """Every setting as a Markdown table, for the documentation."""
    readers = _readers()
    owners: dict[str, list[str]] = {}
    rows: dict[str, str] = {}
    for owner, cls in readers.items():
        inherited = {item.name for base in cls.__mro__[1:] if base is not object for item in fields(base)}
        for item in fields(cls):
            if item.name not in inherited:
                variable = item.metadata["variable"]
                owners.setdefault(variable, []).append(owner)
                rows[variable] = f"{_shown(item.default)} | {item.metadata['doc']}"
    lines = ["| variable | read by | default | what it is |", "|---|---|---|---|"]
    lines += [f"| `{variable}` | {', '.join(owners[variable])} | {row} |" for variable, row in rows.items()]
    return "\n".join(lines) + "\n"


def _shown(default: Any) -> str:
    if default is None or default in ("", ()):
        return ""
    if isinstance(default, bool):
        return f"`{int(default)}`"
    if isinstance(default, tuple):
        return f"`{','.join(map(str, default))}`"
    return f"`{default}`"
