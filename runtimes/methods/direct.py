"""Direct prompting: the model answers the question from its own knowledge."""

from __future__ import annotations

from wikidx.corpora.validation import options
from wikidx.runtimes.llms.base import Decoding

from .base import Answer, Method, option
from .requests import Run, generate
from .templates import load_template
from .written_answers import parse_answer


@options
class DirectOptions:
    """Options of direct prompting."""

    shots: int = option(0, "ours", "number of demonstrations in the prompt")
    max_tokens: int = option(256, "ours", "maximum number of tokens of the answer", minimum=1)


def direct(question: str, options: DirectOptions) -> Run[Answer]:
    """Answer without retrieval."""
    prompt = load_template("direct", "answer")(question=question, shots=options.shots)
    draft = parse_answer((yield from generate(prompt, Decoding(max_tokens=options.max_tokens))))
    return Answer(draft.answer, (), {"parse_ok": draft.parse_ok})


METHOD = Method(
    name="direct",
    summary="answer the question from the model's own knowledge; no retrieval",
    source="the papers' no-retrieval baseline",
    roles=("answer",),
    options=DirectOptions,
    run=direct,
    demonstrated=lambda options: ("answer",),
)
