"""Retrieve-then-read: retrieve passages with the question, and answer from them."""

from __future__ import annotations

from wikidx.base.validation import options
from wikidx.runtimes.llms.prompts import Decoding

from .base import Answer, Method, option
from .forms import FORMS, FormName, describe_forms
from .reading import ReadingOptions, reads_passages
from .requests import generate, retrieve
from .templates import format_passages, load_template
from .written_answers import answer_in_form, parse_answer


@options
class RagOptions(ReadingOptions):
    """Options of retrieve-then-read."""

    form: FormName = option("short", "ours", describe_forms(FormName))
    k: int = option(5, "ours", "number of passages", minimum=1)
    shots: int = option(0, "ours", "number of demonstrations in the prompt")
    max_tokens: int | None = option(None, "ours", "maximum number of tokens of the answer; none: 256; long: 300; dialogue: 50", minimum=1)


@reads_passages
async def rag(question: str, options: RagOptions) -> Answer:
    """Retrieve passages with the question, and answer from them."""
    passages = await retrieve(question, options.k)
    prompt = load_template("rag", "answer", options.form)(passages=format_passages(passages), question=question, shots=options.shots)
    decoding = Decoding(max_tokens=options.max_tokens or FORMS[options.form].max_tokens)
    return answer_in_form(parse_answer(await generate(prompt, decoding)), options.form, passages)


METHOD = Method(
    name="rag",
    summary="retrieve with the question, answer from the passages",
    source="the papers' retrieve-then-read baseline",
    roles=("answer",),
    options=RagOptions,
    run=rag,
    demonstrated=lambda options: ("answer",),
)
