"""Samples and protocols: selection independent of the order of questions; sizes that do not fit are refused."""

from __future__ import annotations

import hashlib
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikidx.base.errors import InputError, UnknownNameError
from wikidx.runtimes.questions import PROTOCOLS, Question, Selection, sample, select


def questions_of(n: int, **gold: object) -> list[Question]:
    return [Question(str(number), f"question {number}?", ("a",), gold) for number in range(n)]


def test_what_is_drawn_never_changes() -> None:
    """Written down once: the same for every version of Python and of this library."""
    assert [one.id for one in sample(questions_of(1000), 8, 0)] == ["161", "203", "262", "444", "499", "742", "757", "815"]
    assert [one.id for one in sample(questions_of(1000), 8, 1)] == ["20", "75", "146", "695", "840", "860", "896", "953"]


@given(st.integers(1, 40), st.integers(0, 3), st.randoms(use_true_random=False))
def test_a_sample_is_by_text_alone(n: int, seed: int, rng: random.Random) -> None:
    questions = [Question(str(at), text) for at, text in enumerate(rng.choices(["a", "b", "c", "d?", "é"], k=40))]
    drawn = sample(questions, n, seed)
    expected = sorted(questions, key=lambda one: (hashlib.sha256(f"{seed}\n{one.text}".encode()).hexdigest(), one.id))[:n]
    assert drawn == sorted(expected, key=lambda one: int(one.id))
    shuffled = rng.sample(questions, 40)
    assert Counter(one.text for one in sample(shuffled, n, seed)) == Counter(one.text for one in drawn)
    assert [one for one in shuffled if one in drawn] == sample(shuffled, n, seed)


@pytest.mark.parametrize("n", [0, 6])
def test_a_sample_that_cannot_be_drawn(n: int) -> None:
    with pytest.raises(InputError, match=f"a sample of {n} of 5 questions cannot be drawn: give --sample a number from 1 to 5"):
        sample(questions_of(5), n, 0)


def test_nothing_chosen_is_everything() -> None:
    assert select(questions_of(3), Selection()) == questions_of(3)
    assert Selection().to_json() == {}
    assert Selection("refeed-nq", 10, 3).to_json() == {"protocol": "refeed-nq", "sample": {"n": 10, "seed": 3}}


def test_the_first_of_a_file_those_drawn_by_its_seed_and_those_left_out_for_training() -> None:
    assert select(questions_of(12_576), Selection("retrorag-2wikimultihopqa", 20, 3)) == sample(questions_of(12_576)[:500], 20, 3)
    order = list(range(7_405))
    random.Random(233).shuffle(order)
    assert [int(one.id) for one in select(questions_of(7_405), Selection("react-hotpotqa"))] == order[:500]
    questions = questions_of(3_610)
    kept, drawn = select(questions, Selection("ra-isf-arxiv-nq")), sample(questions, 1_000, 0)
    assert sorted([*kept, *drawn], key=lambda one: int(one.id)) == questions
    assert len(select(questions[:1_001], Selection("ra-isf-arxiv-nq"))) == 1


def test_questions_of_one_kind() -> None:
    questions = [one._replace(gold={"type": "Knowledge" if int(one.id) < 206 else "Misleading"}) for one in questions_of(450)]
    assert select(questions, Selection("retrorag-halluqa")) == questions[:206]
    with pytest.raises(InputError, match="asks 206 questions, and this file has 205 of them: HalluQA is meant"):
        select([*questions[1:], questions[-1]._replace(id="450")], Selection("retrorag-halluqa"))


def test_the_long_tail_of_popqa() -> None:
    """Page views below 100, not 100; a question without them is none."""
    views = [99] * 1_398 + [0] + [100] * 2_000
    questions = [one._replace(gold={"popularity": views[int(one.id)]} if int(one.id) < len(views) else {}) for one in questions_of(14_267)]
    assert select(questions, Selection("self-reasoning-popqa")) == questions[:1_399]


@pytest.mark.parametrize(
    ("n", "name", "message"),
    [
        (20, "ra-isf-arxiv-nq", "'ra-isf-arxiv-nq' asks all but 1,000 questions, and this file has 20: NQ-open is meant"),
        (1_000, "ra-isf-arxiv-nq", "and this file has 1,000: NQ-open is meant"),
        *(
            (7, name, f"the protocol '{name}' is on the [0-9,]+ (or [0-9,]+ )*questions of .*: this file has 7")
            for name, one in PROTOCOLS.items()
            if one.n_in_file
        ),
    ],
)
def test_a_file_of_another_size_is_refused(n: int, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        select(questions_of(n), Selection(name))


def test_protocols_are_named_and_say_what_they_are() -> None:
    with pytest.raises(UnknownNameError, match="unknown protocol 'refed-nq': did you mean 'refeed-nq'"):
        select(questions_of(3), Selection("refed-nq"))
    for protocol in PROTOCOLS.values():
        assert protocol.file
        assert protocol.n is None or protocol.n_first in (None, protocol.n)
        assert protocol.n_in_file or protocol.n_excluded or protocol.n_first


@pytest.mark.parametrize(
    ("name", "n_in_file", "n"),
    [
        ("ra-isf-nq", 7_830, 7_830),
        ("ra-isf-triviaqa", 17_210, 17_210),
        ("ra-isf-strategyqa", 2_780, 1_780),
        ("ra-isf-strategyqa", 1_780, 1_780),
        ("ra-isf-2wikimultihopqa", 12_576, 2_935),
        ("ra-isf-2wikimultihopqa", 2_935, 2_935),
        ("iter-retgen-hotpotqa", 7_405, 500),
        ("retrorag-hotpotqa", 7_405, 500),
    ],
)
def test_the_sizes_of_published_sets(name: str, n_in_file: int, n: int) -> None:
    """Table 6 of RA-ISF in the proceedings, and the first 500 questions of Iter-RetGen and RetroRAG."""
    questions = questions_of(n_in_file)
    chosen = select(questions, Selection(name))
    assert len({one.id for one in chosen}) == n
    assert n != 500 or chosen == questions[:500]
