"""What `photocall up` would start, and that it keeps to itself."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from photocall.local import AlreadyRunning, LocalStack, private_directory
from photocall.settings import SettingsError


def plan(tmp_path: Path, **environ: str) -> LocalStack:
    return LocalStack.plan({"PHOTOCALL_DATA": str(tmp_path / "data"), "PHOTOCALL_PORT": "0", **environ})


def test_the_processes(tmp_path: Path) -> None:
    stack = plan(tmp_path, PHOTOCALL_PREP_WORKERS="2", PHOTOCALL_REDIS_MEMORY="100000000")
    with stack.held():
        assert [spec.name for spec in stack.specs] == ["redis", "prep-1", "prep-2", "engine", "gateway"]
        assert [spec.stage for spec in stack.specs] == [0, 1, 1, 1, 2]
        redis, gateway = stack.specs[0], stack.specs[-1]
        assert redis.command[redis.command.index("--maxmemory") + 1] == "100000000"
        assert redis.ready is not None
        assert not redis.ready()
        told = gateway.environment
        assert told["PHOTOCALL_REDIS_URL"] == stack.redis_url == f"unix://{stack.run_dir}/redis.sock"
        assert told["PHOTOCALL_BLOBS"] == f"dir:{stack.blob_dir}"
        assert told["PHOTOCALL_PORT"] == str(stack.port) != "0"
        assert len(told["PHOTOCALL_SIGNING_KEY"]) == 64
        assert len({spec.environment["PHOTOCALL_SIGNING_KEY"] for spec in stack.specs[1:]}) == 1
        assert not any(name.startswith("PHOTOCALL_") for name in redis.environment)  # it needs no secrets
        assert stack.address == f"http://127.0.0.1:{stack.port}"
        assert len(str(stack.run_dir)) < 60
    assert stack.run_dir is not None
    assert not stack.run_dir.exists()
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (3, 3), (256, 64)])
def test_a_prep_worker_for_each_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, workers: int) -> None:
    """Of those this process may use: in a container these are fewer than the machine has."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    names = [spec.name for spec in plan(tmp_path).specs]
    assert [name for name in names if name.startswith("prep-")] == [f"prep-{n}" for n in range(1, workers + 1)]


def test_the_operators_own_redis_and_blobs_are_used(tmp_path: Path) -> None:
    stack = plan(tmp_path, PHOTOCALL_REDIS_URL="redis://elsewhere:6379/0", PHOTOCALL_BLOBS=f"dir:{tmp_path}/b")
    assert [spec.name for spec in stack.specs] == ["prep-1", "prep-2", "engine", "gateway"]
    assert (stack.run_dir, stack.blob_dir) == (None, None)
    assert stack.specs[0].environment["PHOTOCALL_REDIS_URL"] == "redis://elsewhere:6379/0"


def test_two_state_directories_do_not_share(tmp_path: Path) -> None:
    one, other = plan(tmp_path / "1"), plan(tmp_path / "2")
    with one.held(), other.held():
        assert one.run_dir != other.run_dir
        assert one.blob_dir != other.blob_dir


def test_one_supervisor_per_state_directory(tmp_path: Path) -> None:
    stack = plan(tmp_path)
    with stack.held():
        with pytest.raises(AlreadyRunning, match="already running"), plan(tmp_path).held():
            pass
        assert stack.run_dir is not None
        assert stack.run_dir.exists()  # the one that was refused took nothing away


def test_a_socket_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(SettingsError):
        private_directory(tmp_path / "open")
    (tmp_path / "link").symlink_to(tmp_path / "open")
    with pytest.raises(SettingsError):
        private_directory(tmp_path / "link")


def test_a_bad_setting_stops_up_with_status_2(tmp_path: Path) -> None:
    environ = {"PHOTOCALL_DATA": str(tmp_path / "data"), "PHOTOCALL_PORT": "x"}
    up = subprocess.run(
        [sys.executable, "-m", "photocall.cli", "up"], env=environ, capture_output=True, text=True, check=False
    )
    assert up.returncode == 2
    assert "PHOTOCALL_PORT='x': expected an integer" in up.stderr
    assert not (tmp_path / "data").exists()


def test_a_port_in_use_and_a_missing_checkpoint_are_said_before_anything_starts(tmp_path: Path) -> None:
    """With another server on its port, `up` said at once that it was ready."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        stack = plan(tmp_path, PHOTOCALL_PORT=str(port), PHOTOCALL_MODEL=str(tmp_path / "model"))
        with pytest.raises(SettingsError, match=f"PHOTOCALL_PORT='{port}'.*in use"):
            stack.check()
    stack.check()
    with pytest.raises(SettingsError, match="PHOTOCALL_MODEL='/nowhere': expected a checkpoint directory"):
        plan(tmp_path, PHOTOCALL_MODEL="/nowhere").check()
