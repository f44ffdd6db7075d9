"""What a prep worker counts: jobs, pictures, bytes and seconds. A worker that begins anew begins to count anew."""

from __future__ import annotations

from photocall import metrics
from photocall.exporter import CollectorRegistry, counter, histogram


class PrepMetrics:
    """One worker's own registry; nothing is global, so two workers can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.jobs = counter(metrics.PREP_JOBS, self.registry)
        self.refusals = counter(metrics.PREP_REFUSALS, self.registry)
        self.queue_seconds = histogram(metrics.PREP_QUEUE_SECONDS, self.registry)
        self.job_seconds = histogram(metrics.PREP_JOB_SECONDS, self.registry)
        self.pictures = counter(metrics.PREP_PICTURES, self.registry)
        self.picture_seconds = histogram(metrics.PREP_PICTURE_SECONDS, self.registry)
        self.picture_bytes = counter(metrics.PREP_PICTURE_BYTES, self.registry)
        self.blob_bytes = counter(metrics.PREP_BLOB_BYTES, self.registry)
        self.decoders_lost = counter(metrics.PREP_DECODERS_LOST, self.registry)
