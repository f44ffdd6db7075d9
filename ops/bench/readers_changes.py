"""Changes for `ops.bench.readers`, from a process of its own: jobs that go on while everybody reads them.

    python -m ops.bench.readers_changes REDIS_URL SIGNING_KEY PER_SECOND JOB...

Each change is a `progress` of a job that this process holds: a new version of its record, an event and a wake-up, by
the engine's own script. Until killed.
"""

from __future__ import annotations

import random
import sys
import time

from photocall.connections import connect
from photocall.messages import Progress
from photocall.operations import Policy
from photocall.records import Records
from photocall.wire import Wire

LEASE_S = 600.0  # nobody else is to be busy with them


def main() -> None:
    """Say that every job is held, then change one after another."""
    url, key, per_second, *jobs = sys.argv[1:]
    records = Records(connect(url), Wire(key.encode(), "changes"), Policy(lease_s=LEASE_S))
    leases = [lease for job in jobs if (lease := records.lease(job, "running")) is not None]
    print(len(leases), flush=True)
    started, made = time.monotonic(), 0
    while True:
        lease = random.choice(leases)
        records.progress(lease, Progress(lease.job_id, "decode", made, 0), {"tokens": made})
        made += 1
        time.sleep(max(0.0, started + made / float(per_second) - time.monotonic()))


if __name__ == "__main__":
    main()
