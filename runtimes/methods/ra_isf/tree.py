"""The tree of a question, its sub-questions, theirs, and so on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from wikidx.corpora.passage import Passage
from wikidx.runtimes.methods.sentences import words

from .replies import Verdict

UNKNOWN = "unknown"

How = Literal[
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
    """A question of the recursion, solved or partly solved.

    Attributes:
        question: its text.
        above: its ancestors, the root first; their number is its depth.
        how: source of the answer.
        answer: the answer.
        known: whether the model claims to know the answer; None: not asked.
        found: retrieved passages, best first.
        verdicts: for each of them, whether it is relevant.
        read: passages that the answer is based on.
        children: its sub-questions.
        parse_ok: whether every verdict and list was readable.
    """

    question: str
    above: tuple[str, ...] = ()
    how: How = "depth_limit"
    answer: str = UNKNOWN
    known: bool | None = None
    found: tuple[Passage, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    read: tuple[Passage, ...] = ()
    children: tuple[Node, ...] = ()
    parse_ok: bool = True

    @property
    def depth(self) -> int:
        """Depth in the tree: the number of decompositions above the question."""
        return len(self.above)

    @property
    def asked(self) -> str:
        """The question given to the method."""
        return (*self.above, self.question)[0]

    @property
    def relevant(self) -> tuple[Passage, ...]:
        """The passages judged relevant."""
        return tuple(passage for passage, verdict in zip(self.found, self.verdicts, strict=True) if verdict.yes)

    @property
    def is_answered(self) -> bool:
        """True if there is an answer other than "unknown"."""
        return bool(self.answer.strip()) and words(self.answer) != UNKNOWN


def walk(node: Node) -> list[Node]:
    """Return a node and its descendants in pre-order."""
    return [node, *(deeper for child in node.children for deeper in walk(child))]


def as_json(node: Node) -> dict[str, Any]:
    """Return a tree as JSON values."""
    return {
        "question": node.question,
        "depth": node.depth,
        "how": node.how,
        "answer": node.answer,
        "known": node.known,
        "verdicts": [
            {"id": passage.id, "relevant": verdict.yes, "score": verdict.score, "parse_ok": verdict.found}
            for passage, verdict in zip(node.found, node.verdicts, strict=True)
        ],
        "sub_questions": [as_json(child) for child in node.children],
        "parse_ok": node.parse_ok,
    }
