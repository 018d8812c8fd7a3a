"""The algorithm of RA-ISF (Algorithm 1): one question, its passages, its sub-questions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Decoding
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.requests import Run, generate, named, together
from wikidx.runtimes.methods.sub_questions import SubQuestion
from wikidx.runtimes.methods.templates import Blocks, numbered, template

from .options import RaIsfOptions
from .sub_models import decompose, passage_relevance, self_knowledge
from .tree import UNKNOWN, How, Node, as_json, walk


def ra_isf(question: str, options: RaIsfOptions) -> Run[Answer]:
    """Solve a question; ``detail`` holds the tree of its sub-questions."""
    root = yield from solve(Node(question=question), options)
    nodes = walk(root)
    passages = dict.fromkeys(passage for node in nodes for passage in node.read)
    return Answer(root.answer, tuple(passages), {"parse_ok": all(node.parse_ok for node in nodes), "tree": as_json(root)})


def solve(node: Node, options: RaIsfOptions) -> Run[Node]:
    """Answer by self-knowledge (SKM), from relevant passages (PRM), or by decomposition (QDM); "unknown" beyond the depth limit."""
    if node.depth > options.max_depth or (node.depth == options.max_depth and options.depth_test == "reached"):
        return replace(node, how="depth_limit")
    if options.know:
        node = yield from self_knowledge(node, options)
        if node.known:
            return (yield from _closed_book(node, "self_knowledge", options))
    if options.relevance != "off":
        node = yield from passage_relevance(node, options)
        if node.relevant:
            read = node.relevant if options.answer_from == "relevant" else node.found
            return (yield from _from_passages(node, read, "passages", options))
    if not options.decompose:
        return replace(node, how="no_decomposition")
    if node.depth == options.max_depth and options.depth_test == "leaf":
        return replace(node, how="depth_limit")
    node = yield from _solve_sub_questions(node, options)
    return (yield from _synthesise(node, options))


def _closed_book(node: Node, how: How, options: RaIsfOptions) -> Run[Node]:
    return replace(node, how=how, answer=(yield from _answer("closed_book", {}, node, options)))


def _from_passages(node: Node, passages: tuple[Passage, ...], how: How, options: RaIsfOptions) -> Run[Node]:
    answer = yield from _answer("from_passages", {"passages": numbered(passages)}, node, options)
    return replace(node, how=how, read=passages, answer=answer)


def _solve_sub_questions(node: Node, options: RaIsfOptions) -> Run[Node]:
    """Break a question down, and solve its sub-questions."""
    parts, is_read = yield from decompose(node, options)
    above = (*node.above, node.question)
    if options.refer_back:
        children = yield from _solve_in_order(parts, above, options)
    else:
        children = yield from together(
            named(f"sub-question {place}", solve(Node(question=part.text, above=above), options)) for place, part in enumerate(parts, 1)
        )
    return replace(node, children=tuple(children), parse_ok=node.parse_ok and is_read)


def _synthesise(node: Node, options: RaIsfOptions) -> Run[Node]:
    """Answer a question from the answers to its sub-questions."""
    if options.if_none_answered != "synthesise" and not any(child.is_answered for child in node.children):
        return (yield from _fall_back(node, options))
    pairs = "\n".join(
        f"{place}. {child.question}\nAnswer: {child.answer if child.is_answered else UNKNOWN}"
        for place, child in enumerate(node.children, 1)
    )
    return replace(node, how="synthesis", answer=(yield from _answer("synthesise", {"pairs": pairs or "(none)"}, node, options)))


def _solve_in_order(parts: Sequence[SubQuestion], above: tuple[str, ...], options: RaIsfOptions) -> Run[list[Node]]:
    """Solve sub-questions in order, replacing "#1", "#2", … by earlier answers, except unknown ones."""
    children: list[Node] = []
    answers: dict[str, str] = {}
    for place, part in enumerate(parts, 1):
        question = re.sub(r"#(\d+)", lambda reference: answers.get(reference[1], reference[0]), part.text)
        child = yield from named(f"sub-question {place}", solve(Node(question=question, above=above), options))
        children.append(child)
        if child.is_answered:
            answers[str(part.number)] = child.answer
    return children


def _fall_back(node: Node, options: RaIsfOptions) -> Run[Node]:
    """Answer a question none of whose sub-questions is answered."""
    if options.if_none_answered == "unknown":
        return replace(node, how="none_answered")
    if options.if_none_answered == "passages" and node.found:
        return (yield from _from_passages(node, node.found, "fallback_passages", options))
    return (yield from _closed_book(node, "fallback_closed_book", options))


def _answer(name: str, given: Mapping[str, str | Blocks], node: Node, options: RaIsfOptions) -> Run[str]:
    """Answer a node's question with the named prompt and the given fields, in the form set by the options."""
    form = "short" if options.answer_form == "yes_no" and node.above else options.answer_form
    (asked_for,) = template("ra_isf", f"form_{form}")()
    prompt = template("ra_isf", name)(question=node.question, form=asked_for.content, shots=options.shots, **given)
    return (yield from generate(prompt, Decoding(max_tokens=options.max_tokens))).text.strip()
