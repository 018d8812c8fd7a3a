"""Estimates of a corpus, made from the beginning of its file."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from tests.conftest import read_rows
from wikidx.corpora.build import StoreOptions
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
from wikidx.corpora.size_estimate import estimate_corpus

N = 30_000


@pytest.fixture(scope="module")
def records() -> bytes:
    """Passages of words as frequent as in a language, with fields that are no text."""
    rng = np.random.default_rng(3)
    words = np.array([f"{number:x}" for number in range(20_000)])
    text = " ".join(words[np.minimum(rng.zipf(1.3, 50 * N), 20_000) - 1]).split()
    lines = (
        json.dumps(
            {"id": n, "title": f"Title {n % 977}", "url": f"https://example.org/wiki/{n}", "text": " ".join(text[50 * n : 50 * n + 50])}
        )
        for n in range(N)
    )
    return "\n".join(lines).encode()


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, zstandard.ZstdCompressor().compress])
def test_the_passages_of_a_file_are_estimated_within_a_few_percent(
    compress: Callable[[bytes], bytes], records: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "made.jsonl"
    path.write_bytes(compress(records))
    found = estimate_corpus(custom_corpus(path, "made", ReadOptions()), StoreOptions())
    assert found.n_passages == pytest.approx(N, rel=0.03)


@pytest.mark.parametrize(("file_format", "record", "unkept"), read_rows("corpora/unkept_fields.jsonl"))
def test_fields_that_passages_do_not_keep_are_found(file_format: str, record: dict[str, object], unkept: list[str], tmp_path: Path) -> None:
    """In any record, also beside one that cannot be read; a field without a value is none."""
    path = tmp_path / "made.jsonl"
    first = {name: value for name, value in record.items() if name not in unkept} | {"empty": None}
    path.write_text(f"{json.dumps(first)}\nno record\n\n[1]\n{json.dumps(record)}\n")
    corpus = custom_corpus(path, "made", ReadOptions(file_format=file_format))
    assert list(estimate_corpus(corpus, StoreOptions(skip_bad=True)).unkept_fields) == unkept
