"""Sets of questions: repetitions, drawing."""

from __future__ import annotations

import pytest

from wikidx.corpora.errors import InputError
from wikidx.runtimes.questions import Question
from wikidx.runtimes.training.sets import check_names, drawn, drawn_evenly, question_set, without, words_of


def made(name: str, n: int) -> list[Question]:
    return [Question(f"{name}{number}", f"{name} question {number}?") for number in range(n)]


def test_words_are_levelled() -> None:
    assert words_of("Who wrote “Ｈａｍｌｅｔ”, and—when?") == ["who", "wrote", "hamlet", "and", "when"]
    assert words_of("STRASSE") == words_of("Straße") == ["strasse"]
    assert words_of(" ?! ") == ["?!"]


def test_of_questions_with_equal_letters_the_first_counts() -> None:
    one = question_set("nq", [Question("a", "Who is it?"), Question("b", "who isit"), Question("c", "It is who?")])
    assert [question.id for question in one.questions] == ["a", "c"]
    assert one.others == ("Who is it?", "It is who?")
    assert one.n_read == 3


def test_what_is_left_out_is_not_drawn_from_either() -> None:
    one = without(question_set("nq", made("q", 3)), frozenset({"q1"}))
    assert [question.id for question in one.questions] == ["q0", "q2"]
    assert one.others == ("q question 0?", "q question 2?")


def test_a_draw_depends_on_the_seed_alone_and_keeps_the_order() -> None:
    one = question_set("nq", made("q", 50))
    first, again, other = drawn(one, 5, 0), drawn(one, 5, 0), drawn(one, 5, 1)
    assert first == again
    assert first.questions != other.questions
    assert len({question.id for question in first.questions}) == 5
    assert [question for question in one.questions if question in first.questions] == list(first.questions)
    assert first.others == one.others
    assert drawn(one, 51, 0).questions == one.questions
    assert drawn(one, 0, 0).questions == ()


@pytest.mark.parametrize(
    ("sizes", "n", "expected"),
    [
        ((10, 10, 10), 9, [3, 3, 3]),
        ((10, 2, 10), 9, [4, 2, 3]),  # what the small one lacks, the others give; the rest goes to the last
        ((1, 1, 1), 9, [1, 1, 1]),
        ((10, 10), 7, [3, 4]),
    ],
)
def test_sets_give_as_evenly_as_they_can(sizes: tuple[int, ...], n: int, expected: list[int]) -> None:
    sets = [question_set(f"s{place}", made(f"s{place}", size)) for place, size in enumerate(sizes)]
    found = [len(one.questions) for one in drawn_evenly(sets, n, 0)]
    assert sorted(found) == sorted(expected)
    assert [count for count, size in zip(found, sizes, strict=True) if count > size] == []
    assert sum(found) == min(n, sum(sizes))


def test_two_sets_of_one_name() -> None:
    with pytest.raises(InputError, match="two sets of questions are called 'nq'"):
        check_names([question_set("nq", made("a", 1)), question_set("nq", made("b", 1))])
