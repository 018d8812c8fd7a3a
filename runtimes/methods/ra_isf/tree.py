"""Tree of questions: a node is a question, and its children are its sub-questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from wikidx.corpora.passage import Passage
from wikidx.runtimes.methods.sentences import normalize_words

from .replies import Verdict

UNKNOWN = "unknown"

AnswerSource = Literal[
    "self_knowledge",
    "passages",
    "synthesis",
    "depth_limit",
    "no_decomposition",
    "none_answered",
    "fallback_closed_book",
    "fallback_passages",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of the tree: a question, solved or partly solved.

    Attributes:
        ancestors: the questions above the node, original question first.
        answered_from: source of the answer.
        known: whether the model claims to know the answer; None: the model was not asked.
        retrieved: retrieved passages, best first.
        verdicts: the relevance verdict of each retrieved passage.
        evidence: passages that the answer is based on.
        children: the nodes of the sub-questions.
        parse_ok: whether the verdicts, the list of sub-questions and the answer were readable.
    """

    question: str
    ancestors: tuple[str, ...] = ()
    answered_from: AnswerSource = "depth_limit"
    answer: str = UNKNOWN
    known: bool | None = None
    retrieved: tuple[Passage, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    evidence: tuple[Passage, ...] = ()
    children: tuple[Node, ...] = ()
    parse_ok: bool = True

    @property
    def depth(self) -> int:
        """Depth in the tree: the number of decompositions above the question."""
        return len(self.ancestors)

    @property
    def original_question(self) -> str:
        """The question given to the method."""
        return (*self.ancestors, self.question)[0]

    @property
    def relevant(self) -> tuple[Passage, ...]:
        """The passages judged relevant."""
        return tuple(passage for passage, verdict in zip(self.retrieved, self.verdicts, strict=True) if verdict.is_yes)

    @property
    def is_answered(self) -> bool:
        """True if there is an answer other than "unknown"."""
        return bool(self.answer.strip()) and normalize_words(self.answer) != UNKNOWN


def walk(node: Node) -> list[Node]:
    """Return a node and its descendants in pre-order."""
    return [node, *(deeper for child in node.children for deeper in walk(child))]


def to_json(node: Node) -> dict[str, Any]:
    """Return a tree as JSON values."""
    return {
        "question": node.question,
        "depth": node.depth,
        "answered_from": node.answered_from,
        "answer": node.answer,
        "known": node.known,
        "verdicts": [
            {"id": passage.id, "relevant": verdict.is_yes, "score": verdict.score, "parse_ok": verdict.is_readable}
            for passage, verdict in zip(node.retrieved, node.verdicts, strict=True)
        ],
        "sub_questions": [to_json(child) for child in node.children],
        "parse_ok": node.parse_ok,
    }
