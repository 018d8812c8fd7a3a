"""Sets of questions: repetitions, drawing."""

from __future__ import annotations

from pathlib import Path

import pytest

from wikidx.base.errors import InputError
from wikidx.runtimes.questions import Question, read_questions
from wikidx.runtimes.training.self_reasoning.teacher import task_of_set
from wikidx.runtimes.training.sets import check_set_names, draw_evenly, draw_questions, make_question_set, remove, words_of


def make_questions(name: str, n: int) -> list[Question]:
    return [Question(f"{name}{number}", f"{name} question {number}?") for number in range(n)]


def test_words_are_levelled() -> None:
    assert words_of("Who wrote “Ｈａｍｌｅｔ”, and—when?") == ["who", "wrote", "hamlet", "and", "when"]
    assert words_of("STRASSE") == words_of("Straße") == ["strasse"]
    assert words_of(" ?! ") == ["?!"]


def test_of_questions_with_equal_letters_the_first_counts_and_what_is_left_out_is_not_drawn_from_either() -> None:
    one = make_question_set("nq", [Question("a", "Who is it?"), Question("b", "who isit"), Question("c", "It is who?")])
    assert ([question.id for question in one.questions], one.others, one.n_read) == (["a", "c"], ("Who is it?", "It is who?"), 3)
    rest = remove(one, frozenset({"a"}))
    assert ([question.id for question in rest.questions], rest.others) == (["c"], ("It is who?",))


def test_a_draw_depends_on_the_seed_alone_and_keeps_the_order() -> None:
    one = make_question_set("nq", make_questions("q", 50))
    first, again, other = draw_questions(one, 5, 0), draw_questions(one, 5, 0), draw_questions(one, 5, 1)
    assert first == again
    assert first.questions != other.questions
    assert len({question.id for question in first.questions}) == 5
    assert [question for question in one.questions if question in first.questions] == list(first.questions)
    assert first.others == one.others
    assert draw_questions(one, 51, 0).questions == one.questions
    assert draw_questions(one, 0, 0).questions == ()


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
    sets = [make_question_set(f"s{place}", make_questions(f"s{place}", size)) for place, size in enumerate(sizes)]
    found = [len(one.questions) for one in draw_evenly(sets, n, 0)]
    assert sorted(found) == sorted(expected)
    assert [count for count, size in zip(found, sizes, strict=True) if count > size] == []
    assert sum(found) == min(n, sum(sizes))


def test_two_sets_of_one_name() -> None:
    with pytest.raises(InputError, match="two sets of questions are called 'nq'"):
        check_set_names([make_question_set("nq", make_questions("a", 1)), make_question_set("nq", make_questions("b", 1))])


def test_real_sets_have_their_tasks(shared_data: Path) -> None:
    folder = shared_data / "datasets"
    found = {}
    for name in ("fever_paper_dev.jsonl.gz", "asqa_dev.json.gz", "data_nq_sampled.jsonl.gz", "strategyqa_dev.json.gz"):
        one = make_question_set(name, read_questions(folder / name))
        found[name.partition("_")[0]] = task_of_set(one, "gold")
    assert found == {"fever": "fever", "asqa": "long", "data": "short", "strategyqa": "short"}
