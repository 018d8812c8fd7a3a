"""Retrieve-then-read: retrieve passages with the question, and answer from them."""

from __future__ import annotations

from wikidx.corpora.validation import options
from wikidx.runtimes.llms.base import Decoding

from .base import Answer, Method, option
from .requests import Run, generate, retrieve
from .templates import format_passages, load_template
from .written_answers import parse_answer


@options
class RagOptions:
    """Options of retrieve-then-read."""

    k: int = option(5, "ours", "number of passages", minimum=1)
    shots: int = option(0, "ours", "number of demonstrations in the prompt")
    max_tokens: int = option(256, "ours", "maximum number of tokens of the answer", minimum=1)


def rag(question: str, options: RagOptions) -> Run[Answer]:
    """Retrieve passages with the question, and answer from them."""
    passages = yield from retrieve(question, options.k)
    prompt = load_template("rag", "answer")(passages=format_passages(passages), question=question, shots=options.shots)
    draft = parse_answer((yield from generate(prompt, Decoding(max_tokens=options.max_tokens))))
    return Answer(draft.answer, passages, {"parse_ok": draft.parse_ok})


METHOD = Method(
    name="rag",
    summary="retrieve with the question, answer from the passages",
    source="the papers' retrieve-then-read baseline",
    roles=("answer",),
    options=RagOptions,
    run=rag,
    demonstrated=lambda options: ("answer",),
)
