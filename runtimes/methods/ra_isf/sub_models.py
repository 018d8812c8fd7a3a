"""The paper's three sub-models: self-knowledge (SKM), passage relevance (PRM) and question decomposition (QDM)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Chat, Choice, Decoding
from wikidx.runtimes.methods.requests import Run, generate, note, retrieve, together, truncate, yes_no
from wikidx.runtimes.methods.sentences import words
from wikidx.runtimes.methods.sub_questions import SubQuestion, sub_questions
from wikidx.runtimes.methods.templates import numbered, template, unnumbered

from .options import RaIsfOptions
from .replies import Verdict, relevant_numbers, verdict
from .tree import Node

_VERDICT = Decoding(max_tokens=8)
_NUMBERS = Decoding(max_tokens=64)


def self_knowledge(node: Node, options: RaIsfOptions) -> Run[Node]:
    """Ask whether the model knows the answer."""
    prompt = template("ra_isf", "know")(question=node.question, shots=options.shots)
    known = yield from _judge(prompt, "know", options.know_threshold, options)
    return replace(node, known=known.yes, parse_ok=known.found)


def passage_relevance(node: Node, options: RaIsfOptions) -> Run[Node]:
    """Retrieve passages and judge which are relevant."""
    found = yield from _search(node.question, node.asked, options)
    if options.relevance == "joint":
        verdicts = yield from _judge_jointly(node.question, found, options)
    else:
        prompt = template("ra_isf", "relevance")
        verdicts = yield from together(
            _judge(
                prompt(question=node.question, passage=unnumbered(passage), shots=options.shots),
                "relevance",
                options.relevance_threshold,
                options,
            )
            for passage in found
        )
    return replace(node, found=found, verdicts=tuple(verdicts), parse_ok=node.parse_ok and all(verdict.found for verdict in verdicts))


def _search(question: str, asked: str, options: RaIsfOptions) -> Run[tuple[Passage, ...]]:
    """Search with a short query made from a question; return at most ``options.k`` passages (section 4.3).

    Passages that contain ``asked``, the question of the dataset, are replaced by the next ones, up to twice that depth.
    """
    query = question
    if options.max_query_tokens:
        query = yield from truncate(question, options.max_query_tokens, keep="end")
    found = yield from retrieve(query, options.k)
    if not options.remove_question or not any(_contains(passage, asked) for passage in found):
        return found
    if len(found) == options.k:
        found = yield from retrieve(query, 2 * options.k)
    yield from note("contain the question: left out", {"ids": [passage.id for passage in found if _contains(passage, asked)]})
    return tuple(passage for passage in found if not _contains(passage, asked))[: options.k]


def _contains(passage: Passage, question: str) -> bool:
    return f" {words(question)} " in f" {words(f'{passage.title} {passage.text}')} "


def decompose(node: Node, options: RaIsfOptions) -> Run[tuple[list[SubQuestion], bool]]:
    """Return sub-questions, and whether the reply listed any."""
    prompt = template("ra_isf", "decompose_in_order" if options.refer_back else "decompose")
    decoding = Decoding(max_tokens=options.max_tokens)
    reply = yield from generate(prompt(question=node.question, shots=options.shots), decoding, role="decompose")
    listed = sub_questions(reply.text, is_cut=reply.finish == "length")
    return listed[: options.max_sub_questions], bool(listed)


def _judge_jointly(question: str, passages: Sequence[Passage], options: RaIsfOptions) -> Run[list[Verdict]]:
    """Ask once for the numbers of the relevant passages; none if they do not suffice."""
    if not passages:
        return []
    prompt = template("ra_isf", "relevant_passages")(question=question, passages=numbered(passages), shots=options.shots)
    reply = yield from generate(prompt, _NUMBERS, role="relevance")
    numbers, is_read = relevant_numbers(reply.text, len(passages))
    return [Verdict(number in numbers, is_read) for number in range(1, len(passages) + 1)]


def _judge(prompt: Chat, role: str, threshold: float, options: RaIsfOptions) -> Run[Verdict]:
    """Ask yes or no; an unreadable reply counts as no."""
    if options.verdicts == "probability":
        score = (yield from yes_no(prompt, role=role)).score
        return Verdict(score is not None and score >= threshold, score is not None, score)
    schema = Choice(("yes", "no")) if options.verdicts == "choice" else None
    return verdict((yield from generate(prompt, _VERDICT, role=role, schema=schema)).text)
