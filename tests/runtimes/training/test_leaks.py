"""Evaluation questions among those to train on."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import pytest

from wikidx.base.errors import InputError
from wikidx.runtimes.questions import Question, read_questions
from wikidx.runtimes.training.leaks import check_leaks, find_leaks
from wikidx.runtimes.training.sets import QuestionSet, make_question_set, words_of


def make_set(name: str, *texts: str) -> QuestionSet:
    return make_question_set(name, [Question(f"{number}", text) for number, text in enumerate(texts)])


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("Who wrote Hamlet?", "who wrote “hamlet”", "equal"),
        ("why wo n 't a 7-day visa do", "Why won't a 7 day visa do?", "equal"),  # as tokenised
        ("is a whale a fish", "is a fish a whale", "near"),
    ],
)
def test_equal_letters_in_equal_order_are_equal_and_the_same_words_in_another_near(one: str, other: str, kind: str) -> None:
    (leak,) = find_leaks([make_set("train", "Who painted it?", one)], [make_set("test", other)], 1)
    assert leak == ("train", "1", one, "test", "0", other, kind, 1.0)


@pytest.mark.parametrize(
    ("one", "other", "near", "is_leak"),
    [
        ("a b c d e f g h i", "a b c d e f g h j", 0.8, True),  # 8 of 10
        ("a b c d", "a b c e", 0.6, True),  # 3 of 5, exactly
        ("a b c d", "a b c e", 0.61, False),
        ("a b c d", "a b c d e", 0.8, True),  # 4 of 5
        ("a b c d e", "a b c d", 0.8, True),
        ("a b c", "a b c d", 0.8, False),  # 3 of 4
        ("a", "b", 0.01, False),
        ("?!", "…", 0.8, False),  # no words at all, and not the same
    ],
)
def test_the_overlap_is_shared_words_over_all_words(one: str, other: str, near: float, is_leak: bool) -> None:
    assert bool(find_leaks([make_set("train", one)], [make_set("test", other)], near)) == is_leak


def test_the_most_like_counts_and_of_several_the_first() -> None:
    against = [make_set("first", "a b c d x y", "a b c d e y"), make_set("second", "a b c d e z", "f e d c b a")]
    (leak,) = find_leaks([make_set("train", "a b c d e f")], against, 0.5)
    assert (leak.against, leak.against_id, leak.overlap) == ("second", "1", 1.0)
    (leak,) = find_leaks([make_set("train", "a b c d e w")], against, 0.5)
    assert (leak.against, leak.against_id, leak.overlap) == ("first", "1", round(5 / 7, 4))


@pytest.mark.parametrize("near", [0.3, 0.5, 0.75, 0.8, 1.0])
def test_nothing_near_is_missed(near: float) -> None:
    """Against the definition, on short questions of few words, where overlaps are many and lie on the threshold."""
    chance = random.Random(5)
    texts = [" ".join(chance.choices("abcdefgh", k=chance.randint(1, 7))) for _ in range(300)]
    train, test = make_set("train", *texts[:150]), make_set("test", *texts[150:])

    def overlap(one: str, other: str) -> Fraction:
        first, second = set(words_of(one)), set(words_of(other))
        return Fraction(len(first & second), len(first | second))

    best = {asked.text: max(overlap(asked.text, other.text) for other in test.questions) for asked in train.questions}
    expected = {text: round(float(most), 4) for text, most in best.items() if most >= Fraction(str(near))}
    assert {leak.text: leak.overlap for leak in find_leaks([train], [test], near)} == expected
    assert 0 < len(expected)


SETS = [make_set("nq", "who wrote hamlet", "who wrote faust", "what is a whale")]
TEST = [make_set("nq_test", "Who wrote Hamlet?", "what is a big whale")]


def test_leaks_are_refused() -> None:
    expected = (
        r"2 of 3 questions are evaluation questions too, 1 equal and 1 near, such as 'who wrote hamlet' \(nq/0\) and 'Who wrote Hamlet\?' "
        r"\(nq_test/0\): --leaks drop"
    )
    with pytest.raises(InputError, match=expected):
        check_leaks(SETS, TEST, "refuse", 0.8)


def test_leaks_are_dropped_or_kept_and_reported() -> None:
    dropped, kept = check_leaks(SETS, TEST, "drop", 0.8), check_leaks(SETS, TEST, "keep", 0.8)
    assert [question.id for question in dropped.sets[0].questions] == ["1"]
    assert dropped.sets[0].others == ("who wrote faust",)
    assert kept.sets == SETS
    assert dropped.to_json() == {"mode": "drop", "near": 0.8, "against": {"nq_test": 2}, "counts": {"equal": 1, "near": 1}}
    assert kept.leaks == dropped.leaks
    assert dropped.leaks[1].overlap == 0.8


def test_without_leaks_and_without_evaluation_questions() -> None:
    found = check_leaks(SETS, [make_set("other", "how long is the nile")], "refuse", 0.8)
    assert (found.sets, found.leaks) == (SETS, [])
    for mode in ("refuse", "drop"):
        with pytest.raises(InputError, match="name the evaluation questions with --against FILE"):
            check_leaks(SETS, [], mode, 0.8)
    assert check_leaks(SETS, [], "keep", 0.8).to_json()["against"] == {}


@pytest.mark.parametrize(("mode", "near"), [("ignore", 0.8), ("drop", 0.0), ("drop", 1.1), ("drop", float("nan"))])
def test_what_cannot_be(mode: str, near: float) -> None:
    with pytest.raises(InputError, match="leaks can be refused, dropped or kept"):
        check_leaks(SETS, TEST, mode, near)


def test_evaluation_questions_among_real_ones(shared_data: Path) -> None:
    """DPR's copy of NQ-open's questions is tokenised ("won 't"); every one of them is found all the same, and hardly one of TriviaQA's."""
    nq, dpr, trivia = (
        make_question_set(name, read_questions(shared_data / "qa" / name))
        for name in ("NQ-open.dev.jsonl.gz", "topics.dpr.nq.test.txt.gz", "topics.dpr.trivia.test.txt.gz")
    )
    leaks = find_leaks([dpr], [nq], 0.8)
    assert (len(dpr.questions), len(leaks), sum(leak.kind == "equal" for leak in leaks)) == (3610, 3610, 3609)
    assert len(find_leaks([trivia], [nq], 0.8)) == 1
