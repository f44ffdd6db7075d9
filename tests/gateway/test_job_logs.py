"""A line of the gateway's log that concerns a job names it, whoever noticed."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from starlette.testclient import TestClient

from photocall.logs import LineFormatter
from photocall_gateway.problems import response_to

JOB = "job_" + "0" * 24


def test_a_failure_of_a_call_about_a_job(
    client: TestClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*arguments: Any) -> Any:
        raise RuntimeError("a defect of ours")

    monkeypatch.setattr("photocall_gateway.routes.jobs._seen", broken)
    with caplog.at_level(logging.ERROR):
        assert client.post(f"/v1/jobs/{JOB}/cancel").status_code == 500
    [record] = [record for record in caplog.records if record.name.startswith("photocall")]
    assert f" job={JOB} " in LineFormatter("gateway").format(record)


def test_a_failure_of_a_call_about_none_names_none(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        response_to({"path": "/v1/jobs", "headers": []}, RuntimeError("a defect of ours"))
    [record] = caplog.records
    assert " job=" not in LineFormatter("gateway").format(record)
