"""Texts that repeat themselves until the token limit are cut after the first time, before a method sees them."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.rehearsal import StandInSearcher
from wikidx.runtimes.llms.base import Gen
from wikidx.runtimes.llms.repetition import REPEATS, cut_loop, is_endless
from wikidx.runtimes.llms.scripted import ScriptedLLM
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.methods.requests import Retrieve
from wikidx.runtimes.questions import Question

LOOP = "Mercury is a metal. " + "The answer is yes. " * 40 + "The ans"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (LOOP, "Mercury is a metal. The answer is yes"),
        ("yes\n" * 20, "yes"),
        ("the 19th century." + " He lived in a monastery." * 5 + " He lived in", "the 19th century. He lived in a monastery"),
        ("So it is. " + "It is the thing that " * 5 + "It is t", "So it is. It is the thing that"),
        ("He is a ma" + "ha" * 20, "He is a mah"),
        ("no no no no no no no no no no", "no"),
        ("It is " + "." * 60, "It is ."),
        ("1. Who?\n2. Where?\n" * 5, "1. Who?\n2. Where?"),
        ('{"relevant": true, "cite_content": "' + "the metal " * 30, '{"relevant": true, "cite_content": "the metal'),
    ],
)
def test_a_loop_is_cut_after_its_first_time(text: str, kept: str) -> None:
    cut = cut_loop(Gen(text=text, finish="length", degraded=("no seed",)))
    assert (cut.text, cut.finish, cut.degraded) == (kept, "length", ("no seed", REPEATS))


def test_a_loop_is_cut_with_its_log_probabilities() -> None:
    """The tokens of a loop are near-certain: they must not make its first time likely."""
    words = ["Paris", " is", " unsure", "."] + [" no", " way", ","] * 40
    ends = tuple(itertools.accumulate(map(len, words)))
    logprobs = (-3.0,) * 7 + (-0.001,) * 117
    loop = Gen(text="".join(words), finish="length", logprobs=logprobs, token_ids=tuple(range(124)), ends=ends)
    cut = cut_loop(loop)
    assert loop.mean_nll == pytest.approx(0.17, abs=0.01)
    assert (cut.text, cut.mean_nll) == ("Paris is unsure. no way,", 3.0)
    assert cut.token_ids == tuple(range(7))
    unplaced = cut_loop(dataclasses.replace(loop, ends=None))
    assert (unplaced.text, unplaced.mean_nll, unplaced.token_ids) == (cut.text, None, None)


@given(st.lists(st.text(max_size=3), max_size=8), st.integers(0, 12), st.integers(0, 12))
def test_a_part_of_a_text_has_the_tokens_that_reach_into_it(tokens: list[str], first: int, length: int) -> None:
    ends = list(itertools.accumulate(map(len, tokens)))
    text = "".join(tokens)
    start, stop = min(first, len(text)), min(first + length, len(text))
    part = Gen(text=text, logprobs=tuple(-float(n) for n in range(len(tokens))), ends=tuple(ends)).part(start, stop)
    reached = [n for n, (end, token) in enumerate(zip(ends, tokens, strict=True)) if token and end - len(token) < stop and end > start]
    assert part.text == text[start:stop]
    assert [-n for n in part.logprobs or () if tokens[int(-n)]] == reached  # empty tokens have no place


@pytest.mark.parametrize(
    "gen",
    [
        Gen(text=LOOP),  # the model ended it
        Gen(text="The answer is yes. The answer is yes. The ans", finish="length"),  # twice and a half
        Gen(text="ha ha ha", finish="length"),
        Gen(text="", finish="length"),
        Gen(text="1. a\n2. b\n3. c\n4. d\n5. e\n6. f\n7. g\n", finish="length"),
    ],
)
def test_other_texts_stay(gen: Gen) -> None:
    assert cut_loop(gen) is gen


@pytest.mark.parametrize(
    ("tokens", "is_loop"),
    [
        ([1, 2, 3, *[7, 8, 9] * 43], False),  # 132 tokens: not a multiple of 32
        ([*range(100, 128), *[7, 8, 9, 5] * 33], True),
        ([*range(100, 132), *[7, 8, 9, 5] * 24], False),  # 96 tokens repeat
        (list(range(160)), False),
        ([7] * 96, False),
        ([7] * 128, True),
        ([*range(60)] * 3 + [*range(12)], False),  # three times
        ([], False),
    ],
)
def test_a_greedy_text_in_a_loop_is_not_continued(tokens: list[int], is_loop: bool) -> None:
    assert is_endless(tokens) is is_loop


@given(st.text("ab. ", max_size=30), st.text("ab. ", min_size=1, max_size=12), st.integers(3, 9), st.integers(0, 11))
def test_what_is_kept_repeats_to_the_whole(before: str, unit: str, times: int, rest: int) -> None:
    text = before + unit * times + unit[: rest % len(unit)]
    cut = cut_loop(Gen(text=text, finish="length"))
    assert text.startswith(cut.text)
    assert len(unit * times) < 24 or len(cut.text) < len(before + 2 * unit)


def test_a_loop_is_no_query() -> None:
    """Iter-RetGen searches with its last output."""
    services = Services(llms={"answer": ScriptedLLM(lambda call: Gen(text=LOOP, finish="length"))}, searcher=StandInSearcher())
    method = find_method("iter_retgen")
    (prediction,) = execute(lambda text: method.run(text, method.options(rounds=2)), [Question("1", "Which metal is liquid?")], services)
    searches = [step.request for step in prediction.steps if isinstance(step.request, Retrieve)]
    assert searches[1].queries == ("Mercury is a metal. The answer is yes Which metal is liquid?",)
    assert prediction.answer == "yes"
