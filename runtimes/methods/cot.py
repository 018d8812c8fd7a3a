"""Chain of thought: reason in words, then answer; no retrieval.

Wei et al., Chain-of-Thought Prompting Elicits Reasoning in Large Language Models, 2022 (arXiv 2201.11903). The variant with two calls is
from Kojima et al., Large Language Models are Zero-Shot Reasoners, 2022 (arXiv 2205.11916).
"""

from __future__ import annotations

from typing import Literal

from wikidx.corpora.validation import options
from wikidx.runtimes.llms.base import Decoding, Message

from .base import Answer, Method, option
from .model_output import first_line
from .requests import Run, generate
from .templates import load_template
from .written_answers import parse_draft

_CONCLUSION = "So the answer is:"


@options
class CotOptions:
    """Options of chain-of-thought prompting."""

    calls: Literal["one", "two"] = option(
        "one",
        "paper",
        "one: one call reasons and answers; two: a second call extracts the answer from the reasoning (zero-shot, no demonstrations)",
    )
    shots: int = option(4, "paper, open", "number of demonstrations, with calls=one; the paper shows several")
    max_tokens: int = option(256, "ours", "maximum number of tokens of the reasoning, including its answer", minimum=1)
    answer_tokens: int = option(32, "ours", "maximum number of tokens of the answer, with calls=two", minimum=1)


def cot(question: str, options: CotOptions) -> Run[Answer]:
    """Reason, then answer.

    If the output marks no answer, the answer is the last line of the reasoning (one call), or the first line of the second output (two
    calls).
    """
    reasoning = Decoding(max_tokens=options.max_tokens)
    if options.calls == "one":
        output = yield from generate(load_template("cot", "answer")(question=question, shots=options.shots), reasoning)
        draft = parse_draft(output, "cot")
        return Answer(draft.answer, (), {"reasoning": draft.text, "parse_ok": draft.parse_ok})
    prompt = load_template("cot", "reason")(question=question)
    reasons = (yield from generate(prompt, reasoning)).text.strip()
    conclusion = Message("assistant", f"{prompt[-1].content} {reasons}\n{_CONCLUSION}")
    output = yield from generate((*prompt[:-1], conclusion), Decoding(max_tokens=options.answer_tokens, stop=("\n\n",)))
    draft = parse_draft(output, "cot")
    answer = draft.answer if draft.parse_ok else first_line(output.text)
    return Answer(answer, (), {"reasoning": reasons, "parse_ok": bool(reasons and answer)})


METHOD = Method(
    name="cot",
    summary="reason in words, then answer; no retrieval",
    source="Chain of thought, arXiv 2201.11903",
    roles=("answer",),
    options=CotOptions,
    run=cot,
)
