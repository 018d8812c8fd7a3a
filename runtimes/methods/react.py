"""ReAct: alternating thoughts, actions and observations.

Yao et al., ReAct: Synergizing Reasoning and Acting in Language Models, 2023 (arXiv 2210.03629).

An action opens a page by its title, looks up a keyword in the open page, or finishes with an answer. The corpus replaces Wikipedia: a page
consists of all passages with the same title. Similar titles are the titles of the passages retrieved with the requested title.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from wikidx.base.validation import options
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.prompts import Chat, Decoding, Message, Span

from .base import Answer, Method, Preset, option
from .forms import FORMS, LineFormName, describe_forms
from .model_output import drop_placeholder, first_line
from .requests import generate, label, look_up_title, retrieve
from .sentences import normalize_words, sentence_spans
from .templates import load_template

_THOUGHT = re.compile(r"\s*\**Thought(?: \d+)?\**\s*:[\s*]*", re.IGNORECASE)
_ACTION = re.compile(r"(?:^|\n)[ \t*]*Action(?: \d+)?\**[ \t]*:[ \t*]*", re.IGNORECASE)
_COMMAND = re.compile(r"\b(search|lookup|finish)\s*\[((?:[^\[\]\n]|\[[^\[\]\n]*\])*)", re.IGNORECASE)  # brackets may nest once

_MAX_INVALID = 150  # maximum number of characters of an invalid action in the prompt


@options
class ReactOptions:
    """Options of ReAct."""

    form: LineFormName = option("short", "ours", describe_forms(LineFormName))
    max_steps: int = option(7, "paper", "maximum number of steps; a step has a thought, an action and an observation", minimum=1)
    at_limit: Literal["empty", "answer"] = option(
        "empty",
        "authors' code",
        "answer after max_steps; empty: the empty answer; answer: an answer requested from the model",
    )
    page_sentences: int = option(5, "paper", "number of sentences that Search shows from the start of a page", minimum=1)
    similar_titles: int = option(5, "paper", "maximum number of similar titles that Search lists if there is no page", minimum=1)
    k: int = option(20, "ours", "number of retrieved passages whose titles count as similar", minimum=1)
    shots: int = option(
        6, "paper", "number of demonstrations in the prompt; the number is the paper's, the demonstrations are not; form=fever has 3"
    )
    max_tokens: int = option(100, "authors' code", "maximum number of tokens of a thought and its action", minimum=1)


class _Step(NamedTuple):
    """One thought with its action and observation.

    Attributes:
        thought, action, observation: the texts as shown in later prompts.
        answer: argument of Finish; None: the action is not Finish.
        well_formed: whether one reply contained both thought and action, and the action is valid.
    """

    thought: str
    action: str
    observation: str = ""
    answer: str | None = None
    well_formed: bool = True


class _Sentence(NamedTuple):
    """A sentence of a page, and the passages that contain all or part of it."""

    text: str
    passages: tuple[Passage, ...]


@dataclass(slots=True, kw_only=True)
class _Reading:
    """The open page, and the passages read so far.

    Attributes:
        page: sentences of the open page; empty before the first page is opened.
        keyword: the last keyword looked up in the page.
        n_shown: number of sentences shown for the keyword.
        read: the passages of all shown sentences, as keys.
    """

    page: list[_Sentence] = field(default_factory=list)
    keyword: str = ""
    n_shown: int = 0
    read: dict[Passage, None] = field(default_factory=dict)

    def open(self, page: list[_Sentence]) -> None:
        """Open a page and reset the lookup."""
        self.page, self.keyword, self.n_shown = page, "", 0

    def show(self, sentences: Sequence[_Sentence]) -> str:
        """Join sentences into an observation, and record the sentences' passages as read."""
        self.read.update(dict.fromkeys(passage for sentence in sentences for passage in sentence.passages))
        return " ".join(sentence.text for sentence in sentences)


async def react(question: str, options: ReactOptions) -> Answer:
    """Run steps until Finish or the step limit. The answer's ``detail`` records every step."""
    instructions = load_template("react", "solve", options.form)(question=question, shots=options.shots)
    reading, steps = _Reading(), list[_Step]()
    answer: str | None = None
    while answer is None and len(steps) < options.max_steps:
        with label(f"step {len(steps) + 1}"):
            steps.append(await _step(instructions, steps, reading, options))
        answer = steps[-1].answer
    is_finished = answer is not None
    if not is_finished and options.at_limit == "answer":
        with label("last step"):
            answer = await _force_answer(instructions, steps, options)
    n_malformed = sum(not step.well_formed for step in steps)
    final = FORMS[options.form].read(answer or "", 0)
    detail = {
        "steps": [{name: value for name, value in step._asdict().items() if name != "answer"} for step in steps],
        "stop_reason": "finish" if is_finished else "max_steps",
        "n_malformed": n_malformed,
        "parse_ok": bool(answer) and final.is_read and not n_malformed,
    }
    return Answer(final.text if answer else "", tuple(reading.read), detail)


async def _step(instructions: Chat, steps: Sequence[_Step], reading: _Reading, options: ReactOptions) -> _Step:
    """Generate a thought and an action, and execute the action. If the action is missing, a second call requests it."""
    number = len(steps) + 1
    prompt = _prompt(instructions, steps, f"Thought {number}:")
    output = await generate(prompt, Decoding(max_tokens=options.max_tokens, stop=("\nObservation",)))
    text = output.text[found.end() :] if (found := _THOUGHT.match(output.text)) else output.text
    thought, *actions = _ACTION.split(text, maxsplit=1)
    if not actions:
        thought = first_line(text)
        prompt = _prompt(instructions, steps, f"Thought {number}: {thought}\nAction {number}:")
        retry = await generate(prompt, Decoding(max_tokens=options.max_tokens, stop=("\n",)))
        action = _ACTION.split(retry.text, maxsplit=1)[-1] or retry.text
    else:
        action = actions[0]
    step = _Step(" ".join(thought.split()), first_line(action), well_formed=bool(actions))
    return await _act(step, reading, options)


async def _act(step: _Step, reading: _Reading, options: ReactOptions) -> _Step:
    """Execute a step's action, and return the completed step. Without a known command, or with a blank argument, an action is invalid."""
    command = _COMMAND.search(step.action)
    name, argument = (command[1].lower(), " ".join(command[2].split())) if command else ("", "")
    unquoted = drop_placeholder(argument.strip("\"' "))
    if not unquoted:
        action = textwrap.shorten(step.action, _MAX_INVALID, placeholder=" …")
        return step._replace(action=action, observation=f"Invalid action: {action}".rstrip(), well_formed=False)
    if name == "finish":
        return step._replace(answer=argument)
    if name == "lookup":
        return step._replace(observation=_look_up_keyword(unquoted, reading))
    return step._replace(observation=await _search(unquoted, reading, options))


async def _search(title: str, reading: _Reading, options: ReactOptions) -> str:
    """Open the page with a title and show its first sentences.

    If no page has the title, a similar title that differs only in case and punctuation is accepted. Without such a title, the observation
    lists the similar titles, and the open page stays open.
    """
    passages = await look_up_title(title)
    if not passages:
        hits = await retrieve(title, options.k)
        similar = [name for name in dict.fromkeys(passage.title for passage in hits) if name.strip()]
        same = [name for name in similar if normalize_words(name) == normalize_words(title)]
        if not same:
            suggestions = f" Similar: [{', '.join(similar[: options.similar_titles])}]." if similar else ""
            return f"Could not find {title}.{suggestions}"
        passages = await look_up_title(same[0])
    reading.open(_page(passages))
    return reading.show(reading.page[: options.page_sentences]) or "The page is empty."


def _look_up_keyword(keyword: str, reading: _Reading) -> str:
    """Show the open page's next sentence that contains the keyword, ignoring case."""
    if keyword != reading.keyword:
        reading.keyword, reading.n_shown = keyword, 0
    matches = [sentence for sentence in reading.page if keyword.casefold() in sentence.text.casefold()]
    if reading.n_shown >= len(matches):
        return "No more results."
    reading.n_shown += 1
    return f"(Result {reading.n_shown} / {len(matches)}) {reading.show([matches[reading.n_shown - 1]])}"


def _page(passages: Sequence[Passage]) -> list[_Sentence]:
    """Join a page's passages, and split the text into sentences. A sentence may span several passages."""
    texts = [f"{passage.text} " for passage in passages]
    text, ends = "".join(texts), list(itertools.accumulate(map(len, texts)))
    return [
        _Sentence(" ".join(text[start:end].split()), tuple(passages[bisect_right(ends, start) : bisect_left(ends, end) + 1]))
        for start, end in sentence_spans(text)
    ]


async def _force_answer(instructions: Chat, steps: Sequence[_Step], options: ReactOptions) -> str:
    """Begin a Finish action, and let the model complete its argument."""
    number = len(steps) + 1
    prompt = _prompt(instructions, steps, f"Action {number}: Finish[")
    output = await generate(prompt, Decoding(max_tokens=options.max_tokens, stop=("\nObservation",)))
    command = _COMMAND.search(output.text)
    return command[2].strip() if command else first_line(output.text.partition("]")[0])


def _prompt(instructions: Chat, steps: Sequence[_Step], ending: str) -> Chat:
    """Return the conversation so far, followed by ``ending``. The observations may be cut to fit the context."""
    content, spans = "", list[Span]()
    for number, step in enumerate(steps, 1):
        content += f"Thought {number}: {step.thought}\nAction {number}: {step.action}\nObservation {number}: "
        spans.append((len(content), len(content) + len(step.observation)))
        content += f"{step.observation}\n"
    return (*instructions, Message("assistant", content + ending, tuple(span for span in spans if span[0] < span[1])))


METHOD = Method(
    name="react",
    summary="alternate thoughts and actions (open a page, look up a word in it) until the model answers",
    source="ReAct, arXiv 2210.03629",
    roles=("answer",),
    options=ReactOptions,
    run=react,
    presets={"default": Preset(corpus="wiki2018", retriever="bm25")},
)
