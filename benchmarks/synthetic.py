"""A synthetic corpus of any size, for measurements of size and speed beyond the third of a million real passages.

Every passage joins the first sentences of one real passage to sentences of another one, cut to the first one's length.

Natural: words and sentences; the lengths, which are those of the source's distinct passages of ten words or more; document frequencies, as
shares of the corpus, of all words that are not rare in the source; the vocabulary, which beyond the source's size keeps growing by Heaps'
law as fitted to the source, by one invented word in some passages (5.9 million terms at the size of the DPR Wikipedia, 21,015,324 passages,
whose Lucene index has 5.35 million: Pyserini, prebuilt index wikipedia-dpr).

Not natural: the topic changes once within a passage, and the title belongs to its beginning. Invented words never come again, while a rare
word of the source comes more often the larger the corpus is, so that beyond the source's size words of two or a few occurrences are rare.
At the source's own size 8 % of its words are not drawn. Relevance means nothing here: never measure recall on it.

No two passages have the same two parents, but parents that are nearly alike can still give equal texts: with seed 0 and the whole source 2
among 2.5 million, 206 among 21 million.

    python -m benchmarks.synthetic --n 2500000 --seed 0 --out FILE.jsonl.gz
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.report import run
from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.corpora.reading.readers import READERS
from wikidx.corpora.reading.splitters import Split, split

Ints = npt.NDArray[np.int64]

BLOCK = 1 << 14
MIN_WORDS = 10  # shorter passages are mostly scraps such as '.', whose joins would be equal
MIN_PART = MIN_WORDS // 2
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
_N_INVENTED = len(_SYLLABLES) ** 4


def data_folder() -> Path:
    """Return the folder of the test data: ``IDX_TEST_DATA``, or ``../shared/data`` next to the repository."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("IDX_TEST_DATA") or default)


def real_passages(path: Path, n_words: int = 100) -> list[Passage]:
    """Read articles (JSONL with id, title, text; gzip) and split them into passages of ``n_words`` words.

    Raises:
        InputError: the file does not exist, or a line is not a valid record.
    """
    if not path.exists():
        raise InputError(f"no source of real passages at {path}: set IDX_TEST_DATA to the folder that holds wiki_intro/")
    return [record.passage for record in split(READERS["jsonl"].read_documents(path), Split("words", n_words))]


def synthetic(n: int, *, seed: int = 0, source: Sequence[Passage]) -> Iterator[Passage]:
    """Return ``n`` passages with ids "0" to "n-1" and the title of the first parent.

    A smaller ``n`` gives the beginning of a larger one. Memory is used by the indexed source (about 3 bytes per byte of its text).

    Raises:
        ValueError: ``n`` is negative, or more than the ordered pairs of passages in ``source`` that have a word.
    """
    parents = _Parents.of(source)
    if not 0 <= n <= len(parents) ** 2:
        raise ValueError(f"n is {n}: a source of {len(parents)} passages gives 0 to {len(parents) ** 2}")
    return islice(_passages(parents, seed), n)


@dataclass(frozen=True, slots=True)
class _Parents:
    """All texts of the source in one buffer, words separated by one space, and the starts of its words, sentences and passages."""

    titles: list[str]
    text: bytes
    words: Ints  # (words + 1): start byte of each, and one for the end
    sentences: Ints  # first word of each
    first_word: Ints  # (passages + 1)
    first_sentence: Ints  # (passages + 1)
    growth: float  # exponent of Heaps' law, and ...
    n_terms: int  # ... vocabulary at the source's size

    def __len__(self) -> int:
        return len(self.titles)

    @classmethod
    def of(cls, source: Sequence[Passage]) -> _Parents:
        title_of: dict[str, str] = {}  # by text: the source has some articles under several titles
        for passage in source:
            words_of = passage.text.split()
            if len(words_of) >= MIN_WORDS:
                title_of.setdefault(" ".join(words_of), passage.title)
        texts = list(title_of)
        growth, n_terms = _heaps(texts)
        first_word = np.cumsum([0] + [text.count(" ") + 1 for text in texts])
        text = " ".join(texts).encode()
        array = np.frombuffer(text, np.uint8)
        words = np.concatenate(([0], np.flatnonzero(array == ord(" ")) + 1, [len(text) + 1]))
        is_mark = (np.diff(words) == 2) & np.isin(array[words[:-1]], np.frombuffer(b".?!", np.uint8)) if texts else np.empty(0, np.bool_)
        after_mark = np.flatnonzero(is_mark) + 1
        sentences = np.union1d(first_word[:-1], after_mark[after_mark < first_word[-1]])
        return cls(list(title_of.values()), text, words, sentences, first_word, np.searchsorted(sentences, first_word), growth, n_terms)


def _heaps(texts: Sequence[str]) -> tuple[float, int]:
    """Return the exponent of the vocabulary's growth, from every second text to all of them, and the whole vocabulary's size."""
    half: set[str] = set()
    for text in texts[::2]:
        half.update(text.lower().split())
    n_half = len(half)
    for text in texts[1::2]:
        half.update(text.lower().split())
    return (math.log2(len(half) / n_half) if n_half else 0.0), len(half)


def _passages(parents: _Parents, seed: int) -> Iterator[Passage]:
    """Yield as many passages as there are pairs of parents.

    Round r joins every passage, as first parent, with the passage r strides further in another permutation, so that no pair occurs twice.
    """
    n = len(parents)
    firsts, seconds = (np.random.default_rng((seed, which)).permutation(n) for which in (0, 1))
    stride = next(step for step in range(max(1, int(n * 0.618)), 2 * n + 1) if math.gcd(step, n) == 1)
    text, titles = parents.text, parents.titles
    for begin in range(0, n * n, BLOCK):
        ids = np.arange(begin, min(begin + BLOCK, n * n))
        turn, place = np.divmod(ids, n)
        first, second = firsts[place], seconds[(place + turn * stride) % n]
        invented = _invented(parents, ids)
        spans = _joints(parents, first, second, invented > 0, np.random.default_rng((seed, 2, begin)))
        rows = zip(ids.tolist(), first.tolist(), invented.tolist(), *(span.tolist() for span in spans), strict=True)
        for id_, parent, number, a, b, c, d in rows:
            middle = b" %b " % _word(number) if number else b" "
            yield Passage(str(id_), titles[parent], (text[a:b] + middle + text[c:d]).decode())


def _joints(
    parents: _Parents, first: Ints, second: Ints, is_invented: npt.NDArray[np.bool_], rng: np.random.Generator
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the bytes (from, to, from, to) of both parts of every passage, each int64, shape (block,).

    An invented word replaces the second part's first word, if that part has another one.
    """
    n_first = np.diff(parents.first_word)[first]
    n_second = np.diff(parents.first_word)[second]
    draws = rng.random((2, len(first)))

    # The first parent ends at one of its inner sentence starts, or anywhere if it has none; later, if the second is too short to fill up.
    at, n_inner = parents.first_sentence[first], np.diff(parents.first_sentence)[first] - 1
    inner = parents.sentences[at + np.minimum(1, n_inner) + (draws[0] * n_inner).astype(np.int64)] - parents.first_word[first]
    cut = np.where(n_inner > 0, inner, 1 + (draws[0] * (n_first - 1)).astype(np.int64))
    cut = np.maximum(np.clip(cut, MIN_PART, n_first - MIN_PART), n_first - n_second)

    # The second begins at one of its sentence starts that leave enough words.
    n_wanted = n_first - cut
    at = parents.first_sentence[second]
    n_starts = np.searchsorted(parents.sentences, parents.first_word[second + 1] - n_wanted, side="right") - at
    start = parents.sentences[at + (draws[1] * n_starts).astype(np.int64)]

    begin, words = parents.first_word[first], parents.words
    end = start + n_wanted
    return words[begin], words[begin + cut] - 1, words[start + (is_invented & (n_wanted > 1))], words[end] - 1


def _invented(parents: _Parents, ids: Ints) -> Ints:
    """Return the number (from 1) of the word that each passage adds to the vocabulary, 0 for none; int64, shape (block,)."""
    terms = np.floor(parents.n_terms * (np.append(ids, ids[-1] + 1) / len(parents)) ** parents.growth).astype(np.int64)
    is_new = (np.diff(terms) > 0) & (ids >= len(parents))
    return np.where(is_new, terms[1:] - parents.n_terms, 0)


def _word(number: int) -> bytes:
    """Return an invented word of nine letters: four syllables, mixed so that neighbours differ, and an x, which no stemmer removes."""
    rest, syllables = number * 7_919_117 % _N_INVENTED, []
    for _ in range(4):
        rest, digit = divmod(rest, len(_SYLLABLES))
        syllables.append(_SYLLABLES[digit])
    return f"{''.join(syllables)}x".encode()


def write(passages: Iterable[Passage], path: Path) -> None:
    """Write JSONL with id, title and text, compressed if the name ends in .gz."""
    opened = gzip.open(path, "wt", compresslevel=1, encoding="utf-8") if path.suffix == ".gz" else path.open("w", encoding="utf-8")
    with opened as file:
        for passage in passages:
            file.write(json.dumps(passage._asdict(), ensure_ascii=False) + "\n")


def main() -> int:
    """Run the command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.synthetic", description="Write a synthetic corpus.")
    made.add_argument("--n", type=int, required=True, help="number of passages")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--out", type=Path, required=True, help="output file, .jsonl or .jsonl.gz")
    return run(made, _run)


def _run(options: argparse.Namespace) -> None:
    source = real_passages(data_folder() / "wiki_intro" / "passages.jsonl.gz")
    write(synthetic(options.n, seed=options.seed, source=source), options.out)


if __name__ == "__main__":
    sys.exit(main())
