"""The documentation of this project, built as a user builds a folder, answers questions about it with file and heading."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from wikidx.retrievers.build_and_open import build

ANSWERS = {
    "How are PDF files read, with words that a hyphen divides?": ("how-to/documents.md", "Any document, any table > Documents"),
    "How do I add a reranker of my own in a file?": ("adding/encoder.md", "Add an encoder or a reranker > A reranker"),
    "How do I restrict a search to some rows?": ("how-to/search.md", "Search > Options"),
    "Who may connect to the server, and where may its key be kept?": ("how-to/serve.md", "Serve searches over HTTP > Who may connect"),
    "How are the passages before and after a hit read?": ("how-to/splitting.md", "Split documents > Around a hit"),
}


def test_the_documentation_answers_five_questions_by_file_and_heading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("markdown_it")
    monkeypatch.setenv("IDX_HOME", str(tmp_path))
    with build(ROOT / "docs", name="docs", split="headings", show_progress=False) as searcher:
        for question, (file, heading) in ANSWERS.items():
            found = [(hit.span.document, hit.span.heading) for hit in searcher.search([question], k=3)[0] if hit.span is not None]
            assert (file, heading) in found, question
