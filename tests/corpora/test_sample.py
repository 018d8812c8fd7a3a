from __future__ import annotations

import string

from wikidx.corpora.known import sample


def texts() -> dict[str, str]:
    return {passage.id: passage.text for passage in sample.passages()}


def test_there_are_784_passages_with_ids_of_their_own() -> None:
    digest = "15d05a47d6f4a114e06ae5b278e90932d335ced704a4c04f53b7390e0cfda4be"  # sha256sum passages.jsonl: their facts were checked
    assert sample.CORPUS.reading == {"content": digest}
    ids = [passage.id for passage in sample.passages()]
    assert len(ids) == len(set(ids)) == sample.CORPUS.n_passages == 784
    allowed = set(string.ascii_lowercase + string.digits + "-#")
    assert [id_ for id_ in ids if not set(id_) <= allowed] == []


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
