"""An engine that computes nothing: `python -m ops.bench.quick_engine REDIS_URL SIGNING_KEY [SECONDS_PER_JOB]`.

It answers at once, or one job after another as fast as an engine of that speed would. Leases, fences, streams and
publishing are the real ones, so what is measured with it is everything but the model.
"""

from __future__ import annotations

import sys
import time
from typing import Any, cast

from photocall import keys
from photocall.asks import Ask
from photocall.connections import connect
from photocall.jobs import Answered, StreamRef
from photocall.messages import Prepared
from photocall.records import Records
from photocall.wire import Wire, unpack

TAKEN_AT_ONCE = 64
CATCHES_UP_S = 0.5  # what it was kept from by a slow store; a device that computes meanwhile is no slower for it


def main() -> None:
    """Until killed."""
    client = connect(sys.argv[1])
    wire = Wire(sys.argv[2].encode(), "quick-engine")
    records = Records(client, wire)
    for each in keys.LANES:
        client.xgroup_create(keys.engine_stream(each), keys.ENGINE_GROUP, "0", mkstream=True)
    job_s = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    free_at = 0.0
    streams: Any = {keys.engine_stream(each): ">" for each in keys.LANES}
    while True:
        at_once = 1 if job_s else TAKEN_AT_ONCE
        found = client.xreadgroup(keys.ENGINE_GROUP, "quick", streams, count=at_once, block=1000)
        for stream, entries in cast(Any, found) or ():
            lane: keys.Lane = "batch" if stream.decode() == keys.engine_stream("batch") else "interactive"
            for entry_id, values in entries:
                if job_s:
                    free_at = max(free_at, time.monotonic() - CATCHES_UP_S) + job_s
                answer(records, wire, StreamRef(lane, entry_id.decode()), values[b"m"], free_at)


def answer(records: Records, wire: Wire, ref: StreamRef, data: bytes, at: float = 0.0) -> None:
    """Publish something of the right shape for one job, not before the moment `at`."""
    message = wire.decode(data).message
    assert isinstance(message, Prepared)
    lease = records.lease(message.job_id, "running")
    if lease is None:
        return
    time.sleep(max(0.0, at - time.monotonic()))
    ask = Ask.from_content(unpack(records.get(message.job_id).ask))
    answers = {question.name: {"type": "noul", "noul": 0.875} for question in ask.questions}
    usage = {"input_tokens": 40, "output_tokens": len(answers), "image_tokens": 0}
    records.publish(lease, Answered({"model": "photocall-mini", "answers": answers, "usage": usage}), ref)


if __name__ == "__main__":
    main()
