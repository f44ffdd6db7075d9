"""Where the time of a job went."""

from __future__ import annotations

from photocall.jobs import JobRecord
from photocall.wire import pack
from photocall_gateway.server_timing import server_timing, stages_ms


def record(created: float, completed: float, **timings: float) -> JobRecord:
    raw = {
        b"status": b"succeeded",
        b"created_at": repr(created).encode(),
        b"completed_at": repr(completed).encode(),
        b"timings": pack(timings),
        b"header": pack({}),
    }
    return JobRecord.from_hash("job_1", raw)


def test_queue_is_what_was_not_work_and_the_stages_add_up() -> None:
    stages = stages_ms(record(100.0, 100.5, queue=0.1, prepare=0.05, prefill=0.2, readout=0.01))
    assert {name: round(value, 3) for name, value in stages.items()} == {
        "queue": 240.0, "prepare": 50.0, "prefill": 200.0, "readout": 10.0,
    }  # fmt: skip
    assert server_timing(stages) == "queue;dur=240.0, prepare;dur=50.0, prefill;dur=200.0, readout;dur=10.0"


def test_clocks_that_disagree_never_give_a_negative_time() -> None:
    assert stages_ms(record(100.0, 99.0, prefill=0.2))["queue"] == 0.0
