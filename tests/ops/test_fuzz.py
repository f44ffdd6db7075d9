"""Every parser of what strangers send, with every seed and with seeds that were damaged: an answer or a typed refusal.

What atheris found by hand is among the seeds (docs/fuzzing.md), so a defect that was fixed stays fixed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ops.fuzz import made
from ops.fuzz.seeds import ROOT, kept
from ops.fuzz.targets import TARGETS

CPU_S = 2.0  # of one small input: the worst takes a tenth of it on a slow machine
EXAMPLES = 30  # of each target; atheris does the rest by hand
fuzzed = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=EXAMPLES,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


def within(run: Callable[[bytes], None], data: bytes) -> None:
    began = time.process_time()
    run(data)
    assert time.process_time() - began < CPU_S


def test_every_target_has_seeds_and_every_seed_a_target() -> None:
    assert {path.name for path in ROOT.iterdir()} == set(TARGETS)
    for target, data in made.made():
        assert any(path.read_bytes() == data for path in kept(target)), f"run python -m ops.fuzz.made: {target}"


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, on damaged metadata
@pytest.mark.parametrize("target", TARGETS)
def test_every_seed_is_answered_or_refused(target: str) -> None:
    for path in kept(target):
        within(TARGETS[target], path.read_bytes())


@st.composite
def damaged(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A seed with some of its bytes changed, left out, doubled or cut off."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.sampled_from([1, 2, 4, 16, 300]))
        match draw(st.sampled_from(["change", "cut", "remove", "double", "number", "insert"])):
            case "change":
                data[at : at + length] = draw(st.binary(min_size=length, max_size=length))
            case "cut":
                del data[at:]
            case "remove":
                del data[at : at + length]
            case "double":
                data[at:at] = data[at : at + length]
            case "number":
                data[at : at + 4] = draw(
                    st.sampled_from([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80"])
                )
            case _:
                data[at:at] = draw(st.binary(max_size=8))
    return bytes(data)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_damaged_is_answered_or_refused(target: str) -> None:
    seeds = [path.read_bytes() for path in kept(target)]

    @fuzzed
    @given(damaged(seeds))
    def check(data: bytes) -> None:
        within(TARGETS[target], data)

    check()


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 256, 10**400, -0.0, 1e308, 5e-324]),
    st.text(max_size=6),
    st.sampled_from(["", "\ud800", "\0", "​", "x" * 300, "data:,", "https://[", "[image 1]"]),
    st.lists(st.none(), max_size=2),
    st.dictionaries(
        st.sampled_from(["type", "url", "", "sha256", "part"]), st.none() | st.text(max_size=3), max_size=2
    ),
)


@st.composite
def odd_json(draw: st.DrawFn, seeds: list[Any]) -> Any:
    """A seed's JSON with some of its values replaced."""
    value = json.loads(json.dumps(draw(st.sampled_from(seeds))))
    for _ in range(draw(st.integers(1, 3))):
        node, places = value, list[tuple[Any, Any]]()
        waiting = [node]
        while waiting:
            node = waiting.pop()
            for key in node if isinstance(node, dict) else range(len(node)):
                places.append((node, key))
                if isinstance(node[key], dict | list):
                    waiting.append(node[key])
        if places:
            node, key = draw(st.sampled_from(places))
            node[key] = draw(ODD)
    return value


@pytest.mark.parametrize("target", ["request", "frame", "rows"])
def test_json_with_other_values_than_expected_is_answered_or_refused(target: str) -> None:
    seeds = [_as_json(path.read_bytes()) for path in kept(target)]

    @fuzzed
    @given(odd_json([seed for seed in seeds if isinstance(seed, dict)]))
    def check(value: Any) -> None:
        within(TARGETS[target], json.dumps(value).encode())

    check()


def _as_json(data: bytes) -> Any:
    """The first line's."""
    try:
        return json.loads(data.partition(b"\n")[0])
    except ValueError:
        return None
