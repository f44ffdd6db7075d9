"""Settings: read once, refused by name, never silently replaced."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path

import pytest

from photocall.settings import (
    ClientSettings,
    EngineSettings,
    GatewaySettings,
    KeySettings,
    LocalSettings,
    PrepSettings,
    SettingsError,
    SharedSettings,
    load_or_make_key,
    table,
    without_secrets,
)

ALL = (SharedSettings, GatewaySettings, KeySettings, PrepSettings, EngineSettings, LocalSettings)


@pytest.mark.parametrize("cls", ALL)
def test_defaults_without_an_environment(cls: type[SharedSettings]) -> None:
    settings = cls.from_env({})
    assert settings.redis_url == "redis://127.0.0.1:6379/0"
    assert cls.from_env({"PHOTOCALL_UNRELATED": "1"}) == settings


def test_values_are_read() -> None:
    settings = GatewaySettings.from_env(
        {
            "PHOTOCALL_REDIS_URL": "unix:///run/x.sock",
            "PHOTOCALL_PORT": "0",
            "PHOTOCALL_SYNC_WAIT_S": "2.5",
            "PHOTOCALL_BEHIND_LOOPBACK": "1",
            "PHOTOCALL_MODEL_ALIASES": "a, b-*,",
            "PHOTOCALL_DATA": "/var/lib/photocall",
            "PHOTOCALL_BLOBS": "redis://blobs:6379/0",
        }
    )
    assert settings.redis_url == "unix:///run/x.sock"
    assert (settings.port, settings.sync_wait_s, settings.behind_loopback) == (0, 2.5, True)
    assert settings.model_aliases == ("a", "b-*")
    assert settings.data == Path("/var/lib/photocall")


@pytest.mark.parametrize(
    ("cls", "variable", "value"),
    [
        (GatewaySettings, "PHOTOCALL_PORT", "x"),
        (EngineSettings, "PHOTOCALL_ENGINE_ID", "gpu 1"),
        (EngineSettings, "PHOTOCALL_ENGINE_ID", "x" * 129),
        (PrepSettings, "PHOTOCALL_BUDGET", "most"),
        (PrepSettings, "PHOTOCALL_BUDGET", "1121"),
        (PrepSettings, "PHOTOCALL_BACKGROUND", "white"),
        (PrepSettings, "PHOTOCALL_FIDELITY", "best"),
        (GatewaySettings, "PHOTOCALL_PORT", "70000"),
        (GatewaySettings, "PHOTOCALL_PORT", ""),
        (EngineSettings, "PHOTOCALL_GPU_MEMORY", "0"),
        (EngineSettings, "PHOTOCALL_GPU_MEMORY", "1.1"),
        (EngineSettings, "PHOTOCALL_GPU_MEMORY", "90%"),
        (EngineSettings, "PHOTOCALL_GPU_MEMORY", "nan"),
        (GatewaySettings, "PHOTOCALL_SYNC_WAIT_S", "-1"),
        (GatewaySettings, "PHOTOCALL_SYNC_WAIT_S", "nan"),
        (GatewaySettings, "PHOTOCALL_SYNC_WAIT_S", "inf"),
        (GatewaySettings, "PHOTOCALL_BEHIND_LOOPBACK", "yes"),
        (GatewaySettings, "PHOTOCALL_HOST", ""),
        (SharedSettings, "PHOTOCALL_BLOBS", "/dev/shm/x"),
        (SharedSettings, "PHOTOCALL_BLOBS", "dir:relative"),
        (SharedSettings, "PHOTOCALL_JOB_TTL_S", "0"),
        (EngineSettings, "PHOTOCALL_DEVICE", "tpu"),
        (EngineSettings, "PHOTOCALL_MAX_ROWS", "64"),
        (EngineSettings, "PHOTOCALL_TOKEN_BUDGET", "1135"),
        (EngineSettings, "PHOTOCALL_ENCODE_BUDGET", "-1"),
        (PrepSettings, "PHOTOCALL_BUDGET", "5000"),
        (LocalSettings, "PHOTOCALL_PREP_WORKERS", "-1"),
        (KeySettings, "PHOTOCALL_KEY_RATE", "10"),
        (KeySettings, "PHOTOCALL_KEY_CONCURRENCY", "-1"),
    ],
)
def test_a_bad_value_is_refused_by_name(cls: type[SharedSettings], variable: str, value: str) -> None:
    if variable == "PHOTOCALL_BLOBS":  # a secret: it may hold a password
        with pytest.raises(SettingsError, match=f"^{variable}='<hidden>': expected "):
            cls.from_env({variable: value})
        return
    with pytest.raises(SettingsError) as refused:
        cls.from_env({variable: value})
    assert str(refused.value).startswith(f"{variable}={value!r}: expected ")


@pytest.mark.parametrize(("device", "rows", "soft_tokens"), [("cpu", 1536, 140), ("cuda", 4096, 4096)])
def test_a_step_is_as_large_as_the_device_wants(device: str, rows: int, soft_tokens: int) -> None:
    settings = EngineSettings.from_env({"PHOTOCALL_DEVICE": device})
    assert (settings.token_budget, settings.encode_budget) == (rows, soft_tokens)
    assert settings.token_budget <= settings.max_rows, "a forward that cannot hold the step would cut it silently"
    zeros = {"PHOTOCALL_TOKEN_BUDGET": "0", "PHOTOCALL_ENCODE_BUDGET": "0"}
    assert EngineSettings.from_env({"PHOTOCALL_DEVICE": device, **zeros}) == settings
    told = EngineSettings.from_env(
        {"PHOTOCALL_DEVICE": device, "PHOTOCALL_TOKEN_BUDGET": "1200", "PHOTOCALL_ENCODE_BUDGET": "280"}
    )
    assert (told.token_budget, told.encode_budget) == (1200, 280)


def test_how_pictures_are_prepared() -> None:
    told = {"PHOTOCALL_BUDGET": "auto", "PHOTOCALL_BACKGROUND": "#FFaa00", "PHOTOCALL_FIDELITY": "exact"}
    settings = PrepSettings.from_env(told)
    assert (settings.budget, settings.background, settings.fidelity) == ("auto", "ffaa00", "exact")
    assert PrepSettings.from_env({"PHOTOCALL_BUDGET": "280"}).budget == 280
    assert PrepSettings.from_env({}).background == "ffffff"


def test_whom_a_client_asks() -> None:
    assert ClientSettings.from_env({}) == ClientSettings(url="http://127.0.0.1:8080", api_key=None)
    environ = {"PHOTOCALL_URL": "https://photos.example/", "PHOTOCALL_API_KEY": "hush", "PHOTOCALL_REDIS_URL": "x"}
    told = ClientSettings.from_env(environ)
    assert (told.url, told.api_key) == ("https://photos.example", "hush"), "what is not a client's is not read"
    assert "hush" not in repr(told)
    assert without_secrets(environ) == {"PHOTOCALL_URL": "https://photos.example/"}
    for bad in ("photos.example:8080", "ftp://photos.example", "http://"):
        with pytest.raises(SettingsError, match="PHOTOCALL_URL"):
            ClientSettings.from_env({"PHOTOCALL_URL": bad})


@pytest.mark.parametrize("url", ["localhost:6379", "http://x", "redis://", "unix://", "password"])
def test_a_bad_redis_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        SharedSettings.from_env({"PHOTOCALL_REDIS_URL": url})
    assert "PHOTOCALL_REDIS_URL='<hidden>'" in str(refused.value)


def test_secrets_are_not_in_the_repr() -> None:
    settings = SharedSettings.from_env(
        {"PHOTOCALL_REDIS_URL": "redis://:hush@host", "PHOTOCALL_SIGNING_KEY": "hush", "PHOTOCALL_BLOBS": "dir:/hush"}
    )
    assert "hush" not in repr(settings)


def test_the_signing_key_is_made_once_and_private(tmp_path: Path) -> None:
    settings = SharedSettings.from_env({"PHOTOCALL_DATA": str(tmp_path / "new")})
    key = settings.signing_key()
    assert len(key) == 64
    assert settings.signing_key() == key
    assert stat.S_IMODE((tmp_path / "new" / "signing.key").stat().st_mode) == 0o600
    assert SharedSettings.from_env({"PHOTOCALL_SIGNING_KEY": "k"}).signing_key() == b"k"


def test_processes_that_start_together_get_the_same_key(tmp_path: Path) -> None:
    keys: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: keys.append(load_or_make_key(tmp_path / "signing.key"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(keys)) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["signing.key"]


def test_the_table_has_every_variable_once() -> None:
    variables = {item.metadata["variable"] for cls in (*ALL, ClientSettings) for item in fields(cls)}
    lines = table().splitlines()[2:]
    assert sorted(line.split("`")[1] for line in lines) == sorted(variables)
    assert "| `PHOTOCALL_PORT` | gateway | `8080` |" in table()
    assert "| `PHOTOCALL_DRAIN_S` | gateway, engine | `10.0` |" in table()


def test_the_cli_prints_the_table() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "photocall.cli", "settings"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == table()
