"""LLM judges that vote on answers, by the rule of HalluQA (Cheng et al., 2023), which RetroRAG's Table 3 follows.

The model reads the question, its golden answers and the answer, and votes in one word on the answer's correctness. It votes several times
on each answer. The answer is wrong if more than half of the votes are "wrong".

If a vote is unreadable, all votes on the answer are repeated. After five attempts, the answer counts as wrong, as in HalluQA; it is also
counted as ``unreadable``. An empty answer counts as wrong without a call.

    retrorag    votes in English, by our prompt; the paper gives none
    halluqa     for HalluQA's questions, votes in Chinese on hallucination; the metric is the share of answers without hallucination

The prompts are ours (``prompts/*.txt``). Values by the same judge are comparable; a comparison with the papers' figures assumes that the
judges agree.
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

from wikidx.base.progress import Progress, silent
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.evaluation.by_models.row_metrics import RowValues
from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.llms.base import LLM, Generate, Reply
from wikidx.runtimes.llms.prompts import Chat, Decoding
from wikidx.runtimes.methods.templates import Template, parse
from wikidx.runtimes.questions import Question

ROLE = "judge"

_MAX_ATTEMPTS = 5  # HalluQA's, like the decoding parameters
_DECODING = Decoding(max_tokens=10, temperature=0.0, top_p=0.5)
_BATCH_CALLS = 256  # number of calls between progress reports
_LABEL = re.compile(r"^(?:answer|verdict|judge?ment|回答|判断|结论)\W*[:：]\W*")

Vote = Literal["right", "wrong"]


class Rule(NamedTuple):
    """A judging rule.

    Attributes:
        name: the name of the rule and of its prompt file.
        origin: the source of the rule.
        words: reply in exactly one word -> vote.
        prefixes: regular expression for the beginning of any other reply -> vote.
    """

    name: str
    origin: str
    words: Mapping[str, Vote]
    prefixes: Mapping[str, Vote]

    @property
    def metric(self) -> str:
        """The metric's name: the rule's name with the suffix "_judge"."""
        return f"{self.name}_judge"


_ORIGIN = "the majority of the votes decides; empty answers and answers without a readable vote are wrong"

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


class _ParsedVote(NamedTuple):
    """A parsed vote.

    Attributes:
        vote: the vote; None: the reply is unreadable.
        is_strict: the reply is exactly one of the rule's words.
    """

    vote: Vote | None
    is_strict: bool


class Judge:
    """Accuracy of answers by a judge's votes; a ``RowMetric``.

    Args:
        llm: the model of the judge; the caller closes the model.
        votes: number of votes per answer, at least one; HalluQA uses 5. Votes are separate calls with different seeds, because endpoints
            vary from call to call even at temperature 0. One vote suffices for a deterministic model.
        progress: called with (votes received, votes of the attempt) in each attempt.
    """

    def __init__(self, llm: LLM, *, votes: int = 5, progress: Progress = silent) -> None:
        self._llm, self._votes, self._progress = llm, votes, progress
        self._rule, self._failures = RULES["retrorag"], Counter[str]()

    def metadata(self) -> dict[str, Any]:
        """Return the last applied rule's origin, the model, the settings, the prompt's checksum, and counts of the model's errors."""
        return {
            "origin": self._rule.origin,
            "llm": self._llm.name,
            "votes": self._votes,
            "tries": _MAX_ATTEMPTS,
            "temperature": _DECODING.temperature,
            "top_p": _DECODING.top_p,
            "max_tokens": _DECODING.max_tokens,
            "prompt_sha256": hashlib.sha256(_prompt_file(self._rule)).hexdigest(),
            "failures": dict(self._failures),
        }

    def measure(self, rows: Sequence[PredictionRow], questions: Sequence[Question]) -> RowValues:
        """Return 1 for each answer judged right, else 0; NaN if the question has no golden answers or the model failed.

        Raises:
            LLMError: the model failed on every answer.
        """
        self._failures.clear()
        self._rule = rule_for(questions)
        values = np.full(len(rows), np.nan)
        counts = Counter(dict.fromkeys(("without_golden_answers", "empty_answers", "failed", "read_leniently", "unreadable"), 0))
        prompts: dict[int, Chat] = {}
        for number, (row, question) in enumerate(zip(rows, questions, strict=True)):
            answer = (row.answer or "").strip()
            if not question.golden_answers:
                counts["without_golden_answers"] += 1
            elif not answer:
                counts["empty_answers"] += 1
                values[number] = 0
            else:
                prompts[number] = build_prompt(self._rule, question, answer)
        votes_by_row = self._vote(prompts)
        if votes_by_row and not any(votes_by_row.values()):
            (why, n), *_ = self._failures.most_common(1)
            raise LLMError(f"the judge {self._llm.name} failed on all {len(votes_by_row):,} answers, most often ({n:,} calls): {why}")
        for number, votes in votes_by_row.items():
            if votes is None:
                counts["failed"] += 1
                continue
            is_unreadable = any(read.vote is None for read in votes)
            counts["unreadable"] += is_unreadable
            counts["read_leniently"] += not is_unreadable and not all(read.is_strict for read in votes)
            n_wrong = sum(read.vote == "wrong" for read in votes)
            values[number] = float(not is_unreadable and 2 * n_wrong <= len(votes))
        return RowValues({self._rule.metric: values}, dict(counts))

    def _vote(self, prompts: Mapping[int, Chat]) -> dict[int, list[_ParsedVote] | None]:
        """Return each prompt's votes in its last attempt; None if the model failed."""
        votes: dict[int, list[_ParsedVote] | None] = {}
        remaining = dict(prompts)
        for attempt in range(_MAX_ATTEMPTS):
            votes |= dict(zip(remaining, self._vote_once(list(remaining.values()), attempt), strict=True))
            remaining = {number: prompt for number, prompt in remaining.items() if any(read.vote is None for read in votes[number] or ())}
        return votes

    def _vote_once(self, prompts: Sequence[Chat], attempt: int) -> list[list[_ParsedVote] | None]:
        decodings = [replace(_DECODING, seed=seed) for seed in range(attempt * self._votes, (attempt + 1) * self._votes)]
        calls = [Generate(prompt=prompt, role=ROLE, decoding=decoding) for prompt in prompts for decoding in decodings]
        replies: list[Reply | LLMError] = []
        for start in range(0, len(calls), _BATCH_CALLS):
            replies += self._llm.run(calls[start : start + _BATCH_CALLS])
            self._progress(len(replies), len(calls))
        return [self._parse_votes(replies[start : start + self._votes]) for start in range(0, len(replies), self._votes)]

    def _parse_votes(self, replies: Sequence[Reply | LLMError]) -> list[_ParsedVote] | None:
        texts = [_text(reply) for reply in replies if not isinstance(reply, LLMError)]
        if len(texts) < len(replies):
            self._failures.update(str(reply) for reply in replies if isinstance(reply, LLMError))
            return None
        return [read_vote(text, self._rule) for text in texts]


def rule_for(questions: Sequence[Question]) -> Rule:
    """Return HalluQA's rule if all questions have ``wrong_answers`` in their gold data, as HalluQA's questions do; else RetroRAG's."""
    is_halluqa = bool(questions) and all("wrong_answers" in question.gold for question in questions)
    return RULES["halluqa" if is_halluqa else "retrorag"]


def build_prompt(rule: Rule, question: Question, answer: str) -> Chat:
    """Return the judge's prompt for an answer."""
    golds = "\n".join(f"{number}. {gold}" for number, gold in enumerate(question.golden_answers, 1))
    template = Template(f"{ROLE}/{rule.name}", parse(_prompt_file(rule).decode("utf-8")))
    return template(question=question.text, golds=golds, answer=answer)


def read_vote(text: str, rule: Rule) -> _ParsedVote:
    """Parse a vote: strictly if the reply is one of the rule's words, else leniently by the first prefix that matches."""
    if text in rule.words:
        return _ParsedVote(rule.words[text], is_strict=True)
    reply = _LABEL.sub("", re.sub(r"^[\W_]+", "", text.casefold()))
    for prefix, vote in rule.prefixes.items():
        if re.match(prefix, reply):
            return _ParsedVote(vote, is_strict=False)
    return _ParsedVote(None, is_strict=False)


def _text(reply: Reply) -> str:
    if not isinstance(reply.result, tuple):
        raise TypeError(f"a generation was requested, not {type(reply.result).__name__}")
    return reply.result[0].text


def _prompt_file(rule: Rule) -> bytes:
    return (importlib.resources.files(__package__) / "prompts" / f"{rule.name}.txt").read_bytes()
