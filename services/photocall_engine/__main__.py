"""The engine's process: reads the settings, loads the model, proves itself, serves until SIGTERM, drains, exits 0."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from photocall import failpoints, keys
from photocall.blob_store import BlobStore
from photocall.blobs import open_blobs
from photocall.connections import connect
from photocall.exporter import CollectorRegistry, Exporter
from photocall.grid import ProcessorConfig, ProcessorConfigError, grid_for
from photocall.logs import fields, set_up
from photocall.messages import EngineInfo
from photocall.records import Policy, Records
from photocall.settings import EngineSettings, SettingsError
from photocall.tracing import open_spans
from photocall.wire import Wire
from photocall_engine.calibration import Calibration, CalibrationError
from photocall_engine.canary import Canary, asking
from photocall_engine.checkpoint_hash import CheckpointHash
from photocall_engine.control import Control
from photocall_engine.edges import HandedBack
from photocall_engine.engine import Engine, build_engine
from photocall_engine.fake_runner import FakeRunner
from photocall_engine.intake import RedisIntake
from photocall_engine.lease_book import LeaseBook
from photocall_engine.metrics import EngineMetrics
from photocall_engine.model.config import ModelConfig, read_config
from photocall_engine.model.fields import ConfigError
from photocall_engine.outlet import RedisOutlet
from photocall_engine.pulse import Pulse
from photocall_engine.runner import DeviceLost, ModelRunner
from photocall_engine.self_test import SelfTestError, run_self_test
from photocall_engine.sizing import DoesNotFit, Load, PoolSizes, plan_memory, plan_pools
from photocall_engine.tally import Tally
from photocall_engine.tokenizer import ChatTokenizer, TokenizerError

if TYPE_CHECKING:
    from photocall_engine.torch_runner import TorchRunner

log = logging.getLogger(__name__)

UNUSABLE = 2  # the exit status for settings or a checkpoint that cannot be used
FLUSH_S = 5.0
CHECK_EVERY_S = 10.0
TYPICAL_PICTURE = (1280, 720)


class UnusableModelError(Exception):
    """Weights that cannot be read, or a device that is not there."""


UNUSABLE_ERRORS = (
    SettingsError,
    ConfigError,
    CalibrationError,
    TokenizerError,
    ProcessorConfigError,
    UnusableModelError,
    OSError,
)


@dataclass(frozen=True)
class Model:
    """A checkpoint ready to run."""

    name: str
    runner: ModelRunner
    tokenizer: ChatTokenizer
    calibration: Calibration
    processor: ProcessorConfig | None  # None: it sees no pictures
    graph_batches: Callable[[], Mapping[str, int]] = dict  # see EngineMetrics
    tower_passes: Callable[[], Mapping[str, int]] = dict
    sha256: str = ""  # of the checkpoint directory: filled by `load_model`, once it is hashed


def main() -> int:
    """0 when stopped, 1 when the device is lost or the self-test fails, 2 for what cannot be used."""
    set_up("engine")
    try:
        settings = EngineSettings.from_env(os.environ)
        set_up("engine", form=settings.log_format)
        model = load_model(settings)
    except UNUSABLE_ERRORS as error:
        print(f"photocall engine: {error}", file=sys.stderr)
        return UNUSABLE
    try:
        serve(settings, model)
    except SettingsError as error:
        print(f"photocall engine: {error}", file=sys.stderr)
        return UNUSABLE
    except (DeviceLost, SelfTestError) as error:
        log.error("the engine ends: %s", error)
        return 1
    log.info("stopped")
    return 0


def load_model(settings: EngineSettings) -> Model:
    """Read the checkpoint, and hash it meanwhile. Raises what `main` lists."""
    with CheckpointHash(settings.model) as hashing:
        model = _load_model(settings)
        return replace(model, sha256=hashing.result())


def _load_model(settings: EngineSettings) -> Model:
    config = read_config(settings.model)
    tokenizer = ChatTokenizer(settings.model)
    processor = None if config.vision is None else ProcessorConfig.read(settings.model)
    calibration = Calibration.load(settings.model)
    if settings.runner == "fake":
        fake = FakeRunner(vocab_size=tokenizer.vocab_size, max_rows=settings.max_rows, sliding_pages=256)
        return Model(settings.model_name, fake, tokenizer, calibration, processor)
    runner = _torch_runner(settings, config)
    counts = (runner.graph_batches, runner.tower_passes)
    return Model(settings.model_name, runner, tokenizer, calibration, processor, *counts)


def _torch_runner(settings: EngineSettings, config: ModelConfig) -> TorchRunner:
    # Waiting OpenMP threads spin for microseconds, then sleep: by default they spin for milliseconds, and so take the
    # core from whoever they wait for, prep and gateway included. Read once, when torch is first imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    from photocall_engine.kernels import UnsupportedDevice
    from photocall_engine.model.shards import WeightError
    from photocall_engine.torch_runner import TorchRunner

    try:
        sizes = _pool_sizes(settings, config)
        return TorchRunner.load(
            settings.model,
            device=settings.device,
            num_pages=sizes.num_pages,
            sliding_pages=sizes.sliding_pages,
            max_rows=settings.max_rows,
            soft_capacity=sizes.soft_capacity,
            encode_budget=settings.encode_budget,
            threads=settings.threads or os.cpu_count(),
            weights="fp8" if settings.weights == "fp8" else "bf16",
            numerics="fast" if settings.numerics == "fast" else "invariant",
        )
    except (WeightError, UnsupportedDevice, DoesNotFit) as error:
        raise UnusableModelError(str(error)) from error


def _pool_sizes(settings: EngineSettings, config: ModelConfig) -> PoolSizes:
    """From the memory that is free on a GPU, or from the settings. Raises WeightError, DoesNotFit."""
    import torch

    from photocall_engine.model.checkpoint import weight_bytes
    from photocall_engine.model.shards import read_shards

    if settings.device != "cuda" or not torch.cuda.is_available():
        return plan_pools(config.text, settings.pages, settings.kv_bytes)
    free, total = torch.cuda.mem_get_info()
    room = int(total * settings.gpu_memory) - (total - free)
    own_head = "lm_head.weight" in read_shards(settings.model)
    weights = weight_bytes(config, torch.bfloat16, own_head, fp8=settings.weights == "fp8")
    load = Load(settings.max_rows, settings.token_budget, settings.max_requests, settings.encode_budget)
    plan = plan_memory(config, room, weights, load, settings.pages)
    log.info("memory: %s", plan)
    return plan.pools


def serve(settings: EngineSettings, model: Model) -> None:
    """Put the parts together and run until a signal or a shutdown request. Raises DeviceLost or SelfTestError."""
    if settings.engine_id in keys.LANES:
        raise SettingsError("PHOTOCALL_ENGINE_ID", settings.engine_id, "a name that is no lane")
    engine_id = settings.engine_id or f"{socket.gethostname()}-{os.getpid()}"
    wire = Wire(settings.signing_key(), session=engine_id)
    client = connect(settings.redis_url)
    records = Records(client, wire, Policy.from_settings(settings))
    leases = LeaseBook(records)
    blobs = open_blobs(settings.blobs, settings.blob_bytes)
    intake = RedisIntake(
        client,
        wire,
        records,
        blobs,
        leases,
        engine_id,
        model.processor.hash if model.processor else "",
        settings.hold_s,
    )
    tally = Tally()
    spans = open_spans(settings.traces, "engine", engine_id)
    outlet = RedisOutlet(records, leases, engine_id, tally, spans)
    build = partial(
        build_engine,
        runner=model.runner,
        tokenizer=model.tokenizer,
        calibration=model.calibration,
        model=model.name,
        clock=time.time,
        token_budget=settings.token_budget,
        max_requests=settings.max_requests,
        max_encoded=settings.encode_budget,
        numerics=settings.numerics,
        model_sha256=model.sha256,
    )
    stop = threading.Event()
    _stop_on_signals(stop)
    grid = grid_for(*TYPICAL_PICTURE, model.processor.budget) if model.processor else None
    passed = run_self_test(build, grid)
    failpoints.arm(settings)  # not before: the self-test is not the work that a test wants to see die
    failpoints.reach("engine.capture")
    model.runner.enable_graphs()
    every_s = settings.canary_s if settings.numerics == "invariant" else 0.0  # else company may change bits
    canary = Canary(intake, outlet, asking(grid), passed.answers, every_s)
    engine: Engine = build(canary, canary, tally=tally)
    exporter = _exporter(settings, engine, engine_id, model, canary, outlet, blobs)
    pulse = Pulse(client, wire, leases, _info(engine, settings, engine_id, model.name, leases))
    control = Control(client, wire, engine_id, leases, lambda reason: _asked(stop, reason), engine.held.ask_release)
    log.info("ready", extra=fields(engine=engine_id, model=model.name, self_test_s=round(passed.took_s, 3)))
    for part in (outlet, pulse, control, intake):
        part.start()
    try:
        _run(engine, stop)
        log.info("draining", extra=fields(held=len(leases), drain_s=settings.drain_s))
        pulse.leave()
        intake.stop()
        for request in intake.take(len(leases), 0.0):
            outlet.publish(request, HandedBack("the engine is shutting down"))
        engine.run(stop.is_set, settings.drain_s)
        engine.check()  # nobody is left, so no page may be
    finally:
        control.stop()
        if not outlet.stop(FLUSH_S):
            log.warning("answers were left to the sweeper", extra=fields(held=len(leases)))
        pulse.stop()
        if exporter is not None:
            exporter.close()
        if spans is not None:
            spans.close()


def _exporter(
    settings: EngineSettings,
    engine: Engine,
    engine_id: str,
    model: Model,
    canary: Canary,
    outlet: RedisOutlet,
    blobs: BlobStore,
) -> Exporter | None:
    """Shows the metrics where the settings say. Raises SettingsError."""
    if settings.metrics is None:
        return None
    registry = CollectorRegistry()
    about = (engine_id, model.name, settings.device, settings.numerics)
    found = EngineMetrics(
        engine, about, canary, lambda: outlet.unwritten, blobs.held, model.graph_batches, model.tower_passes
    )
    registry.register(found)
    return Exporter(settings.metrics, registry)


def _run(engine: Engine, stop: threading.Event) -> None:
    """Step after step; the invariants are checked now and then while nobody waits. Raises DeviceLost, PageError."""
    checked_at = time.monotonic()
    while not stop.is_set():
        if not engine.step() and time.monotonic() - checked_at > CHECK_EVERY_S:
            engine.check()
            checked_at = time.monotonic()


def _info(
    engine: Engine, settings: EngineSettings, engine_id: str, model: str, leases: Sized
) -> Callable[[], EngineInfo]:
    started_at = time.time()

    def info() -> EngineInfo:
        pages = engine.scheduler.pages
        return EngineInfo(
            engine_id=engine_id,
            model=model,
            device=settings.device,
            ready=True,
            load=len(leases),
            capacity=settings.max_requests,
            pages_free=pages.free,
            pages_total=pages.num_pages - 1,
            started_at=started_at,
            steps=engine.steps,
            rows=engine.rows,
            answered=engine.tally.outcomes["answered", ""],  # the canary is nobody's question
            pictures=engine.tally.pictures,
        )

    return info


def _stop_on_signals(stop: threading.Event) -> None:
    def handler(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGINT, handler)


def _asked(stop: threading.Event, reason: str) -> None:
    log.info("asked to shut down: %s", reason)
    stop.set()


if __name__ == "__main__":
    sys.exit(main())
