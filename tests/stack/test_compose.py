"""docker-compose.yml and ops/Dockerfile keep to what compose 1.29 and v2, the classic builder and BuildKit all know."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from photocall.settings import GatewaySettings

ROOT = Path(__file__).parents[2]
COMPOSE = (ROOT / "docker-compose.yml").read_text()
DOCKERFILE = (ROOT / "ops" / "Dockerfile").read_text()
STACK = yaml.safe_load(COMPOSE)
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
OURS = ("gateway", "prep", "engine")
ASIDE = {"proxy": "proxy", "prometheus": "metrics", "grafana": "metrics", "rq-dashboard": "rq-dashboard"}
GPU = yaml.safe_load((ROOT / "ops" / "docker-compose.gpu.yml").read_text())
NEWER_KEYS = {"start_interval", "gpus", "develop", "required", "include", "extends", "configs", "pull_policy"}


def all_keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*(all_keys(item) for item in value.values()))
    return set().union(*(all_keys(item) for item in value)) if isinstance(value, list) else set()


def test_no_key_that_compose_1_29_does_not_know() -> None:
    assert all_keys(SERVICES) & NEWER_KEYS == set()
    assert {key for key in STACK if not key.startswith("x-")} == {"services", "networks", "volumes"}


def test_no_syntax_that_compose_1_29_does_not_know() -> None:
    assert "!reset" not in COMPOSE
    assert "!override" not in COMPOSE
    variables = re.findall(r"(?<!\$)\$\{[^}]*\}", COMPOSE)
    assert variables
    assert [v for v in variables if not re.fullmatch(r"\$\{\w+(:-[^}]*|:\?[^}]+)\}", v)] == []
    assert all(isinstance(service.get("env_file", ""), str) for service in SERVICES.values())


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_contained(name: str) -> None:
    service = SERVICES[name]
    assert service["init"] is True
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert any(mount.startswith("/tmp:") for mount in service["tmpfs"])
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert service["healthcheck"]["test"]
    assert "container_name" not in service, "it could not be scaled, nor two stacks run side by side"


def test_what_stands_beside_the_service_comes_on_demand_only() -> None:
    found = {name: service["profiles"] for name, service in SERVICES.items() if "profiles" in service}
    assert found == {name: [profile] for name, profile in ASIDE.items()}
    assert not [each for service in SERVICES.values() for each in service.get("depends_on", ()) if each in ASIDE]


def test_only_the_gateway_is_published_and_what_is_asked_for_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert set(published) == {"gateway", "proxy", "grafana", "rq-dashboard"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    assert SERVICES["gateway"]["environment"]["PHOTOCALL_BEHIND_LOOPBACK"] == "1"
    assert STACK["networks"]["inside"] == {"internal": True}
    assert {name for name, service in SERVICES.items() if service["networks"] != ["inside"]} == set(published)


@pytest.mark.parametrize("name", OURS)
def test_the_grace_period_is_longer_than_the_drain(name: str) -> None:
    environment = SERVICES[name]["environment"]
    drain = float(environment.get("PHOTOCALL_DRAIN_S", 10)) + float(environment.get("PHOTOCALL_DRAIN_NOTICE_S", 0))
    assert float(SERVICES[name]["stop_grace_period"].removesuffix("s")) >= drain + 10


@pytest.mark.parametrize("name", OURS)
def test_secrets_are_demanded(name: str) -> None:
    environment = SERVICES[name]["environment"]
    assert environment["PHOTOCALL_SIGNING_KEY"].startswith("${PHOTOCALL_SIGNING_KEY:?")
    assert "${PHOTOCALL_REDIS_PASSWORD:?" in environment["PHOTOCALL_REDIS_URL"]


def test_redis_keeps_what_it_is_given() -> None:
    command = SERVICES["redis"]["command"][-1]
    for line in (
        "appendonly yes",
        "appendfsync always",
        "maxmemory-policy noeviction",
        "requirepass $${REDISCLI_AUTH}",
    ):
        assert line in command.splitlines(), line


def test_two_prep_workers_share_their_blobs_with_the_engine_in_memory() -> None:
    assert SERVICES["prep"]["scale"] == 2
    assert all("blobs:/blobs" in SERVICES[name]["volumes"] for name in ("prep", "engine"))
    assert STACK["volumes"]["blobs"]["driver_opts"]["type"] == "tmpfs"


def test_settings_in_the_compose_file_exist() -> None:
    from photocall.settings import table

    known = set(re.findall(r"`(PHOTOCALL_\w+)`", table()))
    used = {key for name in OURS for key in SERVICES[name]["environment"]}
    used |= {key for key in GPU["services"]["engine"]["environment"] if key.startswith("PHOTOCALL_")}
    assert len(used) >= 8
    assert used - known == set()


def test_files_that_are_mounted_are_there_and_nobody_may_change_them() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", ()) if mount.startswith("./")]
    assert len(mounts) == 6
    for mount in mounts:
        source, _, mode = mount.split(":")
        assert (ROOT / source).is_file(), mount
        assert mode == "ro"


def test_nobody_can_log_in_to_grafana_and_it_calls_nobody() -> None:
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    calls = ("REPORTING_ENABLED", "UPDATES", "FEED_ENABLED", "EXTERNAL_ENABLED")
    assert [value for name, value in environment.items() if name.endswith(calls)] == ["false"] * 5


def test_prometheus_looks_where_the_rooms_show_their_metrics() -> None:
    scraped = yaml.safe_load((ROOT / "ops" / "metrics" / "prometheus.yml").read_text())["scrape_configs"]
    found = {each["dns_sd_configs"][0]["names"][0]: each["dns_sd_configs"][0]["port"] for each in scraped}
    shown = {name: int(SERVICES[name]["environment"]["PHOTOCALL_METRICS"].partition(":")[2]) for name in OURS[1:]}
    assert found == {"gateway": int(SERVICES["gateway"]["environment"]["PHOTOCALL_PORT"]), **shown}


def test_the_proxy_hears_of_a_gateway_that_leaves_in_time() -> None:
    """It looks each second, and a gateway that says so on /readyz takes calls for longer than that."""
    config = (ROOT / "ops" / "proxy" / "haproxy.cfg").read_text()
    assert "uri /readyz" in config
    assert """expect string '"draining":false'""" in config, "what /readyz says, and not whether an engine is there"
    assert "inter 1s fall 1" in config
    assert float(SERVICES["gateway"]["environment"]["PHOTOCALL_DRAIN_NOTICE_S"]) >= 2
    assert re.findall(r"retry-on (.*)", config) == ["conn-failure"], "a call that has begun may be an accepted job"
    assert f" gateway:{SERVICES['gateway']['environment']['PHOTOCALL_PORT']} " in config
    longest = float(re.findall(r"timeout server (\d+)s", config)[0])
    assert longest > GatewaySettings().max_wait_s + 10


def test_rq_dashboard_reads_no_pickles_and_wants_a_password() -> None:
    command = SERVICES["rq-dashboard"]["command"][-1]
    assert " --json" in command
    assert " --disable-delete" in command
    assert 'test -n "$${RQ_DASHBOARD_PASSWORD}" ||' in command


def test_the_gpu_file_changes_the_engine_alone_by_what_both_composes_know() -> None:
    assert set(GPU["services"]) == {"engine"}
    engine = GPU["services"]["engine"]
    assert all_keys(GPU) & NEWER_KEYS == set()
    assert engine["environment"]["PHOTOCALL_DEVICE"] == "cuda"
    [device] = engine["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]
    assert engine["environment"]["TRITON_CACHE_DIR"] == "/kernels"
    assert "/kernels" in DOCKERFILE.split("install -d -o photocall")[1].split("\n")[0]
    assert set(GPU["volumes"]) == {"kernels"}
    assert all(f"ARG {name}" in DOCKERFILE for name in engine["build"]["args"])


def test_the_dockerfile_needs_no_buildkit() -> None:
    assert "# syntax=" not in DOCKERFILE
    assert not re.search(r"^(RUN|COPY|ADD)\s+--(mount|network|security|link|chmod|parents|exclude)", DOCKERFILE, re.M)
    assert "<<" not in DOCKERFILE, "here-documents are BuildKit's"
    arguments = re.findall(r"^ARG (.*)$", DOCKERFILE, re.M)
    assert [line for line in arguments if " " in line] == [], "the classic builder takes one ARG a line"


def test_each_target_gets_its_own_extra_from_one_base() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    bases = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.M)
    assert [parent for parent, stage in bases if stage in OURS] == ["base", "base", "base"]
    assert [parent for parent, _ in bases if "$" in parent] == ["${BASE_IMAGE}"]
    for room in OURS:
        assert room in extras
        assert f"-r /src/{room}.txt" in DOCKERFILE
        target = DOCKERFILE.split(f" AS {room}\n")[1].split("\nFROM ")[0]
        assert "USER photocall" in target
        assert f'CMD ["python", "-m", "photocall_{room}"]' in target
        assert set(re.findall(r"/opt/photocall/(\w+) /", target)) == {"photocall", f"photocall_{room}"}


def test_the_build_context_leaves_out_what_it_does_not_need() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    copied = re.findall(r"^COPY (?!--from)(.+) /\S+$", DOCKERFILE, re.M)
    sources = {source.rstrip("/") for line in copied for source in line.split()}
    assert sources == {line[1:] for line in ignored if line.startswith("!")}


def test_no_host_of_a_registry_is_named() -> None:
    assert re.findall(r"https?://\S+", COMPOSE + DOCKERFILE) == []


def test_a_wheels_folder_is_always_there() -> None:
    assert (ROOT / "wheels" / ".gitkeep").exists()


@pytest.mark.stack
def test_compose_itself_reads_the_file() -> None:
    command = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PHOTOCALL_REDIS_PASSWORD": "p",
        "PHOTOCALL_SIGNING_KEY": "k",
    }
    done = subprocess.run(
        [*command, "config"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    for missing in ("PHOTOCALL_REDIS_PASSWORD", "PHOTOCALL_SIGNING_KEY"):
        partial = {key: value for key, value in environment.items() if key != missing}
        done = subprocess.run(
            [*command, "config"], cwd=ROOT, env=partial, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode != 0
        assert "set it to a long random word" in done.stderr
