"""The paper's three sub-models: self-knowledge (SKM), passage relevance (PRM) and question decomposition (QDM)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.prompts import Chat, Choice, Decoding
from wikidx.runtimes.methods.requests import ask_yes_no, gather, generate, note, retrieve, truncate
from wikidx.runtimes.methods.sentences import normalize_words
from wikidx.runtimes.methods.sub_questions import SubQuestion, parse_sub_questions
from wikidx.runtimes.methods.templates import format_passage, format_passages, load_template

from .options import RaIsfOptions
from .replies import Verdict, parse_relevant_numbers, parse_verdict
from .tree import Node

_VERDICT = Decoding(max_tokens=8)
_NUMBERS = Decoding(max_tokens=64)
_MIN_P_YES = 0.5


async def self_knowledge(node: Node, options: RaIsfOptions) -> Node:
    """Ask whether the model knows the answer."""
    prompt = load_template("ra_isf", "know")(question=node.question, shots=options.shots)
    known = await _judge(prompt, "know", options)
    return replace(node, known=known.is_yes, parse_ok=known.is_readable)


async def passage_relevance(node: Node, options: RaIsfOptions) -> Node:
    """Retrieve passages and judge which are relevant."""
    passages = await _search(node.question, node.original_question, options)
    if options.relevance == "joint":
        verdicts = await _judge_jointly(node.question, passages, options)
    else:
        prompt = load_template("ra_isf", "relevance")
        prompts = (prompt(question=node.question, passage=format_passage(passage), shots=options.shots) for passage in passages)
        verdicts = await gather(*(_judge(each, "relevance", options) for each in prompts))
    return replace(
        node, retrieved=passages, verdicts=tuple(verdicts), parse_ok=node.parse_ok and all(verdict.is_readable for verdict in verdicts)
    )


async def _search(question: str, original_question: str, options: RaIsfOptions) -> tuple[Passage, ...]:
    """Search with the last ``max_query_tokens`` tokens of a question, and return at most ``k`` passages (section 4.3).

    With ``remove_question``, passages that contain ``original_question`` are replaced by the passages that follow, up to rank
    ``2 * k``.
    """
    query = question
    if options.max_query_tokens:
        query = await truncate(question, options.max_query_tokens, keep="end")
    passages = await retrieve(query, options.k)
    if not options.remove_question or not any(_contains(passage, original_question) for passage in passages):
        return passages
    if len(passages) == options.k:
        passages = await retrieve(query, 2 * options.k)
    await note(
        "left out, because they contain the question",
        {"ids": [passage.id for passage in passages if _contains(passage, original_question)]},
    )
    return tuple(passage for passage in passages if not _contains(passage, original_question))[: options.k]


def _contains(passage: Passage, question: str) -> bool:
    return f" {normalize_words(question)} " in f" {normalize_words(f'{passage.title} {passage.text}')} "


async def decompose(node: Node, options: RaIsfOptions) -> tuple[list[SubQuestion], bool]:
    """Return at most ``max_sub_questions`` sub-questions (0: all), and whether the reply lists any."""
    prompt = load_template("ra_isf", "decompose_in_order" if options.refer_back else "decompose")
    decoding = Decoding(max_tokens=options.max_tokens)
    reply = await generate(prompt(question=node.question, shots=options.shots), decoding, role="decompose")
    sub_questions = parse_sub_questions(reply.text, is_cut=reply.finish == "length")
    above = {normalize_words(question) for question in (*node.ancestors, node.question) if options.repeated == "omit"}
    kept = [sub_question for sub_question in sub_questions if normalize_words(sub_question.text) not in above]
    return kept[: options.max_sub_questions or None], bool(sub_questions)


async def _judge_jointly(question: str, passages: Sequence[Passage], options: RaIsfOptions) -> list[Verdict]:
    """Ask in one call for the numbers of all relevant passages. If the passages do not suffice to answer, none counts as relevant."""
    if not passages:
        return []
    prompt = load_template("ra_isf", "relevant_passages")(question=question, passages=format_passages(passages), shots=options.shots)
    reply = await generate(prompt, _NUMBERS, role="relevance")
    numbers, is_readable = parse_relevant_numbers(reply.text, len(passages))
    return [Verdict(number in numbers, is_readable) for number in range(1, len(passages) + 1)]


async def _judge(prompt: Chat, role: str, options: RaIsfOptions) -> Verdict:
    """Ask for a verdict, yes or no. An unreadable reply counts as no."""
    if options.verdicts == "probability":
        score = (await ask_yes_no(prompt, role=role)).score
        return Verdict(score is not None and score >= _MIN_P_YES, score is not None, score)
    schema = Choice(("yes", "no")) if options.verdicts == "choice" else None
    return parse_verdict((await generate(prompt, _VERDICT, role=role, schema=schema)).text)
