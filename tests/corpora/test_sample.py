from __future__ import annotations

import string

import pytest

from wikidx.corpora.known import sample

GOLDEN = [
    ("element-79", ["Au", "79", "aurum", "group 11"]),
    ("element-80", ["Hg", "liquid", "quicksilver"]),
    ("planet-saturn", ["Titan", "rings"]),
    ("moon-titan", ["Saturn", "1655", "Christiaan Huygens"]),
    ("country-fr", ["Paris", "euro", "Spain", "French"]),
    ("country-bt", ["Thimphu", "ngultrum", "China and India"]),
    ("river-nile", ["Mediterranean Sea", "Egypt", "Cairo"]),
    ("river-danube", ["Black Forest", "Black Sea", "Budapest"]),
    ("mountain-everest", ["8,849", "1953", "Tenzing Norgay"]),
    ("state-hi", ["Honolulu", "21 August 1959", "Barack Obama"]),
    ("president-16", ["Kentucky", "Republican", "James Buchanan", "Andrew Johnson"]),
    ("president-24", ["Grover Cleveland", "1893", "1897", "Benjamin Harrison", "William McKinley"]),
    ("person-curie", ["Warsaw", "1867", "1903 and 1911"]),
    ("book-don-quixote", ["Miguel de Cervantes", "1605", "Spanish"]),
    ("painting-guernica", ["Pablo Picasso", "1937", "Madrid"]),
    ("composer-mozart", ["Salzburg", "1756", "1791"]),
    ("invention-telephone", ["Alexander Graham Bell", "1876"]),
]


def texts() -> dict[str, str]:
    return {passage.id: passage.text for passage in sample.passages()}


def test_there_are_784_passages_with_ids_of_their_own() -> None:
    ids = [passage.id for passage in sample.passages()]
    assert len(ids) == len(set(ids)) == sample.CORPUS.n_passages == 784
    allowed = set(string.ascii_lowercase + string.digits + "-#")
    assert [id_ for id_ in ids if not set(id_) <= allowed] == []


def test_titles_of_articles_are_distinct() -> None:
    titles = {passage.id.partition("#")[0]: passage.title for passage in sample.passages()}
    assert len(set(titles.values())) == len(titles)


def test_passages_are_prose_of_at_most_100_words_and_rarely_short() -> None:
    lengths = [len(passage.text.split()) for passage in sample.passages()]
    assert max(lengths) <= 100
    assert min(lengths) >= 25
    assert sum(length >= 60 for length in lengths) > 0.8 * len(lengths)


@pytest.mark.parametrize(("id_", "facts"), GOLDEN)
def test_golden_facts(id_: str, facts: list[str]) -> None:
    text = texts()[f"{id_}#0"]
    assert [fact for fact in facts if fact not in text] == []


def test_questions_have_existing_evidence_with_the_answer_in_the_last_passage() -> None:
    known = texts()
    for question in sample.questions():
        assert set(question.gold_ids) <= known.keys(), question.id
        last = known[question.gold_ids[-1]].lower()
        assert question.answers, question.id
        assert question.answers[0].lower() in last, question.id


def test_questions_are_about_100_with_a_third_of_two_hops() -> None:
    questions = sample.questions()
    two = [question for question in questions if question.hops == 2]
    assert 90 <= len(questions) <= 120
    assert 0.3 <= len(two) / len(questions) <= 0.4
    assert all(len(question.gold_ids) == question.hops for question in questions)
    assert len({question.id for question in questions}) == len(questions)
    assert len({question.question for question in questions}) == len(questions)


def test_questions_do_not_give_their_answer_away() -> None:
    assert [q.id for q in sample.questions() if any(answer.lower() in q.question.lower() for answer in q.answers)] == []


def test_two_hop_answers_are_not_in_the_first_passage_alone() -> None:
    known = texts()
    leaks = [q.id for q in sample.questions() if q.hops == 2 and any(a.lower() in known[q.gold_ids[0]].lower() for a in q.answers)]
    assert leaks == []
