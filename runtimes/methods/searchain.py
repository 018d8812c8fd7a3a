"""SearChain: the model writes a whole chain of queries with answers, and searches verify and complete it until nothing is to be changed.

Xu et al., Search-in-the-Chain: Interactively Enhancing Large Language Models with Search for Knowledge-intensive Tasks, 2024 (arXiv
2304.14732, sections 3.1 to 3.3), and the authors' code (``xsc1234/Search-in-the-Chain``).

Each query is a node. A search *verifies* its answer: a reader that is confident enough of another answer corrects it. It *completes* a node
that the model calls unsolved. After the first correction or completion the model continues the chain from that node on; nodes that it had
written after it are dropped. So the chains of all rounds are a tree, of which the nodes that are not dropped are the path to the answer.

Deviations: a language model reads in place of the authors' DPR reader, and its log-odds of "yes" stand for that reader's relevance logit; a
query counts as seen if its words have been searched before, where the authors ask a cross-encoder; an answer belongs to the query before
it, where the code takes the next one, even of a later query; a missing final content is requested.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from wikidx.base.validation import options
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Gen
from wikidx.runtimes.llms.prompts import Chat, Decoding, Message

from .base import Answer, Method, option
from .forms import LineFormName, describe_forms
from .model_output import drop_placeholder, first_line
from .reading import ReadingOptions, reads_passages
from .requests import ask_yes_no, generate, label, retrieve
from .sentences import normalize_words
from .templates import format_passages, load_template
from .written_answers import answer_in_form, parse_answer, parse_draft

_MARK = re.compile(r"^[ \t*]*\[(unsolved query|query|answer|final content)[ \t]*\d*\][ \t*]*:?[ \t*]*", re.IGNORECASE | re.MULTILINE)
_ARTICLES = frozenset(("a", "an", "the"))
_READER_TOKENS = 64


@options
class SearChainOptions(ReadingOptions):
    """Options of SearChain."""

    form: LineFormName = option("short", "ours", describe_forms(LineFormName))
    k: int = option(1, "paper", "number of passages that verify or complete a node", minimum=1)
    max_rounds: int = option(5, "paper", "maximum number of chains that the model writes", minimum=1)
    confidence: float = option(
        1.5, "paper", "theta: an answer is corrected if the reader's log-odds that the passages answer the query exceed this value"
    )
    match: Literal["contains", "rouge"] = option(
        "contains",
        "paper",
        "when an answer agrees with the search; contains: it contains the reader's answer; rouge: its ROUGE-L with the passages exceeds "
        "the option overlap (long answers)",
    )
    overlap: float = option(
        0.35, "paper", "alpha: the least ROUGE-L of an answer that agrees with the passages, if match is rouge", maximum=1
    )
    shots: int = option(2, "authors' code", "number of demonstrations in the prompt")
    max_tokens: int = option(512, "ours", "maximum number of tokens of a chain", minimum=1)


class _Node(NamedTuple):
    """A query of a chain with the model's answer; without one the node is unsolved."""

    query: str
    answer: str = ""
    is_unsolved: bool = False


class _Reading(NamedTuple):
    """The reader's answer to a query, and the probability that the passages answer it (None: unknown)."""

    answer: str
    probability: float | None


@dataclass(slots=True, kw_only=True)
class _Tree:
    """The nodes of a question so far.

    Attributes:
        records: each node with its verdict, as JSON values.
        evidence: the passages found.
        seen: the words of the queries that have been searched with.
    """

    question: str
    options: SearChainOptions
    records: list[dict[str, Any]] = field(default_factory=list)
    evidence: dict[Passage, None] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)


@reads_passages
async def searchain(question: str, options: SearChainOptions) -> Answer:
    """Let the model write the chain, and continue it after each correction or completion, for at most ``max_rounds``."""
    tree = _Tree(question=question, options=options)
    turns = load_template("searchain", "chain", options.form)(question=question, shots=options.shots)
    output, final = Gen(text=""), ""
    for number in range(1, options.max_rounds + 1):
        with label(f"round {number}"):
            output = await generate(turns, Decoding(max_tokens=options.max_tokens))
            nodes, final = parse_chain(output.text)
            feedback = await _grow(tree, nodes)
        turns = (*turns, Message("assistant", output.text), *feedback)
        if not feedback:
            break
    if not final:
        request = (*turns, *load_template("searchain", "conclude", options.form)(question=question))
        output = await generate(request, Decoding(max_tokens=options.max_tokens))
        final = parse_chain(output.text)[1] or output.text
    draft = parse_draft(Gen(text=final, finish=output.finish), "cot")
    return answer_in_form(draft, options.form, tuple(tree.evidence), nodes=tree.records, final=draft.text)


def parse_chain(text: str) -> tuple[list[_Node], str]:
    """Return the nodes of a chain, and its final content; empty if it has none."""
    marks = list(_MARK.finditer(text))
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    nodes, final = list[_Node](), ""
    for mark, end in zip(marks, ends, strict=True):
        kind, value = mark[1].casefold(), drop_placeholder(text[mark.end() : end].strip())
        if kind == "final content":
            final = value
        elif kind == "answer" and nodes and not nodes[-1].answer:
            nodes[-1] = nodes[-1]._replace(answer=value, is_unsolved=nodes[-1].is_unsolved and not value)
        elif kind == "unsolved query" and nodes and not nodes[-1].answer and _is_same(first_line(value), nodes[-1].query):
            nodes[-1] = nodes[-1]._replace(is_unsolved=True)
        elif kind != "answer" and first_line(value):
            nodes.append(_Node(first_line(value), is_unsolved=kind == "unsolved query"))
    return nodes, final


async def _grow(tree: _Tree, nodes: Sequence[_Node]) -> Chat:
    """Check new nodes in order, and return the turn about the first that is corrected or completed; empty if none is."""
    feedback: Chat = ()
    for number, node in enumerate(nodes, 1):
        if feedback:
            tree.records.append({**node._asdict(), "verdict": "dropped"})
        elif node.is_unsolved or normalize_words(node.query) not in tree.seen:
            with label(f"node {number}"):
                feedback = await _check(tree, node)
    return feedback


async def _check(tree: _Tree, node: _Node) -> Chat:
    """Search with a node, and return the turn that corrects or completes it; empty if there is nothing to say."""
    tree.seen.add(normalize_words(node.query))
    passages = await retrieve(node.query, tree.options.k)
    reading = await _read(node.query, passages) if passages else _Reading("", None)
    verdict = _judge(node, reading, passages, tree.options)
    tree.evidence |= dict.fromkeys(passages)
    found = {"read": reading.answer, "probability": reading.probability, "passages": [passage.id for passage in passages]}
    tree.records.append({**node._asdict(), "verdict": verdict, **found})
    if verdict not in ("corrected", "completed"):
        return ()
    return load_template("searchain", verdict)(
        query=node.query, answer=reading.answer or "unknown", passages=format_passages(passages), question=tree.question
    )


async def _read(query: str, passages: Sequence[Passage]) -> _Reading:
    """Read the answer to a query, and ask whether the passages give it."""
    shown = format_passages(passages)
    output = await generate(
        load_template("searchain", "read")(query=query, passages=shown), Decoding(max_tokens=_READER_TOKENS), role="reader"
    )
    verdict = await ask_yes_no(load_template("searchain", "confidence")(query=query, passages=shown), role="reader")
    return _Reading(first_line(parse_answer(output).answer), verdict.score)


def _judge(node: _Node, reading: _Reading, passages: Sequence[Passage], options: SearChainOptions) -> str:
    """Return "completed", "corrected", "confirmed" or, if the reader is not confident, "unchecked"."""
    if node.is_unsolved and passages:
        return "completed"
    if reading.probability is None or reading.probability <= 1 / (1 + math.exp(-options.confidence)):
        return "unchecked"
    if options.match == "rouge":
        agrees = rouge_l(node.answer, " ".join(passage.text for passage in passages)) > options.overlap
    else:
        agrees = _content(reading.answer) in _content(node.answer)
    return "confirmed" if agrees else "corrected"


def rouge_l(text: str, other: str) -> float:
    """Return the F-measure of the longest common subsequence of words (ROUGE-L of a whole text), from 0 to 1.

    It is not ``evaluation``'s, which takes the distinct words of sentences, or stems.
    """
    words, others = normalize_words(text).split(), normalize_words(other).split()
    lengths = [0] * (len(others) + 1)
    for word in words:
        diagonal = 0
        for place, theirs in enumerate(others, 1):
            above = lengths[place]
            lengths[place] = diagonal + 1 if word == theirs else max(above, lengths[place - 1])
            diagonal = above
    return 2 * lengths[-1] / (len(words) + len(others)) if words and others else 0.0


def _content(text: str) -> str:
    """Return the words of a text without articles."""
    return " ".join(word for word in normalize_words(text).split() if word not in _ARTICLES)


def _is_same(query: str, other: str) -> bool:
    return normalize_words(query) == normalize_words(other)


METHOD = Method(
    name="searchain",
    summary="write a chain of queries with answers, verify and complete it by searches, and continue it",
    source="SearChain, arXiv 2304.14732",
    roles=("answer", "reader"),
    options=SearChainOptions,
    run=searchain,
)
