"""GenRead, request by request."""

from __future__ import annotations

from typing import Any

from tests.runtimes.methods.driving import Driven, drive
from wikidx.runtimes.llms.base import Gen, Generate, Message
from wikidx.runtimes.methods.genread import GenReadOptions, genread


def run(canned: list[Any], question: str = "Who?", **values: Any) -> Driven:  # noqa: ANN401 - the options' values
    return drive(genread(question, GenReadOptions(**values)), canned)


def test_a_document_is_written_and_read() -> None:
    driven = run(["\nAda wrote it in 1843.\n", " Ada "])
    assert driven.outline == [["document"], ["answer"]]
    write, read = driven.requests
    assert isinstance(write, Generate)
    assert isinstance(read, Generate)
    assert (write.decoding.max_tokens, write.decoding.temperature, write.n) == (300, 0, 1)
    assert (read.decoding.max_tokens, read.decoding.temperature) == (10, 0)
    assert driven.prompts("document")[0].endswith("Question: Who?\nParagraph:")
    assert driven.prompts("answer")[0].endswith("Background:\n\nAda wrote it in 1843.\n\nQuestion: Who?\nAnswer:")
    assert driven.answer == ("Ada", (), {"documents": ["Ada wrote it in 1843."], "parse_ok": True})


def test_zero_shot_is_the_default() -> None:
    for call in run(["text", "Ada"]).requests:
        assert isinstance(call, Generate)
        assert isinstance(call.prompt, tuple)
        assert len(call.prompt) == 2


def test_several_documents_are_drawn_and_equal_and_blank_ones_left_out() -> None:
    driven = run([["One text.", " ", "Żółty tekst.", "one  text.", "Żółty tekst."], "Ada"], documents=5, temperature=0.7, top_p=0.8)
    assert driven.outline == [["document"], ["answer"]]
    write, _ = driven.requests
    assert isinstance(write, Generate)
    assert (write.n, write.decoding.temperature, write.decoding.top_p) == (5, 0.7, 0.8)
    assert driven.answer.detail["documents"] == ["One text.", "Żółty tekst."]
    assert "Background:\n\nOne text.\n\nŻółty tekst.\n\nQuestion:" in driven.prompts("answer")[0]


def test_without_a_document_the_question_is_answered_all_the_same() -> None:
    driven = run([" \n", "Ada"])
    assert "Background:" not in driven.prompts("answer")[0]
    assert driven.answer == ("Ada", (), {"documents": [], "parse_ok": False})


def test_a_document_may_be_cut_for_the_prompt_to_fit_and_the_question_not() -> None:
    _, read = run([Gen(text="long " * 300, finish="length"), "Ada"]).requests
    assert isinstance(read, Generate)
    turn = read.prompt[-1]
    assert isinstance(turn, Message)
    (span,) = turn.passages
    assert turn.content[slice(*span)] == ("long " * 300).strip()
