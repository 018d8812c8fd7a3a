"""Chain of thought: reason in words, then answer; no retrieval.

Wei et al., Chain-of-Thought Prompting Elicits Reasoning in Large Language Models, 2022 (arXiv 2201.11903). The variant with two calls is
from Kojima et al., Large Language Models are Zero-Shot Reasoners, 2022 (arXiv 2205.11916).
"""

from __future__ import annotations

from typing import Literal

from wikidx.base.validation import options
from wikidx.runtimes.llms.prompts import Decoding, Message

from .base import Answer, Method, option
from .forms import LineFormName, describe_forms
from .model_output import first_line
from .requests import generate
from .templates import load_template
from .written_answers import answer_in_form, parse_draft

_CONCLUSION = "So the answer is:"
_ANSWER_TOKENS = 32  # of the second of two calls


@options
class CotOptions:
    """Options of chain-of-thought prompting."""

    calls: Literal["one", "two"] = option(
        "one",
        "paper",
        "one: one call reasons and answers; two: a second call extracts the answer from the reasoning (zero-shot, no demonstrations)",
    )
    form: LineFormName = option("short", "ours", describe_forms(LineFormName))
    shots: int = option(4, "paper, open", "number of demonstrations, with calls=one; the paper shows several")
    max_tokens: int = option(256, "ours", "maximum number of tokens of the reasoning, including its answer", minimum=1)


async def cot(question: str, options: CotOptions) -> Answer:
    """Reason, then answer.

    If the output marks no answer, the answer is the last line of the reasoning (one call), or the first line of the second output (two
    calls).
    """
    reasoning = Decoding(max_tokens=options.max_tokens)
    if options.calls == "one":
        output = await generate(load_template("cot", "answer", options.form)(question=question, shots=options.shots), reasoning)
        draft = parse_draft(output, "cot")
        return answer_in_form(draft, options.form, reasoning=draft.text)
    prompt = load_template("cot", "reason", options.form)(question=question)
    reasons = (await generate(prompt, reasoning)).text.strip()
    conclusion = Message("assistant", f"{prompt[-1].content} {reasons}\n{_CONCLUSION}")
    decoding = Decoding(max_tokens=min(options.max_tokens, _ANSWER_TOKENS), stop=("\n\n",))
    output = await generate((*prompt[:-1], conclusion), decoding)
    draft = parse_draft(output, "cot")
    answer = draft.answer if draft.parse_ok else first_line(output.text)
    return answer_in_form(draft._replace(answer=answer, parse_ok=bool(reasons and answer)), options.form, reasoning=reasons)


METHOD = Method(
    name="cot",
    summary="reason in words, then answer; no retrieval",
    source="Chain of thought, arXiv 2201.11903",
    roles=("answer",),
    options=CotOptions,
    run=cot,
)
