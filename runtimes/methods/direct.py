"""Direct prompting: the model answers the question from its own knowledge."""

from __future__ import annotations

from wikidx.base.validation import options
from wikidx.runtimes.llms.prompts import Decoding

from .base import Answer, Method, option
from .forms import FORMS, FormName, describe_forms
from .requests import generate
from .templates import load_template
from .written_answers import answer_in_form, parse_answer


@options
class DirectOptions:
    """Options of direct prompting."""

    form: FormName = option("short", "ours", describe_forms(FormName))
    shots: int = option(0, "ours", "number of demonstrations in the prompt")
    max_tokens: int | None = option(None, "ours", "maximum number of tokens of the answer; none: 256; long: 300; dialogue: 50", minimum=1)


async def direct(question: str, options: DirectOptions) -> Answer:
    """Answer without retrieval."""
    prompt = load_template("direct", "answer", options.form)(question=question, shots=options.shots)
    decoding = Decoding(max_tokens=options.max_tokens or FORMS[options.form].max_tokens)
    return answer_in_form(parse_answer(await generate(prompt, decoding)), options.form)


METHOD = Method(
    name="direct",
    summary="answer the question from the model's own knowledge; no retrieval",
    source="the papers' no-retrieval baseline",
    roles=("answer",),
    options=DirectOptions,
    run=direct,
    demonstrated=lambda options: ("answer",),
)
