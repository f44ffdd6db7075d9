"""The prep worker's process: reads the settings, puts the parts together, serves until SIGTERM."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterable

from photocall import failpoints
from photocall.addresses import AddressRules
from photocall.blobs import open_blobs
from photocall.connections import connect
from photocall.exporter import Exporter
from photocall.grid import ProcessorConfig, ProcessorConfigError
from photocall.images import ImageStore
from photocall.logs import fields, set_up
from photocall.outbound import Caller
from photocall.queueing import PrepQueues
from photocall.records import Policy, Records
from photocall.settings import PrepSettings, SettingsError
from photocall.tracing import Spans, open_spans
from photocall.views import AUTO
from photocall.wire import Wire
from photocall_prep import inspect, variants
from photocall_prep.fetch import Fetcher
from photocall_prep.guarded_prep import GuardedPrep
from photocall_prep.jobs import PREPARER, Preparer
from photocall_prep.metrics import PrepMetrics
from photocall_prep.prepare import Prep
from photocall_prep.shelf import PatchShelf
from photocall_prep.show import SHOWROOM, Showroom
from photocall_prep.wear import Wear, renew
from photocall_prep.worker import STOP_SIGNALS, PrepWorker

log = logging.getLogger(__name__)


def main() -> int:
    """0 when stopped, 2 for settings or a checkpoint that cannot be used; its commands have statuses of their own."""
    if sys.argv[1:2] == ["inspect"]:
        return inspect.main(sys.argv[2:], os.environ)
    if sys.argv[1:2] == ["variants"]:
        return variants.main(sys.argv[2:], os.environ)
    set_up("prep")
    metrics = PrepMetrics()
    for name in ("rq", "rq.worker"):  # the second has a level of its own, and three lines to say about every job
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        settings = PrepSettings.from_env(os.environ)
        set_up("prep", form=settings.log_format)
        failpoints.arm(settings)
        prep = GuardedPrep(os.environ, settings.decode_s, metrics=metrics)
        spans = open_spans(settings.traces, "prep", f"{socket.gethostname()}-{os.getpid()}")
        worker = compose(settings, prep, prep.pids, metrics, spans)
        exporter = Exporter(settings.metrics, metrics.registry) if settings.metrics else None
    except (SettingsError, ProcessorConfigError) as error:
        print(f"photocall prep: {error}", file=sys.stderr)
        return 2
    prep.start()
    worker.serve()
    prep.close()
    if exporter is not None:
        exporter.close()
    if spans is not None:
        spans.close()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # one that comes now is the fresh process's
    if worker.worn is not None:
        log.info("beginning anew", extra=fields(after=worker.worn))
        renew()
    log.info("stopped")
    return 0


def compose(
    settings: PrepSettings,
    prep: Prep,
    helpers: Callable[[], Iterable[int]] = tuple,
    metrics: PrepMetrics | None = None,
    spans: Spans | None = None,
) -> PrepWorker:
    """The worker with everything it needs; `helpers` are the processes that `prep` works with.

    Raises ProcessorConfigError; Redis need not be there yet.
    """
    config = ProcessorConfig.read(settings.model)
    budget = settings.budget or config.budget
    if budget != AUTO and budget not in config.allowed:
        raise SettingsError("PHOTOCALL_BUDGET", str(budget), "auto, or one of " + ", ".join(map(str, config.allowed)))
    name = f"prep-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    client = connect(settings.redis_url)
    wire = Wire(settings.signing_key(), session=name)
    blobs = open_blobs(settings.blobs, settings.blob_bytes)
    wear = Wear(settings.renew_pictures, settings.renew_bytes, helpers)
    worker = PrepWorker(client, PrepQueues(client, wire), name, tidy=blobs.sweep, wear=wear)
    caller = Caller(AddressRules(settings.allow_networks), settings.fetch_timeout_s, settings.max_image_bytes)
    images = ImageStore(client, settings.image_ttl_s)
    shelf = PatchShelf(blobs, budget, config.hash, config.allowed, settings.fidelity, settings.background)
    preparer = Preparer(
        Records(client, wire, Policy.from_settings(settings)),
        images,
        shelf,
        prep,
        stopping=lambda: worker.stopping,
        fetcher=Fetcher(caller) if settings.fetch_urls else None,
        wear=wear,
        metrics=metrics,
        spans=spans,
    )
    PREPARER.set(preparer)
    SHOWROOM.set(Showroom(client, images, shelf, prep))
    log.info("up", extra=fields(worker=name, budget=budget, model=settings.model))
    return worker


if __name__ == "__main__":
    raise SystemExit(main())
