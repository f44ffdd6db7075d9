"""An engine that answers at once and computes nothing: `python -m ops.bench.quick_engine REDIS_URL SIGNING_KEY`.

Leases, fences, streams and publishing are the real ones, so what is measured with it is everything but the model.
"""

from __future__ import annotations

import sys
from typing import Any, cast

from photocall import keys
from photocall.asks import Ask
from photocall.connections import connect
from photocall.jobs import Answered, StreamRef
from photocall.messages import Prepared
from photocall.records import Records
from photocall.wire import Wire, unpack

TAKEN_AT_ONCE = 64


def main() -> None:
    """Until killed."""
    client = connect(sys.argv[1])
    wire = Wire(sys.argv[2].encode(), "quick-engine")
    records = Records(client, wire)
    for each in keys.LANES:
        client.xgroup_create(keys.engine_stream(each), keys.ENGINE_GROUP, "0", mkstream=True)
    streams: Any = {keys.engine_stream(each): ">" for each in keys.LANES}
    while True:
        found = client.xreadgroup(keys.ENGINE_GROUP, "quick", streams, count=TAKEN_AT_ONCE, block=1000)
        for stream, entries in cast(Any, found) or ():
            lane: keys.Lane = "batch" if stream.decode() == keys.engine_stream("batch") else "interactive"
            for entry_id, values in entries:
                answer(records, wire, StreamRef(lane, entry_id.decode()), values[b"m"])


def answer(records: Records, wire: Wire, ref: StreamRef, data: bytes) -> None:
    """Publish something of the right shape for one job."""
    message = wire.decode(data).message
    assert isinstance(message, Prepared)
    lease = records.lease(message.job_id, "running")
    if lease is None:
        return
    ask = Ask.from_content(unpack(records.get(message.job_id).ask))
    answers = {question.name: {"type": "noul", "noul": 0.875} for question in ask.questions}
    usage = {"input_tokens": 40, "output_tokens": len(answers), "image_tokens": 0}
    records.publish(lease, Answered({"model": "photocall-mini", "answers": answers, "usage": usage}), ref)


if __name__ == "__main__":
    main()
