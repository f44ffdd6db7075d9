"""Session: DESIGN's rules for one conversation on a borrowed runner, with the fake and with small models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from photocall_engine.fake_runner import SEED, FakeRunner, chain, drawn_logits
from photocall_engine.pages import Pages
from photocall_engine.prefix_cache import PageKeys, PrefixCache
from photocall_engine.session import DoesNotFit, NotReserved, Session
from photocall_engine.torch_runner import TorchRunner

VOCAB = 300
END = 299
MINI = Path(__file__).parents[2] / "models" / "mini"


class Made:
    """A session on a fake runner, its pools checked after everything."""

    def __init__(self, **fields: Any) -> None:
        sizes = {"num_pages": 40, "sliding_pages": 30, "sliding_window": 64, "max_rows": 100} | fields
        self.runner = FakeRunner(vocab_size=VOCAB, **sizes)
        self.pages = Pages(self.runner.num_pages, self.runner.sliding_pages)
        self.session = Session(self.runner, self.pages)

    def check(self) -> None:
        covered = [self.session._pages[i] for i in self.session._covered]
        self.pages.check([self.session._pages], [covered])


def tokens(count: int, seed: int = 1) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, VOCAB - 1, count)]


def history(ids: list[int]) -> int:
    found = int(SEED)
    for token in ids:
        found = chain(found, token)
    return found


def logits(ids: list[int]) -> Any:
    return drawn_logits(history(ids), VOCAB)


def test_the_first_notice_names_the_backend() -> None:
    assert Made().session.notices == ["Backend: fake (no model)"]


def test_a_forward_before_a_reserve_is_an_error() -> None:
    made = Made()
    for call in (made.session.forward, made.session.forward_greedy):
        with pytest.raises(NotReserved):
            call([1, 2, 3], 0)
    made.session.reserve(3)
    with pytest.raises(NotReserved):
        made.session.forward([1, 2, 3, 4], 0)
    made.session.forward([1, 2, 3], 0)


@pytest.mark.parametrize(
    ("asked", "given"), [(-5, 1), (0, 1), (1, 1), (100, 100), (623, 623), (624, 624), (10**6, 624)]
)
def test_a_reservation_is_clamped(asked: int, given: int) -> None:
    """The context is that of the pools, 39 pages, which is less than the model's."""
    made = Made()
    assert made.session.context == 39 * 16 < made.runner.context
    assert made.session.reserve(asked) == given
    assert made.session.context_capped == (asked > 624)
    made.check()
    assert Made(context=50).session.reserve(10**6) == 50


def test_more_than_the_device_holds_is_refused_with_both_numbers() -> None:
    made = Made()
    other = made.pages.reserve(10)
    assert other is not None
    with pytest.raises(DoesNotFit) as caught:
        made.session.reserve(600)
    assert (caught.value.data["needed"], caught.value.data["room"]) == (600, 29 * 16)
    assert "600" in str(caught.value)
    assert "464" in str(caught.value)
    assert made.session.reserve(29 * 16) == 464


def test_room_is_made_of_what_only_the_cache_holds() -> None:
    made = Made()
    cache = PrefixCache(made.pages, 64, 20)
    pages = made.pages.reserve(20)
    assert pages is not None
    cache.insert(PageKeys(b"root", tokens(320), ()), pages, 320, [320])
    made.pages.release_window(pages)
    made.pages.release(pages)
    assert made.pages.free < 30
    session = Session(made.runner, made.pages, cache.make_room)
    assert session.reserve(500) == 500


def test_growing_drops_what_was_held_and_says_so_and_shrinking_keeps_it() -> None:
    made = Made()
    made.session.reserve(100)
    made.session.forward(tokens(50), 0)
    made.session.reserve(60)
    assert made.session.held == 50
    made.session.reserve(112)  # the same pages
    assert made.session.held == 50
    made.session.reserve(200)
    assert made.session.held == 0
    assert made.session.notices[1:] == ["growing from 112 to 200 positions drops the 50 held"]
    made.check()


@pytest.mark.parametrize("max_rows", [1, 7, 100])
def test_a_forward_gives_the_logits_of_the_whole_history(max_rows: int) -> None:
    made = Made(max_rows=max_rows)
    ids = tokens(300)
    made.session.reserve(400)
    for end, start in ((250, 0), (251, 250), (300, 251)):
        np.testing.assert_array_equal(made.session.forward(ids[:end], start), logits(ids[:end]))
        assert made.session.held == end
        made.check()


@pytest.mark.parametrize(
    ("held", "start", "computed"),
    [(100, 100, 50), (100, 500, 50), (100, 0, 150), (100, 90, 60), (300, 20, 150)],
)
def test_start_is_at_most_what_is_held_and_0_begins_anew(held: int, start: int, computed: int) -> None:
    """The last: a start whose window has left the pools begins anew too."""
    made = Made()
    made.session.reserve(400)
    made.session.forward(tokens(held), 0)
    before = sum(batch.num_rows for batch in made.runner.batches)
    ids = [*tokens(held)[:100], *tokens(50, seed=2)]
    np.testing.assert_array_equal(made.session.forward(ids, start), logits(ids))
    assert sum(batch.num_rows for batch in made.runner.batches) - before == computed


def test_after_a_failure_nothing_is_held_and_it_is_said_kept_and_raised() -> None:
    made = Made()
    made.session.reserve(300)
    made.session.forward(tokens(50), 0)
    whole = made.runner.forward
    calls = []

    def failing(batch: Any) -> None:
        calls.append(batch)
        if len(calls) == 2:
            raise RuntimeError("the device is gone")
        whole(batch)

    made.runner.forward = failing  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="the device is gone"):
        made.session.forward(tokens(250), 50)  # in its second chunk
    assert made.session.held == 0
    assert "the device is gone" in made.session.notices[-1]
    made.check()
    made.runner.forward = whole  # type: ignore[method-assign]
    np.testing.assert_array_equal(made.session.forward(tokens(250), 250), logits(tokens(250)))


def test_greedy_gives_the_token_without_moving_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made()
    made.session.reserve(100)
    expected = logits(tokens(20))
    monkeypatch.setattr(made.session, "forward", None)
    assert made.session.forward_greedy(tokens(20), 0) == int(expected.argmax())
    best = int(expected.argmax())
    expected[best] = -np.inf
    assert made.session.forward_greedy(tokens(20), 20, exclude=[best]) == int(expected.argmax())


def test_a_device_that_chooses_nothing_is_replayed_from_the_start() -> None:
    made = Made()
    whole = made.runner.argmax_rows
    prompt = tokens(40)
    expected = Made().session.turn(prompt, 6, END).tokens
    calls: list[int] = []

    def sometimes(rows: Any, exclude: Any) -> Any:
        calls.append(1)
        return np.asarray([-1], dtype=np.int32) if len(calls) == 3 else whole(rows, exclude)

    made.runner.argmax_rows = sometimes  # type: ignore[method-assign]
    made.session.reserve(100)
    made.runner.batches.clear()
    assert made.session.turn(prompt, 6, END).tokens == expected
    replayed = [batch for batch in made.runner.batches if batch.pos[0] == 0]
    assert [batch.num_rows for batch in replayed] == [40, 42]
    assert any("chose no token" in notice for notice in made.session.notices)
    made.runner.argmax_rows = lambda rows, exclude: np.asarray([-1], dtype=np.int32)  # type: ignore[method-assign]
    assert made.session.forward_greedy(prompt, 0) is None
    assert made.session.held == 0


def test_score_is_teacher_forced() -> None:
    made = Made(max_rows=30)
    ids = tokens(100)
    made.session.reserve(100)
    expected = []
    for at in range(1, 100):
        row = logits(ids[:at]).astype(np.float64)
        expected.append(float(row[ids[at]] - np.log(np.exp(row - row.max()).sum()) - row.max()))
    # 1e-9: float64 sums of the same float32 logits in another order
    np.testing.assert_allclose(made.session.score(ids), expected, rtol=0, atol=1e-9)
    assert made.session.score([5]) == []


def test_a_turn_reuses_what_is_held_exactly_when_the_prompt_strictly_extends_it() -> None:
    made = Made()
    made.session.reserve(500)
    prompt = tokens(120)
    first = made.session.turn(prompt, 4, END)
    assert (first.reused, first.batched_prefills) == (0, 2)  # chunks of 100 rows and of 20
    held = made.session.held
    extended = [*prompt, *first.tokens, *tokens(30, seed=3)]
    second = made.session.turn(extended, 4, END)
    assert (second.reused, second.batched_prefills) == (held, 1)
    assert second.tokens == Made().session.turn(extended, 4, END).tokens
    again = made.session.turn(extended, 4, END)  # shorter than what is held
    assert again.reused == 0
    assert again.tokens == second.tokens
    other = [7, *extended[1:], *tokens(30, seed=4)]
    assert made.session.turn(other, 2, END).reused == 0
    made.check()


def test_a_prompt_that_leaves_no_room_is_refused_whole_and_what_is_held_stays() -> None:
    made = Made()
    made.session.reserve(100)
    made.session.forward(tokens(50), 0)
    with pytest.raises(DoesNotFit) as caught:
        made.session.turn(tokens(624), 5, END)
    assert (caught.value.data["needed"], caught.value.data["room"]) == (625, 624)
    assert made.session.held == 50
    last = made.session.turn(tokens(623), 5, END)
    assert last.context_capped
    assert len(last.tokens) <= 1
    assert not made.session.turn(tokens(10), 5, END).context_capped


def test_close_gives_everything_back() -> None:
    made = Made()
    made.session.reserve(500)
    made.session.forward(tokens(400), 0)
    assert made.session.held_bytes > 25 * 512
    made.session.close()
    assert (made.pages.free, made.pages.free_sliding, made.session.held_bytes) == (39, 30, 0)


@pytest.fixture
def mini() -> Iterator[TorchRunner]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield TorchRunner.load(MINI, num_pages=64, sliding_pages=40, max_rows=256, soft_capacity=280)
    torch.set_num_threads(before)


@pytest.mark.skipif(not list(MINI.glob("*.safetensors")), reason="the checkpoint is not there")
def test_a_turn_on_a_held_prefix_has_the_bits_of_the_same_prompt_alone(mini: TorchRunner) -> None:
    ids = [int(token) for token in np.random.default_rng(5).integers(20, 4000, 330)]
    sessions = [Session(mini, Pages(mini.num_pages, mini.sliding_pages)) for _ in range(2)]
    held, fresh = sessions
    held.reserve(400)
    assert held.notices[0].startswith("Backend: CPU (")
    held.forward(ids[:300], 0)
    on_held = held.forward(ids, 300)
    mini.set_sliding_map(np.arange(mini.num_pages, dtype=np.int32), np.zeros(mini.num_pages, dtype=np.int32))
    fresh.reserve(400)
    alone = fresh.forward(ids, 0)
    assert on_held.tobytes() == alone.tobytes()
    assert fresh.forward_greedy(ids, 330) == int(alone.argmax())
    assert alone.std() > 0.1
