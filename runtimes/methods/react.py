"""ReAct: alternating thoughts, actions and observations; actions open pages by title, look words up in them, or finish.

Yao et al., ReAct: Synergizing Reasoning and Acting in Language Models, 2023 (arXiv 2210.03629). The corpus replaces Wikipedia: a page
consists of all passages of a title, and similar titles are those of the passages found by searching for a title.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.corpora.validation import options
from wikidx.runtimes.llms.base import Chat, Decoding, Message, Span

from .base import Answer, Method, Preset, option
from .model_output import first_line
from .requests import Run, generate, look_up, named, retrieve
from .sentences import spans, words
from .templates import template

_THOUGHT = re.compile(r"\s*\**Thought(?: \d+)?\**\s*:[\s*]*", re.IGNORECASE)
_ACTION = re.compile(r"(?:^|\n)[ \t*]*Action(?: \d+)?\**[ \t]*:[ \t*]*", re.IGNORECASE)
_COMMAND = re.compile(r"\b(search|lookup|finish)\s*\[((?:[^\[\]\n]|\[[^\[\]\n]*\])*)", re.IGNORECASE)  # may contain one level of brackets


@options
class ReactOptions:
    """Options: number of steps, and the behaviour of Search."""

    max_steps: int = option(7, "paper", "steps of a thought, an action and an observation", least=1)
    at_limit: Literal["empty", "answer"] = option(
        "empty",
        "paper",
        "when the steps are used up: the answer is empty, or the model is asked for one",
    )
    page_sentences: int = option(5, "paper", "sentences that Search shows of a page, from its start", least=1)
    similar_titles: int = option(5, "paper", "similar titles that Search names where there is no page", least=1)
    k: int = option(20, "proposed", "passages whose titles are the similar ones", least=1)
    fold_titles: bool = option(True, "proposed", "a similar title that differs in case and punctuation alone is the page's")
    shots: int = option(6, "paper", "demonstrations before the question")
    max_tokens: int = option(100, "paper", "tokens of a thought with its action", least=1)


class _Step(NamedTuple):
    """One turn.

    Attributes:
        thought, action, observation: as in the prompt.
        answer: of Finish; None: not finished.
        well_formed: whether one reply had thought and action, and the action is valid.
    """

    thought: str
    action: str
    observation: str = ""
    answer: str | None = None
    well_formed: bool = True


class _Sentence(NamedTuple):
    """A sentence of a page, and the passages that contain it."""

    text: str
    passages: tuple[Passage, ...]


@dataclass(slots=True, kw_only=True)
class _Reading:
    """The open page, and the passages read so far.

    Attributes:
        page: its sentences; empty before a page is opened.
        keyword: the last keyword looked up in it.
        n_shown: number of sentences shown for the keyword.
        read: passages of which a sentence was shown.
    """

    page: list[_Sentence] = field(default_factory=list)
    keyword: str = ""
    n_shown: int = 0
    read: dict[Passage, None] = field(default_factory=dict)

    def open(self, page: list[_Sentence]) -> None:
        """Open a page and reset the lookup."""
        self.page, self.keyword, self.n_shown = page, "", 0

    def show(self, sentences: Sequence[_Sentence]) -> str:
        """Return sentences as an observation, and record their passages."""
        self.read.update(dict.fromkeys(passage for sentence in sentences for passage in sentence.passages))
        return " ".join(sentence.text for sentence in sentences)


def react(question: str, options: ReactOptions) -> Run[Answer]:
    """Think and act until Finish or the last step; ``detail`` holds every step."""
    begun = template("react", "solve")(question=question, shots=options.shots)
    reading, steps = _Reading(), list[_Step]()
    answer: str | None = None
    while answer is None and len(steps) < options.max_steps:
        steps.append((yield from named(f"step {len(steps) + 1}", _step(begun, steps, reading, options))))
        answer = steps[-1].answer
    is_finished = answer is not None
    if not is_finished and options.at_limit == "answer":
        answer = yield from named("last step", _forced(begun, steps, options))
    n_malformed = sum(not step.well_formed for step in steps)
    detail = {
        "steps": [{name: value for name, value in step._asdict().items() if name != "answer"} for step in steps],
        "ended": "finish" if is_finished else "max_steps",
        "n_malformed": n_malformed,
        "parse_ok": is_finished and not n_malformed,
    }
    return Answer(answer or "", tuple(reading.read), detail)


def _step(begun: Chat, steps: Sequence[_Step], reading: _Reading, options: ReactOptions) -> Run[_Step]:
    """Let the model think and act, and carry out the action. If it names none, it is asked for one."""
    number = len(steps) + 1
    prompt = _prompt(begun, steps, f"Thought {number}:")
    written = yield from generate(prompt, Decoding(max_tokens=options.max_tokens, stop=("\nObservation",)))
    text = written.text[found.end() :] if (found := _THOUGHT.match(written.text)) else written.text
    thought, *actions = _ACTION.split(text, maxsplit=1)
    if not actions:
        thought = first_line(text)
        prompt = _prompt(begun, steps, f"Thought {number}: {thought}\nAction {number}:")
        again = yield from generate(prompt, Decoding(max_tokens=options.max_tokens, stop=("\n",)))
        action = _ACTION.split(again.text, maxsplit=1)[-1] or again.text
    else:
        action = actions[0]
    step = _Step(" ".join(thought.split()), first_line(action), well_formed=bool(actions))
    return (yield from _done(step, reading, options))


def _done(step: _Step, reading: _Reading, options: ReactOptions) -> Run[_Step]:
    """Carry out an action; one without a command or with a blank argument has no effect."""
    place = _COMMAND.search(step.action)
    name, argument = (place[1].lower(), " ".join(place[2].split())) if place else ("", "")
    unquoted = argument.strip("\"' ")
    if not unquoted:
        return step._replace(observation=f"Invalid action: {step.action}".rstrip(), well_formed=False)
    if name == "finish":
        return step._replace(answer=argument)
    if name == "lookup":
        return step._replace(observation=_looked_up(unquoted, reading))
    return step._replace(observation=(yield from _searched(unquoted, reading, options)))


def _searched(title: str, reading: _Reading, options: ReactOptions) -> Run[str]:
    """Open the page of a title and show its beginning; if there is none, list similar titles and keep the open page."""
    found = yield from look_up(title)
    if not found:
        hits = yield from retrieve(title, options.k)
        similar = [one for one in dict.fromkeys(passage.title for passage in hits) if one.strip()]
        same = [one for one in similar if options.fold_titles and words(one) == words(title)]
        if not same:
            named_ones = f" Similar: [{', '.join(similar[: options.similar_titles])}]." if similar else ""
            return f"Could not find {title}.{named_ones}"
        found = yield from look_up(same[0])
    reading.open(_page(found))
    return reading.show(reading.page[: options.page_sentences]) or "The page is empty."


def _looked_up(keyword: str, reading: _Reading) -> str:
    """Show the next sentence of the page with a keyword, ignoring case."""
    if keyword != reading.keyword:
        reading.keyword, reading.n_shown = keyword, 0
    found = [sentence for sentence in reading.page if keyword.casefold() in sentence.text.casefold()]
    if reading.n_shown >= len(found):
        return "No more results."
    reading.n_shown += 1
    return f"(Result {reading.n_shown} / {len(found)}) {reading.show([found[reading.n_shown - 1]])}"


def _page(passages: Sequence[Passage]) -> list[_Sentence]:
    """Join a page's passages and split it into sentences, which may span passages."""
    pieces = [f"{passage.text} " for passage in passages]
    text, ends = "".join(pieces), list(itertools.accumulate(map(len, pieces)))
    return [
        _Sentence(" ".join(text[start:end].split()), tuple(passages[bisect_right(ends, start) : bisect_left(ends, end) + 1]))
        for start, end in spans(text)
    ]


def _forced(begun: Chat, steps: Sequence[_Step], options: ReactOptions) -> Run[str]:
    """Let the model complete a forced last Finish."""
    number = len(steps) + 1
    prompt = _prompt(begun, steps, f"Action {number}: Finish[")
    written = yield from generate(prompt, Decoding(max_tokens=options.max_tokens, stop=("\nObservation",)))
    restated = _COMMAND.search(written.text)
    return restated[2].strip() if restated else first_line(written.text.partition("]")[0])


def _prompt(begun: Chat, steps: Sequence[_Step], then: str) -> Chat:
    """Return the conversation so far; observations may be cut for it to fit."""
    content, observed = "", list[Span]()
    for number, step in enumerate(steps, 1):
        content += f"Thought {number}: {step.thought}\nAction {number}: {step.action}\nObservation {number}: "
        observed.append((len(content), len(content) + len(step.observation)))
        content += f"{step.observation}\n"
    return (*begun, Message("assistant", content + then, tuple(span for span in observed if span[0] < span[1])))


METHOD = Method(
    name="react",
    summary="think, open pages and look words up in them, in turns, until an answer is found",
    source="ReAct, arXiv 2210.03629",
    roles=("answer",),
    options=ReactOptions,
    run=react,
    presets={"default": Preset(corpus="wiki2018", retriever="bm25")},
)
