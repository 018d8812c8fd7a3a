"""Corrupt question sets in all formats: the same questions, or a one-line refusal."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given

from tests.fuzz.mutating import examples, mutations, read_or_refuse
from wikidx.runtimes.questions import read_questions

PLAIN = b'{"question": "Who?"}\n{"question": "When?", "id": "7", "answers": ["A", "B"]}\n'


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
