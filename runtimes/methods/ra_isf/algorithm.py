"""Algorithm 1 of RA-ISF."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.prompts import Decoding
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.forms import FORMS
from wikidx.runtimes.methods.reading import reads_passages
from wikidx.runtimes.methods.requests import gather, generate, label, labelled
from wikidx.runtimes.methods.sub_questions import SubQuestion
from wikidx.runtimes.methods.templates import Blocks, format_passages, load_template
from wikidx.runtimes.methods.written_answers import parse_answer

from .options import RaIsfOptions
from .sub_models import decompose, passage_relevance, self_knowledge
from .tree import UNKNOWN, AnswerSource, Node, to_json, walk


@reads_passages
async def ra_isf(question: str, options: RaIsfOptions) -> Answer:
    """Answer a question; ``detail`` holds the tree of its sub-questions."""
    root = await solve(Node(question=question), options)
    nodes = walk(root)
    passages = dict.fromkeys(passage for node in nodes for passage in node.evidence)
    return Answer(root.answer, tuple(passages), {"parse_ok": all(node.parse_ok for node in nodes), "tree": to_json(root)})


async def solve(node: Node, options: RaIsfOptions) -> Node:
    """Answer a question from self-knowledge (SKM), else from relevant passages (PRM), else by decomposition (QDM).

    Beyond the depth limit, the answer is "unknown".
    """
    if node.depth > options.max_depth or (node.depth == options.max_depth and options.depth_test == "reached"):
        return replace(node, answered_from="depth_limit")
    if options.know:
        node = await self_knowledge(node, options)
        if node.known:
            return await _answer_closed_book(node, "self_knowledge", options)
    if options.relevance != "off":
        node = await passage_relevance(node, options)
        if node.relevant:
            passages = node.relevant if options.answer_from == "relevant" else node.retrieved
            return await _answer_from_passages(node, passages, "passages", options)
    if not options.decompose:
        return replace(node, answered_from="no_decomposition")
    if node.depth == options.max_depth and options.depth_test == "leaf":
        return replace(node, answered_from="depth_limit")
    node = await _solve_sub_questions(node, options)
    return await _synthesise(node, options)


async def _answer_closed_book(node: Node, answered_from: AnswerSource, options: RaIsfOptions) -> Node:
    return await _answer(replace(node, answered_from=answered_from), "closed_book", {}, options)


async def _answer_from_passages(node: Node, passages: tuple[Passage, ...], answered_from: AnswerSource, options: RaIsfOptions) -> Node:
    node = replace(node, answered_from=answered_from, evidence=passages)
    return await _answer(node, "from_passages", {"passages": format_passages(passages)}, options)


async def _solve_sub_questions(node: Node, options: RaIsfOptions) -> Node:
    """Decompose a question, and solve its sub-questions."""
    sub_questions, is_readable = await decompose(node, options)
    ancestors = (*node.ancestors, node.question)
    if options.refer_back:
        children = await _solve_in_order(sub_questions, ancestors, options)
    else:
        asked = [Node(question=sub_question.text, ancestors=ancestors) for sub_question in sub_questions]
        children = await gather(*(labelled(f"sub-question {number}", solve(child, options)) for number, child in enumerate(asked, 1)))
    return replace(node, children=tuple(children), parse_ok=node.parse_ok and is_readable)


async def _synthesise(node: Node, options: RaIsfOptions) -> Node:
    """Answer a question from the answers to its sub-questions; without such answers, as ``if_none_answered`` says."""
    if options.if_none_answered != "synthesise" and not any(child.is_answered for child in node.children):
        return await _fall_back(node, options)
    pairs = "\n".join(
        f"{number}. {child.question}\nAnswer: {child.answer if child.is_answered else UNKNOWN}"
        for number, child in enumerate(node.children, 1)
    )
    name = "synthesise" if options.synthesis == "answers" else "synthesise_or_recall"
    return await _answer(replace(node, answered_from="synthesis"), name, {"pairs": pairs}, options)


async def _solve_in_order(sub_questions: Sequence[SubQuestion], ancestors: tuple[str, ...], options: RaIsfOptions) -> list[Node]:
    """Solve sub-questions in order. A reference such as "#1" is replaced by the answer to that sub-question, if known."""
    children: list[Node] = []
    answers: dict[str, str] = {}
    for number, sub_question in enumerate(sub_questions, 1):
        question = re.sub(r"#(\d+)", lambda reference: answers.get(reference[1], reference[0]), sub_question.text)
        with label(f"sub-question {number}"):
            child = await solve(Node(question=question, ancestors=ancestors), options)
        children.append(child)
        if child.is_answered:
            answers[str(sub_question.number)] = child.answer
    return children


async def _fall_back(node: Node, options: RaIsfOptions) -> Node:
    """Answer a question that has no answered sub-question, as ``if_none_answered`` says."""
    if options.if_none_answered == "unknown":
        return replace(node, answered_from="none_answered")
    if options.if_none_answered == "passages" and node.retrieved:
        return await _answer_from_passages(node, node.retrieved, "fallback_passages", options)
    return await _answer_closed_book(node, "fallback_closed_book", options)


async def _answer(node: Node, name: str, fields: Mapping[str, str | Blocks], options: RaIsfOptions) -> Node:
    """Answer the question of a node by the prompt ``name``, filled with ``fields``."""
    form = "short" if node.ancestors and options.form != "sentence" else options.form
    prompt = load_template("ra_isf", name, form)(question=node.question, shots=options.shots, **fields)
    draft = parse_answer(await generate(prompt, Decoding(max_tokens=options.max_tokens)))
    answer = FORMS[form].read(draft.answer, 0)
    return replace(node, answer=answer.text, parse_ok=node.parse_ok and draft.parse_ok and answer.is_read)
