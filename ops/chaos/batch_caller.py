"""BatchCaller: keeps one batch under way, and looks at every row of each that ends."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from typing import Any

from ops.chaos.balancer import Balancer
from ops.chaos.callers import Caller, Lost
from ops.chaos.tasks import COLOUR, FULL, picture
from ops.chaos.witness import Witness

ROWS = 1100  # more than one chunk of the validation
PICTURE_EVERY = 8  # rows
LOOK_S = 0.2
STUCK_S = 120.0
ENDS = ("completed", "failed", "expired", "cancelled")


class BatchCaller:
    """One batch after another in a thread, from `start` until the one after `stop` has ended."""

    def __init__(self, balancer: Balancer, witness: Witness, seed: int) -> None:
        self._caller = Caller(balancer, witness)
        self._witness = witness
        self._seed = seed
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.moved: tuple[int, str, int] = (
            0,
            "",
            0,
        )  # batches so far, the state and answered rows of the last
        self.rows = 0  # of batches that ended

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Begin no other."""
        self._stopped.set()

    @property
    def pictures(self) -> frozenset[str]:
        """Hashes of the pictures of its rows."""
        rows = range(0, ROWS, PICTURE_EVERY)
        return frozenset(hashlib.sha256(picture(self._seed, -1 - row)).hexdigest() for row in rows)

    @property
    def busy(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        with self._caller.http:
            while not self._stopped.is_set():
                try:
                    self._batch(self.moved[0] + 1)
                except Exception as error:
                    self._witness.fault(f"batch: {error!r}")
                    time.sleep(1)

    def _batch(self, number: int) -> None:
        lines = b"".join(json.dumps(_row(self._seed, number, row)).encode() + b"\n" for row in range(ROWS))
        files = {"file": ("rows.jsonl", lines)}
        file_id = self._caller.expect((200,), "POST", "/v1/files", files=files, data={"purpose": "batch"})["id"]
        body = {"input_file_id": file_id, "endpoint": "/v1/systemone", "completion_window": "24h"}
        batch_id = self._caller.expect((200,), "POST", "/v1/batches", json=body)["id"]
        until = time.monotonic() + STUCK_S
        while (batch := self._caller.expect((200,), "GET", f"/v1/batches/{batch_id}"))["status"] not in ENDS:
            moved = (number, batch["status"], sum(batch["request_counts"].values()))
            if moved != self.moved:
                until = time.monotonic() + STUCK_S
            elif time.monotonic() > until:
                raise Lost(f"stuck for {STUCK_S:.0f} s: {batch}")
            self.moved = moved
            if self._stopped.is_set():
                self._caller.expect((200, 409), "POST", f"/v1/batches/{batch_id}/cancel")  # 409: it has just ended
            time.sleep(LOOK_S)
        self.moved = (number, batch["status"], sum(batch["request_counts"].values()))
        self._check(batch)
        for found in (batch["output_file_id"], batch["error_file_id"], file_id):
            if found:
                self._caller.expect((200, 404), "DELETE", f"/v1/files/{found}")
        self.rows += ROWS

    def _check(self, batch: dict[str, Any]) -> None:
        """Every row once, and answered; the last batch is cancelled, and says so of the rest."""
        cancelled = self._stopped.is_set()
        if batch["status"] not in ("completed", *(("cancelled",) if cancelled else ())):
            self._witness.fault(f"a batch ended otherwise: {batch}")
        lines = []
        for file_id in filter(None, (batch["output_file_id"], batch["error_file_id"])):
            found = self._caller.insist("GET", f"/v1/files/{file_id}/content")
            lines += [json.loads(line) for line in found.content.splitlines()]
        names = sorted(line["custom_id"] for line in lines)
        # where it was cancelled while its rows were read: those that were
        read = batch["request_counts"]["total"] if cancelled else ROWS
        if names != sorted(f"row-{row}" for row in range(read)):
            self._witness.fault(f"rows lost or doubled: {len(names)} lines, {len(set(names))} names")
        passing = ("batch_cancelled",) if cancelled else ()
        wrong = [
            line
            for line in lines
            if (line["error"] or {}).get("code") not in passing
            and (line["error"] or line["response"]["status_code"] != 200)
        ]
        if wrong:
            self._witness.fault(f"{len(wrong)} rows without an answer, the first: {wrong[0]}")


def _row(seed: int, number: int, row: int) -> dict[str, Any]:
    """One row in so many has a picture."""
    body: dict[str, Any] = {"state": f"photo {row} of batch {number} of {seed}", "questions": {"full": FULL}}
    if row % PICTURE_EVERY == 0:
        data = base64.b64encode(picture(seed, -1 - row)).decode()
        body |= {"questions": {"colour": COLOUR}, "assets": {"photo": {"type": "image", "data_base64": data}}}
    return {"custom_id": f"row-{row}", "method": "POST", "url": "/v1/systemone", "body": body}
