"""Corrupt question sets in all formats: the same questions, or a one-line refusal."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.mutating import compressed_mutations, examples, mutations, read_or_refuse
from tests.runtimes.questions.format_files import FORMAT_FILES
from wikidx.runtimes.questions import FORMATS, read_questions

PLAIN = b'{"question": "Who?"}\n{"question": "When?", "id": "7", "answers": ["A", "B"]}\n'


@examples()
@given(content=compressed_mutations(*(made.content.encode() for made in FORMAT_FILES)), name=st.sampled_from([None, *FORMATS]))
def test_damaged_sets(file: Path, content: bytes, name: str | None) -> None:
    file.write_bytes(content)
    found = read_or_refuse(lambda: read_questions(file, name), file.parent)
    for one in found or ():
        json.dumps([one.id, one.text, one.golden_answers, dict(one.gold)], ensure_ascii=False).encode()


@examples()
@given(content=mutations(PLAIN))
def test_lines_of_questions(file: Path, content: bytes) -> None:
    """A file of valid lines yields all of them as questions; a line that is not JSON yields none."""
    file.write_bytes(content)
    found = read_or_refuse(lambda: read_questions(file, "questions"), file)
    try:
        records = [json.loads(line) for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip()]
        texts = [record["question"].strip() for record in records]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        assert found is None or not content.lstrip().startswith(b"{")
    else:
        assert found is None or [one.text.strip() for one in found] == texts
