"""Least-to-most: decompose the question, then answer its parts in order, with the earlier answers in each prompt; no retrieval.

Zhou et al., Least-to-Most Prompting Enables Complex Reasoning in Large Language Models, 2023 (arXiv 2205.10625).
"""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.base.validation import options
from wikidx.runtimes.llms.prompts import Decoding

from .base import Answer, Method, option
from .forms import SHORT, LineFormName, describe_forms
from .requests import generate, label
from .sentences import normalize_words
from .sub_questions import parse_sub_questions
from .templates import load_template
from .written_answers import Draft, answer_in_form, parse_answer


@options
class LeastToMostOptions:
    """Options of least-to-most prompting."""

    form: LineFormName = option("short", "ours", describe_forms(LineFormName))
    max_sub_questions: int = option(5, "ours", "maximum number of sub-questions, without the question itself; further ones are ignored")
    shots: int = option(4, "paper, open", "number of demonstrations in each prompt; the paper shows several")
    max_tokens: int = option(256, "ours", "maximum number of tokens of an answer, and of the list of sub-questions", minimum=1)


async def least_to_most(question: str, options: LeastToMostOptions) -> Answer:
    """Decompose the question, answer its parts in order, and then answer the question itself.

    A part that equals the question is omitted. If the model lists no parts, the question is answered directly.
    """
    prompt = load_template("least_to_most", "decompose")(question=question, shots=options.shots)
    reply = await generate(prompt, Decoding(max_tokens=options.max_tokens), role="decompose")
    parsed = parse_sub_questions(reply.text, is_cut=reply.finish == "length")
    sub_questions = [part.text for part in parsed if normalize_words(part.text) != normalize_words(question)][: options.max_sub_questions]
    answered: list[tuple[str, Draft]] = []
    for number, sub_question in enumerate(sub_questions, 1):
        with label(f"sub-question {number}"):
            answered.append((sub_question, await _answer_one(sub_question, answered, SHORT, options)))
    final = await _answer_one(question, answered, options.form, options)
    solved = [{"question": sub_question, "answer": draft.answer} for sub_question, draft in answered]
    parse_ok = bool(parsed) and all(draft.parse_ok for _, draft in answered)
    return answer_in_form(final, options.form, sub_questions=solved, parse_ok=parse_ok)


async def _answer_one(question: str, answered: Sequence[tuple[str, Draft]], form: str, options: LeastToMostOptions) -> Draft:
    """Answer a question in a form. The prompt contains the earlier parts and answers; a blank answer is shown as "unknown"."""
    earlier = "\n".join(
        f"{number}. {sub_question}\nAnswer: {draft.answer or 'unknown'}" for number, (sub_question, draft) in enumerate(answered, 1)
    )
    prompt = load_template("least_to_most", "answer", form)(earlier=earlier, question=question, shots=options.shots)
    return parse_answer(await generate(prompt, Decoding(max_tokens=options.max_tokens)))


METHOD = Method(
    name="least_to_most",
    summary="decompose the question, answer its sub-questions in order; no retrieval",
    source="Least-to-most, arXiv 2205.10625",
    roles=("answer", "decompose"),
    options=LeastToMostOptions,
    run=least_to_most,
    demonstrated=lambda options: ("answer",),
)
