"""The passages that come with questions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpora.errors import InputError
from corpora.passage import Passage
from runtimes.questions import read_given_passages, read_questions
from tests.runtimes.questions.made import array, lines


def given_in(folder: Path, content: str) -> list[tuple[str, tuple[Passage, ...]]]:
    file = folder / "file"
    file.write_text(content, encoding="utf-8")
    return list(read_given_passages(file))


def test_of_self_reasoning(tmp_path: Path) -> None:
    texts = ["Document 1 (Title: Nile (river)): The Nile\nis long (Title: x): y", "no title"]
    found = given_in(tmp_path, lines({"question": "a", "answers": [], "passages": texts}))
    assert found == [("1", (Passage("1:1", "Nile (river)", "The Nile\nis long (Title: x): y"), Passage("1:2", "", "no title")))]


def test_of_fid_and_alce(tmp_path: Path) -> None:
    passages = [{"id": 12, "title": "T", "text": "t", "score": "1.5"}, {"title": None, "text": "u"}]
    expected = [("7", (Passage("12", "T", "t"), Passage("7:2", "", "u")))]
    assert given_in(tmp_path, array({"id": "7", "question": "a", "answers": ["b"], "ctxs": passages})) == expected
    assert given_in(tmp_path, array({"sample_id": "7", "question": "a", "qa_pairs": [], "docs": passages})) == expected


def test_of_hotpotqa(tmp_path: Path) -> None:
    hop = {"_id": "7", "question": "a", "answer": "b", "supporting_facts": []}
    expected = [("7", (Passage("7:1", "T", "One. Two."), Passage("7:2", "U", "")))]
    assert given_in(tmp_path, array({**hop, "context": [["T", ["One.", " Two."]], ["U", []]]})) == expected
    assert given_in(tmp_path, array({**hop, "context": {"title": ["T", "U"], "sentences": [["One.", " Two."], []]}})) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lines({"question": "a"}), "line 1: no passages in 'passages', 'ctxs', 'docs' or 'context'"),
        ("1\twho\n", "line 1: no passages"),
        (lines({"question": "a", "passages": "b"}), "the field 'passages' is 'b', not a list of texts"),
        (lines({"question": "a", "ctxs": [{"title": "b"}]}), "the field 'text' is None, not a text"),
        (lines({"question": "a", "context": [["b"]]}), r"the field 'context' has \['b'\]"),
        (lines({"question": "a", "context": None}), "the field 'context' has None"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        given_in(tmp_path, content)


def test_of_the_published_samples(shared_data: Path) -> None:
    """Five passages each, all with titles; of HotpotQA ten paragraphs or fewer, the gold ones among them."""
    for name in ("data_nq_sampled", "data_triviaqa_sampled"):
        file = shared_data / "datasets" / f"{name}.jsonl.gz"
        found = dict(read_given_passages(file))
        assert list(found) == [one.id for one in read_questions(file)]
        assert all(len(passages) == 5 and all(one.title and one.text for one in passages) for passages in found.values())
    hotpotqa = shared_data / "datasets" / "hotpotqa_200.jsonl.gz"
    context = dict(read_given_passages(hotpotqa))
    for one in read_questions(hotpotqa):
        assert set(one.gold["titles"]) <= {passage.title for passage in context[one.id]}
    assert json.dumps(context["5a7f6fd75542992e7d278cfa"][0]).startswith(
        '["5a7f6fd75542992e7d278cfa:1", "Jeff Porcaro", "Jeffrey Thomas Porcaro'
    )
