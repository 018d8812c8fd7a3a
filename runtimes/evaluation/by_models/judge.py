"""LLM judges of answers, by votes: the rule of HalluQA (Cheng et al., 2023), which RetroRAG's Table 3 follows.

The model reads question, golden answers and answer, and votes in one word whether the answer is right. It votes several times, and the
answer is wrong if more than half of the votes say so. While a vote is unreadable, all votes of the question are repeated; if no attempt
helps, the answer counts as wrong, as in HalluQA, and as ``unreadable``. So does an empty answer, without a call.

    retrorag    in English; the paper gives no prompt
    halluqa     in Chinese, whether the answer hallucinates; the value is the share that does not; for HalluQA's questions

The prompts are ours (``prompts/*.txt``): figures are comparable with one another, and with the papers' only as far as judges agree.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from wikidx.corpora.progress import Progress, silent
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.evaluation.by_models.measured import Measured
from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.llms.base import LLM, Chat, Decoding, Generate, Reply
from wikidx.runtimes.methods.templates import Template, parse
from wikidx.runtimes.questions import Question

ROLE = "judge"

_TRIES = 5  # HalluQA's, as are the decoding parameters
_DECODING = Decoding(max_tokens=10, temperature=0.0, top_p=0.5)
_AT_ONCE = 256  # calls between progress reports
_LABEL = re.compile(r"^(?:answer|verdict|judge?ment|回答|判断|结论)\W*[:：]\W*")

Vote = Literal["right", "wrong"]


class Rule(NamedTuple):
    """A rule of judging.

    Attributes:
        name: of the rule and of its prompt; with "_judge" appended, of the metric.
        origin: whose rule it is.
        words: valid replies and the vote of each.
        openings: regular expressions for the beginning of a longer reply, and the vote of each.
    """

    name: str
    origin: str
    words: Mapping[str, Vote]
    openings: Mapping[str, Vote]

    @property
    def metric(self) -> str:
        """Name of the metric."""
        return f"{self.name}_judge"


_ORIGIN = "more than half of the votes decide; an empty answer and one that no vote could be read on are wrong"

RULES: Mapping[str, Rule] = {
    "retrorag": Rule(
        "retrorag",
        f"RetroRAG, Table 3, with HalluQA's votes: {_ORIGIN}",
        {"yes": "right", "Yes": "right", "no": "wrong", "No": "wrong"},
        {r"(yes|correct|right|true)\b": "right", r"(no|not|incorrect|wrong|false)\b": "wrong"},
    ),
    "halluqa": Rule(
        "halluqa",
        f"HalluQA, non-hallucination rate: {_ORIGIN}",
        {"否": "right", "是": "wrong"},
        {"否|不是|没有|无幻觉|不存在": "right", "是(?!否)|有幻觉|存在": "wrong"},
    ),
}


class _Read(NamedTuple):
    """A parsed vote; None: unreadable. ``is_strict``: the reply is exactly one of the rule's words."""

    vote: Vote | None
    is_strict: bool


class Judge:
    """Accuracy by a judge's votes; a ``RowMetric``.

    Args:
        llm: the judge; closed by its opener.
        votes: number of votes on an answer, at least one; HalluQA's is 5. Votes are separate calls with seeds of their own, because
            endpoints vary from call to call even at temperature 0. A deterministic model needs only one.
        progress: called with (votes, all votes) in each attempt.
    """

    def __init__(self, llm: LLM, *, votes: int = 5, progress: Progress = silent) -> None:
        self._llm, self._votes, self._progress = llm, votes, progress
        self._rule, self._failures = RULES["retrorag"], Counter[str]()

    def about(self) -> dict[str, Any]:
        """Return the origin of the last rule applied, the model, its parameters, and counts of failures."""
        return {
            "origin": self._rule.origin,
            "llm": self._llm.name,
            "votes": self._votes,
            "tries": _TRIES,
            "temperature": _DECODING.temperature,
            "top_p": _DECODING.top_p,
            "max_tokens": _DECODING.max_tokens,
            "prompt_sha256": hashlib.sha256(_file(self._rule)).hexdigest(),
            "failures": dict(self._failures),
        }

    def measure(self, rows: Sequence[PredictionRow], questions: Sequence[Question]) -> Measured:
        """Return 1 for each answer judged right, else 0; NaN without golden answers, or if the model failed.

        Raises:
            LLMError: the model failed on every answer.
        """
        self._failures.clear()
        self._rule = rule_for(questions)
        values = np.full(len(rows), np.nan)
        counts = Counter(dict.fromkeys(("without_golden_answers", "empty_answers", "failed", "read_leniently", "unreadable"), 0))
        asked: dict[int, Chat] = {}
        for number, (row, question) in enumerate(zip(rows, questions, strict=True)):
            answer = (row.answer or "").strip()
            if not question.golden_answers:
                counts["without_golden_answers"] += 1
            elif not answer:
                counts["empty_answers"] += 1
                values[number] = 0
            else:
                asked[number] = prompt_of(self._rule, question, answer)
        voted = self._voted(asked)
        if voted and not any(voted.values()):
            (why, n), *_ = self._failures.most_common(1)
            raise LLMError(f"the judge {self._llm.name} failed on all {len(voted):,} answers, most often ({n:,} calls): {why}")
        for number, votes in voted.items():
            if votes is None:
                counts["failed"] += 1
                continue
            is_unreadable = any(read.vote is None for read in votes)
            counts["unreadable"] += is_unreadable
            counts["read_leniently"] += not is_unreadable and not all(read.is_strict for read in votes)
            n_wrong = sum(read.vote == "wrong" for read in votes)
            values[number] = float(not is_unreadable and 2 * n_wrong <= len(votes))
        return Measured({self._rule.metric: values}, dict(counts))

    def _voted(self, asked: Mapping[int, Chat]) -> dict[int, list[_Read] | None]:
        """Return the votes of the last attempt on each prompt; None: the model failed."""
        found: dict[int, list[_Read] | None] = {}
        left = dict(asked)
        for attempt in range(_TRIES):
            found |= dict(zip(left, self._asked_once(list(left.values()), attempt), strict=True))
            left = {number: prompt for number, prompt in left.items() if any(read.vote is None for read in found[number] or ())}
        return found

    def _asked_once(self, prompts: Sequence[Chat], attempt: int) -> list[list[_Read] | None]:
        decodings = [replace(_DECODING, seed=seed) for seed in range(attempt * self._votes, (attempt + 1) * self._votes)]
        calls = [Generate(prompt=prompt, role=ROLE, decoding=decoding) for prompt in prompts for decoding in decodings]
        replies: list[Reply | LLMError] = []
        for start in range(0, len(calls), _AT_ONCE):
            replies += self._llm.run(calls[start : start + _AT_ONCE])
            self._progress(len(replies), len(calls))
        return [self._read(replies[start : start + self._votes]) for start in range(0, len(replies), self._votes)]

    def _read(self, replies: Sequence[Reply | LLMError]) -> list[_Read] | None:
        texts = [_text(reply) for reply in replies if not isinstance(reply, LLMError)]
        if len(texts) < len(replies):
            self._failures.update(str(reply) for reply in replies if isinstance(reply, LLMError))
            return None
        return [read_vote(text, self._rule) for text in texts]


def rule_for(questions: Sequence[Question]) -> Rule:
    """Return HalluQA's rule if the questions are HalluQA's, recognised by their wrong answers, otherwise RetroRAG's."""
    is_halluqa = bool(questions) and all("wrong_answers" in question.gold for question in questions)
    return RULES["halluqa" if is_halluqa else "retrorag"]


def prompt_of(rule: Rule, question: Question, answer: str) -> Chat:
    """Return the judge's prompt on an answer."""
    golds = "\n".join(f"{number}. {gold}" for number, gold in enumerate(question.golden_answers, 1))
    template = Template(f"{ROLE}/{rule.name}", parse(_file(rule).decode("utf-8")))
    return template(question=question.text, golds=golds, answer=answer)


def read_vote(text: str, rule: Rule) -> _Read:
    """Parse a vote: strictly, one of the rule's words; otherwise, the expression that the reply begins with."""
    if text in rule.words:
        return _Read(rule.words[text], is_strict=True)
    said = _LABEL.sub("", re.sub(r"^[\W_]+", "", text.casefold()))
    for opening, vote in rule.openings.items():
        if re.match(opening, said):
            return _Read(vote, is_strict=False)
    return _Read(None, is_strict=False)


def _text(reply: Reply) -> str:
    if not isinstance(reply.result, tuple):
        raise TypeError(f"a generation was asked for, not {type(reply.result).__name__}")
    return reply.result[0].text


def _file(rule: Rule) -> bytes:
    return (importlib.resources.files(__package__) / "prompts" / f"{rule.name}.txt").read_bytes()
