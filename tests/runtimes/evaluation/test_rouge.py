from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache

from hypothesis import example, given
from hypothesis import strategies as st

from wikidx.runtimes.evaluation.answers.rouge import Rouge, rouge_l, rouge_lsum

WORDS = st.lists(st.sampled_from(["the", "The", "cat", "sat", "on", "a", "mat", "cat,", "é"]), max_size=9)
TEXTS = st.lists(WORDS.map(" ".join), max_size=4).map(". ".join) | st.text(alphabet="ab. \n", max_size=30)


def _recursive(text: str, reference: str) -> tuple[float, float, float]:
    """The definition, read off slowly: common subsequences by recursion, sets of words, F with 1e-8."""

    def sentences(whole: str) -> list[list[str]]:
        return [" ".join(part.split()).split(" ") for part in whole.split(".") if len(part) > 0]

    def subsequence(first: Sequence[str], second: Sequence[str]) -> list[str]:
        @lru_cache(None)
        def length(i: int, j: int) -> int:
            if i == 0 or j == 0:
                return 0
            return length(i - 1, j - 1) + 1 if first[i - 1] == second[j - 1] else max(length(i - 1, j), length(i, j - 1))

        def walk(i: int, j: int) -> list[str]:
            if i == 0 or j == 0:
                return []
            if first[i - 1] == second[j - 1]:
                return [*walk(i - 1, j - 1), first[i - 1]]
            return walk(i - 1, j) if length(i - 1, j) > length(i, j - 1) else walk(i, j - 1)

        return walk(len(first), len(second))

    ours, theirs = sentences(text), sentences(reference)
    shared = {word for gold in theirs for sentence in ours for word in subsequence(gold, sentence)}
    precision = len(shared) / len({word for sentence in ours for word in sentence})
    recall = len(shared) / len({word for sentence in theirs for word in sentence})
    return precision, recall, 2.0 * ((precision * recall) / (precision + recall + 1e-8))


@given(TEXTS, TEXTS)
@example("b a. a", "a b")  # of two subsequences as long, "a" and "b", the second is taken: with the other sentence's "a" both words count
def test_rouge_l_is_its_definition(text: str, reference: str) -> None:
    if text.strip(".") and reference.strip("."):
        assert rouge_l(text, reference) == _recursive(text, reference)
    else:
        assert rouge_l(text, reference) == Rouge(0.0, 0.0, 0.0)  # where the package fails


def test_rouge_l_of_texts_on_which_the_package_gives_up() -> None:
    words = [f"word{number}" for number in range(2 * sys.getrecursionlimit())]
    half = " ".join(words[::2])
    assert rouge_l(half, " ".join(words)) == Rouge(1.0, 0.5, 2.0 * (0.5 / (1.5 + 1e-8)))


@given(TEXTS)
def test_both_find_a_text_in_itself(text: str) -> None:
    if text.strip("."):
        assert rouge_l(text, text) == Rouge(1.0, 1.0, 2.0 / (2.0 + 1e-8))
    if any(character.isascii() and character.isalnum() for character in text):
        assert rouge_lsum(text, text) == Rouge(1.0, 1.0, 1.0)


def test_rouge_lsum_compares_sentence_by_sentence() -> None:
    assert rouge_lsum("b c. a d.", "a b. c d.").f == 1.0  # every word is in a sentence with a subsequence; in one piece, "b c d" is
