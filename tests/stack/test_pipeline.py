"""The whole pipeline with real processes and the fake model: what only shows when everything runs together."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.stack.local_service import service, wait_for

pytestmark = pytest.mark.timeout(180)


def test_concurrent_requests_share_steps_and_the_answers_are_those_they_get_alone() -> None:
    with service() as running:
        began = running.engine_info()
        with ThreadPoolExecutor(8) as pool:
            jobs = [running.ended(job_id) for job_id in pool.map(running.submit_text, range(8))]
        assert [job["status"] for job in jobs] == ["succeeded"] * 8
        took_part = sum(job["result"]["usage"]["steps"] for job in jobs)

        def counted() -> Any:
            info = running.engine_info()
            return info if info.load == 0 and info.steps > began.steps else None

        info = wait_for(counted, 30, "a heartbeat after the last answer", running)
        steps, rows = info.steps - began.steps, info.rows - began.rows
        assert steps < took_part  # steps were shared ...
        assert rows / steps > 1
        decodes = sum(job["result"]["usage"]["decode_rows"] for job in jobs)
        assert decodes > steps  # ... by decode rows of several requests, not only by the rows of one prompt
        alone = running.ended(running.submit_text(3))
        assert alone["result"]["answers"] == jobs[3]["result"]["answers"]
