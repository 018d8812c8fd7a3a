"""Least-to-most: decompose the question, then answer its parts in order, each prompt showing the earlier answers; no retrieval.

Zhou et al., Least-to-Most Prompting Enables Complex Reasoning in Large Language Models, 2023 (arXiv 2205.10625).
"""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.corpora.validation import options
from wikidx.runtimes.llms.base import Decoding

from .base import Answer, Method, option
from .requests import Run, generate, named
from .sentences import words
from .sub_questions import sub_questions
from .templates import template


@options
class LeastToMostOptions:
    """Options of decomposing the question and of answering its parts."""

    max_sub_questions: int = option(5, "proposed", "parts besides the question itself, the first of the list")
    shots: int = option(4, "proposed", "demonstrations before each prompt; the paper shows several")
    max_tokens: int = option(64, "proposed", "tokens of an answer", least=1)
    list_tokens: int = option(256, "proposed", "tokens of the list of parts", least=1)


def least_to_most(question: str, options: LeastToMostOptions) -> Run[Answer]:
    """Answer the parts in order, the question itself last.

    If the reply lists no part, the question is answered directly. Parts that repeat the question are left out, since it comes last anyway.
    """
    prompt = template("least_to_most", "decompose")(question=question, shots=options.shots)
    reply = yield from generate(prompt, Decoding(max_tokens=options.list_tokens), role="decompose")
    listed = sub_questions(reply.text, is_cut=reply.finish == "length")
    parts = [part.text for part in listed if words(part.text) != words(question)][: options.max_sub_questions]
    pairs: list[tuple[str, str]] = []
    for number, part in enumerate(parts, 1):
        pairs.append((part, (yield from named(f"sub-question {number}", _answered(part, pairs, options)))))
    answer = yield from _answered(question, pairs, options)
    solved = [{"question": part, "answer": said} for part, said in pairs]
    return Answer(answer, (), {"sub_questions": solved, "parse_ok": bool(listed)})


def _answered(question: str, pairs: Sequence[tuple[str, str]], options: LeastToMostOptions) -> Run[str]:
    """Answer one question, with the earlier ones and their answers in the prompt; a blank answer is shown as unknown."""
    earlier = "\n".join(f"{number}. {part}\nAnswer: {answer or 'unknown'}" for number, (part, answer) in enumerate(pairs, 1))
    prompt = template("least_to_most", "answer")(earlier=earlier or "(none)", question=question, shots=options.shots)
    return (yield from generate(prompt, Decoding(max_tokens=options.max_tokens))).text.strip()


METHOD = Method(
    name="least_to_most",
    summary="break the question down, answer part by part; no retrieval",
    source="Least-to-most, arXiv 2205.10625",
    roles=("answer", "decompose"),
    options=LeastToMostOptions,
    run=least_to_most,
)
