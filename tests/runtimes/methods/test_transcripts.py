"""Scripted transcripts of all methods: ``transcripts.py`` says what stands in them."""

from __future__ import annotations

import json
import os

import pytest

from tests.runtimes.methods.transcripts import FOLDER, perform, read_transcripts, replay

NAMES = [(file.stem, name) for file in sorted(FOLDER.glob("*.json")) for name in read_transcripts(file.stem)]


@pytest.mark.parametrize(("method", "name"), NAMES)
def test_a_method_asks_and_answers_as_it_is_written(method: str, name: str) -> None:
    written = read_transcripts(method)[name]
    now = perform(method, written)
    assert {**now, "detail": json.loads(json.dumps(now["detail"], allow_nan=False))} == written


ROUNDS = "a score at the threshold goes on and every round makes the paper's calls in the paper's order"
PASSAGES = "what it does not know is answered from the relevant passages alone"


@pytest.mark.parametrize(
    ("method", "name", "role", "firsts"),
    [
        ("retrorag", ROUNDS, "relevance", ["X is", "Y is", "Z is"]),
        ("retrorag", ROUNDS, "attribution", ["X is", "Y is", "Z is"]),
        ("retrorag", ROUNDS, "evidence", ["A\nte", "B\nte"]),
        ("ra_isf", PASSAGES, "relevance", ["1\non", "2\ntw", "3\nth"]),
    ],
)
def test_prompts_that_judge_candidates_share_all_up_to_the_candidate(method: str, name: str, role: str, firsts: list[str]) -> None:
    """Their shared beginning is computed once."""
    prompts = replay(method, read_transcripts(method)[name]).prompts(role)[: len(firsts)]
    shared = os.path.commonprefix(prompts)
    assert [prompt[len(shared) :][:4] for prompt in prompts] == firsts
