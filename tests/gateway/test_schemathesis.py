"""schemathesis against a running gateway: what its own description allows and what it forbids, call by call.

Nothing that is sent ends in a 5xx, and every answer is one that is described: status, content type and body. The same
calls every time: the examples are derived from the tests themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from photocall.connections import connect
from photocall.redis_server import RedisServer
from photocall.settings import GatewaySettings
from photocall_gateway.app import ROUTES
from photocall_gateway.described import DescribedSocket
from photocall_gateway.openapi import document
from tests.gateway.conftest import POLICY, served
from tests.gateway.fake_backend import FakeBackend

EXAMPLES = 12  # of each call, allowed and forbidden ones each
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SOCKETS = {route.path for route in ROUTES if isinstance(route, DescribedSocket)}
SCHEMA: Any = schemathesis.openapi.from_dict(document(ROUTES))
OPERATIONS = {
    found.label: found
    for found in (result.ok() for result in SCHEMA.get_all_operations())
    if found.path not in SOCKETS  # no HTTP call; test_channels.py has them
}


@pytest.fixture(scope="module")
def running(redis_process: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One gateway for all of them, with an engine that answers at once."""
    client = connect(redis_process.url)
    client.flushall()
    client.close()
    made = GatewaySettings(
        redis_url=redis_process.url, signing_key_hex="k", data=tmp_path_factory.mktemp("data"), sync_wait_s=5.0
    )
    with FakeBackend(redis_process.url, b"k", POLICY) as backend, served(made) as address:
        backend.announce()
        yield address


CALLS = [(label, GenerationMode.POSITIVE) for label in sorted(OPERATIONS)]
# A body or a query can be wrong; of any text in a path or a header nothing is forbidden.
CALLS += [
    (label, GenerationMode.NEGATIVE)
    for label in sorted(OPERATIONS)
    if OPERATIONS[label].body or OPERATIONS[label].query
]


@pytest.mark.parametrize(("label", "mode"), CALLS)
def test_call(running: str, label: str, mode: GenerationMode) -> None:
    operation = OPERATIONS[label]
    strategy = operation.as_strategy(generation_mode=mode)

    @settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=EXAMPLES,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def call(case: Any) -> None:
        response = case.call(base_url=running, session=session, timeout=15)
        case.validate_response(response, checks=CHECKS)

    with requests.Session() as session:
        session.trust_env = False
        call()
