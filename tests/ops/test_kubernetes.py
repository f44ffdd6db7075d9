"""ops/kubernetes, as kustomize builds it: valid by the schemas of Kubernetes and KEDA, hardened, true to the code."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from ops.docs import ROOT
from photocall import keys
from photocall.liveness import ROOMS
from photocall.settings import EngineSettings, GatewaySettings, SharedSettings, table
from photocall_gateway.app import ROUTES
from photocall_gateway.openapi import document

kubernetes_validate: Any = pytest.importorskip("kubernetes_validate")

Object = dict[str, Any]
TREE = ROOT / "ops" / "kubernetes"
OVERLAYS = sorted(path.name for path in (TREE / "overlays").iterdir())
VERSIONS = ("1.34", "1.37")
ROOM_SETTINGS = {"gateway": GatewaySettings, "prep": SharedSettings, "engine": EngineSettings}
SECRETS = {"redis-password": "a word", "signing-key": "0" * 64}


def kubectl() -> str:
    """That of the dev extra, or the machine's own."""
    found = shutil.which("kubectl", path=str(Path(sys.executable).parent)) or shutil.which("kubectl")
    if found is None:
        pytest.skip("no kubectl: its wheel is for x86-64 Linux")
    return found


@pytest.fixture(scope="module", params=OVERLAYS)
def built(request: pytest.FixtureRequest) -> list[Object]:
    """Everything that an overlay makes."""
    command = [kubectl(), "kustomize", str(TREE / "overlays" / request.param)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr  # kustomize warns of what it will drop
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def named(built: list[Object], kind: str) -> dict[str, Object]:
    return {found["metadata"]["name"]: found for found in built if found["kind"] == kind}


def pods(built: list[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Name, template and only container of whatever runs."""
    for kind in ("Deployment", "StatefulSet"):
        for name, found in named(built, kind).items():
            [container] = found["spec"]["template"]["spec"]["containers"]
            yield name, found["spec"]["template"], container


def check(found: Object) -> None:
    """Raises for what Kubernetes, or KEDA, would not take or would drop."""
    if not found["apiVersion"].startswith("keda.sh/"):
        for version in VERSIONS:
            kubernetes_validate.validate(found, version, strict=True)
        return
    from cloudcoil.models.keda import v1alpha1

    model = getattr(v1alpha1, found["kind"])
    kept = model.model_validate(found).model_dump(by_alias=True, exclude_unset=True, mode="json")
    assert kept == found  # what it does not know it drops


def test_the_schemas_take_all_of_it(built: list[Object]) -> None:
    assert len(built) > 15
    for found in built:
        check(found)


def test_the_schemas_would_not_take_a_slip(built: list[Object]) -> None:
    engine = named(built, "Deployment")["engine"]
    with pytest.raises(kubernetes_validate.ValidationError):
        check({**engine, "spec": {**engine["spec"], "replica": 1}})
    for name, found in named(built, "ScaledObject").items():
        with pytest.raises((AssertionError, ValueError)):
            check({**found, "spec": {**found["spec"], "minReplicas": 1}})
        with pytest.raises(ValueError, match="triggers"):
            check({**found, "spec": {"scaleTargetRef": {"name": name}}})


def test_nothing_runs_with_more_than_it_needs(built: list[Object]) -> None:
    for name, template, container in pods(built):
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["enableServiceLinks"] is False, name
        hard = container["securityContext"]
        assert hard["readOnlyRootFilesystem"] is True, name
        assert hard["allowPrivilegeEscalation"] is False, name
        assert hard["capabilities"] == {"drop": ["ALL"]}, name
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
        assert "memory" in container["resources"]["limits"], name
        assert "livenessProbe" in container, name
        assert {"readinessProbe", "startupProbe"} & container.keys(), name
        assert {mount["name"] for mount in container["volumeMounts"]} <= (
            {volume["name"] for volume in pod["volumes"]} | {"data"}
        ), name
    assert not named(built, "Secret")  # made by hand, never kept in a repository


def environment(built: list[Object], container: Object) -> dict[str, str]:
    """What a container's process would read, with words for the secrets."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        found |= named(built, "ConfigMap")[source["configMapRef"]["name"]]["data"]
    for entry in container.get("env", ()):
        value = entry.get("value") or SECRETS[entry["valueFrom"]["secretKeyRef"]["key"]]
        for name, known in found.items():
            value = value.replace(f"$({name})", known)
        assert "$(" not in value, entry
        found[entry["name"]] = value
    return found


@pytest.mark.parametrize("room", ROOM_SETTINGS)
def test_a_room_takes_its_settings(built: list[Object], room: str) -> None:
    [container] = [container for name, _, container in pods(built) if name == room]
    given = environment(built, container)
    settings = ROOM_SETTINGS[room].from_env(given)
    assert settings.redis_url == "redis://:a word@redis:6379/0"
    for name in given:
        assert not name.startswith("PHOTOCALL_") or f"`{name}`" in table(), name


def test_there_is_time_to_leave(built: list[Object]) -> None:
    templates = {name: (template, container) for name, template, container in pods(built)}
    gateway, container = templates["gateway"]
    settings = GatewaySettings.from_env(environment(built, container))
    grace = gateway["spec"]["terminationGracePeriodSeconds"]
    assert grace > settings.drain_notice_s + settings.drain_s + 3  # docs/reliability.md, "Leaving"
    engine, container = templates["engine"]
    drain_s = EngineSettings.from_env(environment(built, container)).drain_s
    assert engine["spec"]["terminationGracePeriodSeconds"] > drain_s + 5


def test_probes_ask_what_there_is(built: list[Object]) -> None:
    paths = document(ROUTES)["paths"]
    asked = set()
    for name, _, container in pods(built):
        for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
            given = container.get(probe, {})
            if "httpGet" in given:
                assert given["httpGet"]["path"] in paths
                asked.add(name)
            command = given.get("exec", {}).get("command", [])
            if command[:1] == ["python"]:
                assert command[1:3] == ["-m", "photocall.liveness"]
                assert command[3] == name
                assert command[3] in ROOMS
                asked.add(name)
    assert asked == set(ROOMS)


def test_selectors_find_what_they_mean(built: list[Object]) -> None:
    labels = {name: template["metadata"]["labels"] for name, template, _ in pods(built)}
    for name, service in named(built, "Service").items():
        assert service["spec"]["selector"].items() <= labels[name].items()
    names = set(labels)
    for policy in named(built, "NetworkPolicy").values():
        chosen = policy["spec"]["podSelector"]
        for expression in chosen.get("matchExpressions", ()):
            assert set(expression["values"]) <= names
        assert set(chosen.get("matchLabels", {}).values()) <= names


def test_scaling_looks_at_the_queues_there_are(built: list[Object]) -> None:
    scaled = named(built, "ScaledObject")
    deployments = named(built, "Deployment")
    for name, found in scaled.items():
        assert found["spec"]["scaleTargetRef"] == {"name": name}
        assert "replicas" not in deployments[name]["spec"]  # else an apply sets it back
    if not scaled:
        assert deployments["engine"]["spec"]["replicas"] == 1
        return
    streams = [trigger["metadata"] for trigger in scaled["engine"]["spec"]["triggers"]]
    assert [each["stream"] for each in streams] == [keys.engine_stream(lane) for lane in keys.LANES]
    assert not any("consumerGroup" in each for each in streams)  # with one KEDA looks at something else
    assert int(streams[0]["streamLength"]) == EngineSettings.from_env({}).max_requests
    lists = [trigger["metadata"]["listName"] for trigger in scaled["prep"]["spec"]["triggers"]]
    assert lists == [f"rq:queue:{keys.PREP_QUEUE[lane]}" for lane in keys.LANES]
    services = named(built, "Service")
    for each in streams:
        assert each["address"].partition(".")[0] in services
