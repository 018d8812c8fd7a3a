from __future__ import annotations

import functools
import random
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from tests.runtimes.evaluation.golden_cases import HAND_MADE, Case, read_aggregate, read_cases
from wikidx.base.errors import UnknownNameError
from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import DEFAULTS, Ranking, ScoredPassage, Searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.evaluation.retrieval.has_answer import Hits, answer_hits, has_answer, keep_retrieved_answers, token_row, token_rows
from wikidx.runtimes.evaluation.retrieval.rankings import hit_values
from wikidx.runtimes.questions import Question

LETTERS = "aAbZée\u0301ßİıΣσς\u0300\u200d\u00ad\ud800 \u00a0\n.,'’-_½²Ⅷ٣東京𝔸ÅÅﬁ"


@functools.lru_cache(maxsize=1 << 12)
def tokens_by_definition(text: str) -> list[str]:
    """Return the tokens as DPR defines them, one character class after another."""
    tokens, word = [], ""
    for letter in unicodedata.normalize("NFD", text):
        if regex.match(r"[\p{L}\p{N}\p{M}]", letter):
            word += letter
            continue
        tokens += [word] if word else []
        word = ""
        if regex.match(r"[^\p{Z}\p{C}]", letter):
            tokens.append(letter)
    return [token.lower() for token in [*tokens, *([word] if word else [])]]


def is_answered_by_definition(text: str, answers: Sequence[str]) -> bool:
    tokens = tokens_by_definition(text)
    for answer in map(tokens_by_definition, answers):
        if any(tokens[start : start + len(answer)] == answer for start in range(len(tokens) - len(answer) + 1)):
            return True
    return False


def check_string_case(case: Case) -> None:
    inputs, expected = case.inputs, case.expected
    titled = f"{inputs['title']} . {inputs['text']}"
    texts, answers = [inputs["text"], titled], [inputs["answers"]]
    assert has_answer(inputs["text"], inputs["answers"]) == expected["string"], case.name
    assert answer_hits([[0, 1]], texts, answers)[0].tolist() == [expected["string"], expected["string_with_title"]], case.name
    assert answer_hits([[0]], texts, answers, "kilt")[0].tolist() == [expected["kilt"]], case.name


def check_cases(cases: Sequence[Case]) -> None:
    for case in cases:
        if "string" in case.expected:
            check_string_case(case)
        else:
            text, patterns = case.inputs["text"], case.inputs["answers"]
            assert answer_hits([[0]], [text], [patterns], "regex")[0].tolist() == [case.expected["regex"]], case.name


def test_hand_made_cases_agree_with_the_official_evaluator() -> None:
    cases, recalls = read_cases(HAND_MADE, "has_answer"), read_cases(HAND_MADE, "recall_at_k")
    assert (len(cases), len(recalls)) == (54, 11)
    check_cases(cases)
    check_recall_cases(recalls)


def test_every_golden_case_agrees_with_the_official_evaluator(shared_data: Path) -> None:
    folder = shared_data / "golden_metrics"
    check_cases(read_cases(folder, "has_answer"))
    cases = {case.name: case for case in read_cases(folder, "recall_at_k")}
    check_recall_cases(list(cases.values()))
    group = read_aggregate(folder, "recall_at_k")["calculate_matches"][0]
    hits = [hits_of(cases[name]) for name in group["case_order"]]
    assert [hit_values(hits, k).mean() for k in range(1, 6)] == group["recall_at_k_string"]


def hits_of(case: Case, match: str = "string", join: str | None = None) -> Hits:
    passages = case.inputs["ctxs"]
    texts = [passage["text"] if join is None else f"{passage['title']}{join}{passage['text']}" for passage in passages]
    return answer_hits([range(len(texts))], texts, [case.inputs["answers"]], match)[0]


def check_recall_cases(cases: Sequence[Case]) -> None:
    for case in cases:
        assert hits_of(case).tolist() == case.expected["hits_string"], case.name
        assert hits_of(case, join=" . ").tolist() == case.expected["hits_string_with_title"], case.name
        assert hits_of(case, "kilt").tolist() == case.expected["hits_kilt"], case.name
        of_flashrag = [hits_of(case, "flashrag", join="\n")]
        for name, value in case.expected["flashrag"].items():
            metric, _, k = name.partition("@")
            if metric == "recall":
                assert hit_values(of_flashrag, int(k)).tolist() == [value], (case.name, name)


@given(st.lists(st.text(LETTERS, max_size=12)))
@example(["", "Σ", "ΑΣ ΑΣ.Α", "İ", "a\ud800b", "e\u0301"])
def test_rows_of_tokens_are_those_of_the_definition(texts: list[str]) -> None:
    expected = [" " + "".join(f"{token} " for token in tokens_by_definition(text)) for text in texts]
    assert token_rows(texts) == expected
    assert [token_row(text) for text in texts] == expected


@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.slow)])
def test_every_character_is_classed_and_lowered_as_by_the_definition(step: int) -> None:
    every = [chr(point) for point in range(0, sys.maxunicode + 1, step)]
    for separator in ("", " ", "a", "."):
        text = separator.join(every)
        assert token_rows([text]) == [token_row(text)]
    characters = random.Random(1).sample(every, 5_000)
    assert token_rows(characters) == [token_row(character) for character in characters]


@given(
    st.lists(st.text(LETTERS, max_size=16), min_size=1, max_size=6),
    st.lists(st.lists(st.text(LETTERS, max_size=5), max_size=4), max_size=5),
)
def test_hits_are_those_of_the_definition(texts: list[str], answers: list[list[str]]) -> None:
    rankings = [range(len(texts)) for _ in answers]
    expected = [[is_answered_by_definition(text, of_question) for text in texts] for of_question in answers]
    assert [hits.tolist() for hits in answer_hits(rankings, texts, answers)] == expected
    assert [[has_answer(text, of_question) for text in texts] for of_question in answers] == expected


@given(st.lists(st.text(LETTERS + "()[]*+?^$|\\d{}", max_size=10)), st.text(LETTERS, max_size=20))
def test_any_pattern_is_found_in_a_batch_as_alone(patterns: list[str], text: str) -> None:
    (hits,) = answer_hits([[0]], [text], [patterns], "regex")
    assert hits.tolist() == [any(answer_hits([[0]], [text], [[pattern]], "regex")[0].item() for pattern in patterns)]


def test_nothing_is_found_in_nothing_and_rules_and_lengths_are_checked() -> None:
    assert answer_hits([], [], []) == []
    assert [hits.tolist() for hits in answer_hits([[], [0, 0]], ["x"], [["x"], ["X"]])] == [[], [True, True]]
    with pytest.raises(UnknownNameError, match="unknown rule of matching 'substring'"):
        answer_hits([], [], [], "substring")
    with pytest.raises(ValueError, match="zip"):
        answer_hits([[0]], ["x"], [])


class ListedSearcher(Searcher):
    """A searcher that finds the same texts for every question."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        hits = [ScoredPassage(Passage(str(row), "Title", text), row, 1.0, ()) for row, text in enumerate(self._texts[: options.k])]
        return [Ranking(hits) for _ in groups]


def test_gold_answers_that_no_passage_has_are_dropped() -> None:
    """RA-ISF, appendix C: the answer is dropped, not the question."""
    asked = [Question("1", "Who?", ("Ada  Byron", ":-)", "Adda", "London")), Question("2", "When?", ("1815",)), Question("3", "Why?")]
    searcher = ListedSearcher("It was Ada Byron.", "She lived in LONDON.", "Born in 1815.")
    assert [one.golden_answers for one in keep_retrieved_answers(asked, searcher, 2)] == [("Ada  Byron", "London"), (), ()]
    assert [one._replace(golden_answers=()) for one in asked] == [
        one._replace(golden_answers=()) for one in keep_retrieved_answers(asked, searcher)
    ]
