"""What the engine's tests share: a tokenizer of single characters, pictures, an intake and an outlet made of lists.

`oracle` answers a request without an engine: it hashes each question's whole history itself and reads the fake's logits
from that, so that a page, a tail or a cached prefix gone wrong shows as another answer.
"""

from __future__ import annotations

import json
import string
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models

from photocall.asks import Ask
from photocall.questions import Choice, Json, Noul, Option, Question, Score
from photocall_engine.calibration import Calibration
from photocall_engine.composer import Composer
from photocall_engine.engine import Engine, EngineRequest, Outcome, build_engine
from photocall_engine.fake_runner import SEED, FakeRunner, chain, drawn_logits, soft_identities
from photocall_engine.flight import collect, issue
from photocall_engine.runner import ModelRunner, PatchImage
from photocall_engine.scheduler import Scheduler
from photocall_engine.sequence import Request
from photocall_engine.steps import Step
from photocall_engine.tokenizer import ChatTokenizer

SPECIAL = ("<pad>", "<eos>", "<bos>", "<|turn>", "<turn|>", "<|image>", "<image|>", "<|image|>")
NUM_TOKENS = len(SPECIAL) + 95 + 1 + 256
PICTURE_MARKS = {"boi_token_id": 5, "eoi_token_id": 6, "image_token_id": 7}
TEMPLATE = "<bos>{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}<turn|>\n{% endfor %}<|turn>model\n"


def write_tokenizer(directory: Path) -> Path:
    """Give a checkpoint directory a tokenizer of the printable ASCII characters and single bytes, NUM_TOKENS in all.

    Without a `config.json` it gets one, with the ids of the picture marks and nothing else.
    """
    pieces = [*SPECIAL, *string.printable[:95], "\n", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, [], byte_fallback=True))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<bos>", "eos_token": "<eos>"}))
    if not (directory / "config.json").exists():
        (directory / "config.json").write_text(json.dumps(PICTURE_MARKS))
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    return directory


def picture(seed: int, grid_height: int = 6, grid_width: int = 9) -> PatchImage:
    """A picture of noise; equal seeds are equal pictures."""
    patches = np.random.default_rng(seed).integers(0, 256, (grid_height * grid_width, 768), dtype=np.uint8)
    return PatchImage(patches, grid_height, grid_width)


def choice(name: str, *labels: str) -> Choice:
    return Choice(name, "Which?", tuple(Option(label) for label in labels))


def execute(runner: ModelRunner, scheduler: Scheduler, step: Step) -> list[Request]:
    """Run one step outside an engine; who is done."""
    flight = issue(runner, step)
    scheduler.advance(step)
    return scheduler.account(step, collect(runner, flight), 0.0)


@dataclass
class Clock:
    """Time that moves when told to."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Bench:
    """An engine with its edges: requests are put in `incoming`, outcomes come out by job id."""

    runner: ModelRunner
    engine: Engine = field(init=False)
    tokenizer: ChatTokenizer
    calibration: Calibration = field(default_factory=Calibration)
    token_budget: int = 256
    max_requests: int = 16
    max_encoded: int | None = None
    clock: Clock = field(default_factory=Clock)
    incoming: list[EngineRequest] = field(default_factory=list)
    taken_back: set[str] = field(default_factory=set)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    events: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    released_sessions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = build_engine(
            self,
            self,
            self.runner,
            self.tokenizer,
            self.calibration,
            "tiny",
            self.clock,
            token_budget=self.token_budget,
            max_requests=self.max_requests,
            max_encoded=self.max_encoded,
        )

    def take(self, limit: int, wait_s: float) -> list[EngineRequest]:
        taken, self.incoming = self.incoming[:limit], self.incoming[limit:]
        return taken

    def cancelled(self, job_ids: Collection[str]) -> set[str]:
        return self.taken_back & set(job_ids)

    def publish(self, request: EngineRequest, outcome: Outcome) -> None:
        assert request.job_id not in self.outcomes, "two outcomes for one request"
        self.outcomes[request.job_id] = outcome

    def event(self, request: EngineRequest, kind: str, data: Mapping[str, Any]) -> None:
        self.events.append((request.job_id, kind, dict(data)))

    def released(self, session_id: str) -> None:
        self.released_sessions.append(session_id)

    def ask(self, job_id: str, state: Json, *questions: Question, **fields: Any) -> EngineRequest:
        """Put a request in. `images`: pictures by asset key."""
        images: dict[str, PatchImage] = fields.pop("images", {})
        hashes = {key: f"sha-{image.patches[0, :4].tobytes().hex()}" for key, image in images.items()}
        ask = Ask(None, state, questions, hashes)
        request = EngineRequest(job_id, ask, {hashes[key]: image for key, image in images.items()}, **fields)
        self.incoming.append(request)
        return request

    def step(self) -> bool:
        """One step with every invariant checked after it, and what it brought told before the next one."""
        ran = self.engine.step()
        self.engine.tell()
        self.engine.check()
        return ran

    def run(self, most: int = 2000) -> dict[str, Outcome]:
        """Until nothing is left; at most so many steps."""
        for _ in range(most):
            if not self.step() and not self.incoming:
                assert not self.engine.scheduler.requests(), "work is left but nothing runs"
                return self.outcomes
        raise AssertionError(f"still running after {most} steps")

    def body(self, job_id: str) -> dict[str, Any]:
        """The response of a request that was answered."""
        outcome = self.outcomes[job_id]
        assert hasattr(outcome, "body"), outcome
        return dict(outcome.body)


def bench(tokenizer: ChatTokenizer, **fields: Any) -> Bench:
    """A Bench on a FakeRunner; fields of either."""
    names = ("token_budget", "max_requests", "max_encoded", "calibration")
    own = {name: fields.pop(name) for name in names if name in fields}
    return Bench(FakeRunner(vocab_size=tokenizer.vocab_size, **fields), tokenizer, **own)


def histories(composer: Composer, request: EngineRequest) -> dict[str, int]:
    """By question name, the hash of everything its answer may depend on."""
    composed = composer.compose(request)
    found = {}
    for branch in composed.branches:
        history = int(SEED)
        for sequence in (composed.prefix, branch.base):
            identities = list(sequence.tokens)
            for span in sequence.spans:
                at = span.start - sequence.start
                identities[at : at + span.end - span.start] = soft_identities(composed.picture(span))
            for identity in identities:
                history = chain(history, identity)
        found[branch.question.name] = history
    return found


def oracle(made: Bench, request: EngineRequest) -> dict[str, list[float]]:
    """Probabilities of each lettered question of at most 26 options, in the caller's order, without an engine."""
    found = histories(made.engine.composer, request)
    probabilities = {}
    for question in request.ask.questions:
        assert isinstance(question, Choice | Noul | Score)
        count = len(question.options) if isinstance(question, Choice) else 2
        if isinstance(question, Score):
            count = len(question.levels)
        logits = drawn_logits(found[question.name], made.tokenizer.vocab_size)[list(made.tokenizer.letters[:count])]
        weights = np.exp(logits.astype(np.float64) - logits.max())
        probabilities[question.name] = [float(p) for p in weights / weights.sum()]
    return probabilities
