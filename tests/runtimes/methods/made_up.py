"""Made-up replies, passages and options, drawn by a seed and by what is asked alone: whatever the order and the time, they are the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import DEFAULTS, Match, Ranking, ScoredPassage, Searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.results import prediction_to_json
from wikidx.runtimes.llms.base import Call, Control, Gen, Generate, Mix, Score
from wikidx.runtimes.llms.prompts import Choice
from wikidx.runtimes.llms.scripted import Scripted, ScriptedLLM
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.methods.base import Method, list_options
from wikidx.runtimes.questions import Question

QUESTIONS = [
    Question(f"q{number}", text)
    for number, text in enumerate(["Which metal is liquid?", "who", "Ist Gold schwerer als Blei?", "Is Dune's author older than Asimov?"])
]
REPLIES = [
    *(
        "",
        "yes",
        "no",
        "Yes.",
        "true",
        "unknown",
        "SUPPORTS",
        "No, because [1] says so.",
        "[1] [2]",
        "relevant: 1, 3",
        "Ω 東京 🙂",
        "a " * 40,
    ),
    *("Follow up: who is it?", "Intermediate answer: Mercury", "So the final answer is: gold", "So the answer is: Mercury."),
    *("Search[who]", "Lookup[metal]", "Thought: I search.\nAction: Search[Mercury]", "Action 1: Finish[lead]", "final answer: 42"),
    *('{"answer": "gold", "reason": "because"}', '{"answer": ', '["one", "two"]', "1. Who is it?\n2. What is #1?", "- a\n- b\n- c"),
    *("Answer: gold", "Mercury is liquid. It is a metal. So it is mercury.", "X is so.\nY is so.\nZ is so.", "The query: mercury metal"),
    '{"relevant": true, "relevant_reason": "so", "cite_list": [1], "cite": "[1]", "analysis": "Mercury [1]", "answer": "Mercury"}',
]


class MadeUpLLM(ScriptedLLM):
    """A model that replies anything to anything, and fails for a share of all calls."""

    def __init__(self, seed: int, failing: float) -> None:
        super().__init__(self._answer)
        self._seed, self._failing = seed, failing

    def _answer(self, call: Call) -> Scripted:
        rng = random.Random(f"{self._seed} {call!r}")
        if rng.random() < self._failing:
            raise LLMError(f"made to fail: {rng.random()}")
        if isinstance(call, Score):
            return [rng.uniform(-1.5, 1.5) for _ in call.texts]
        if not isinstance(call, Generate | Mix):
            return rng.random()
        return [self._text(call, rng) for _ in range(call.n)]

    def _text(self, call: Generate | Mix, rng: random.Random) -> Gen:
        joined = rng.choice(["\n", " ", "\n\n"]).join(rng.choices(REPLIES, k=rng.choice([1, 1, 1, 2, 3])))
        if isinstance(call, Mix) or call.control:
            return Gen(text=joined, control=made_up_control(call.control, joined, rng) if isinstance(call, Generate) else ())
        text = rng.choice(call.schema.texts) if isinstance(call.schema, Choice) else joined
        logprobs = tuple(-rng.random() for _ in range(3)) if call.logprobs and rng.random() < 0.9 else None
        return Gen(text=text, finish=rng.choice(["stop", "stop", "length"]), logprobs=logprobs)


def made_up_control(tokens: Sequence[str], text: str, rng: random.Random) -> tuple[Control, ...]:
    """Draw distributions of control tokens at a text's first place, and perhaps at another."""
    return tuple(Control(place, tuple(-5 * rng.random() for _ in tokens)) for place in (0, len(text) // 2)[: rng.choice([1, 2])])


class MadeUpSearcher(Searcher):
    """A searcher that finds any passages, sometimes fewer than asked for, and refuses a share of all groups."""

    def __init__(self, seed: int, failing: float) -> None:
        self._seed, self._failing = seed, failing

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        return [self._search(group, options.k) for group in groups]

    def _search(self, group: Sequence[str], k: int) -> Ranking:
        rng = random.Random(f"{self._seed} {list(group)} {k}")
        if rng.random() < self._failing:
            raise InputError("a query is bad")
        found = rng.sample(range(40), rng.choice([k, k, k, max(0, k - 2), 0]))
        passages = [Passage(str(number), f"T{number}", f"Text {number}. Mercury is a metal. {rng.choice(REPLIES)}") for number in found]
        return Ranking(
            [ScoredPassage(each, rank, 1 / rank, (Match(group[0], "bm25", rank, 1 / rank),)) for rank, each in enumerate(passages, 1)],
            group,
        )


def made_up_page(title: str) -> list[Passage]:
    rng = random.Random(title)
    return [Passage(f"t{number}", title, f"Page {title}. {rng.choice(REPLIES)}") for number in range(rng.choice([0, 1, 2]))]


def made_up_options(method: Method, seed: int) -> dict[str, Any]:
    """Draw values of options that the method accepts; none for every fourth seed."""
    rng = random.Random(f"{method.name} {seed}")
    while seed % 4:
        drawn = {option.name: rng.choice(choices) for option in list_options(method.options()) if (choices := _values(option))}
        chosen = {name: value for name, value in drawn.items() if rng.random() < 0.4}
        if chosen.get("noise"):
            chosen["noise_questions"] = tuple(question.text for question in QUESTIONS)
        try:
            method.options(**chosen)
        except InputError:
            continue
        return chosen
    return {}


def _values(option: Any) -> Sequence[Any]:  # noqa: ANN401 - an option of any method
    if option.choices or isinstance(option.default, bool):
        return option.choices or (False, True)
    if option.name == "noise":
        return (0.0, 0.5)
    is_count = isinstance(option.default, int) and option.default <= 12
    return range(0 if option.name == "shots" else max(1, int(option.minimum or 0)), 3 if option.name == "shots" else 7) if is_count else ()


def made_up_similarity(pairs: Sequence[tuple[str, tuple[str, ...]]], encoder: str) -> list[tuple[float, ...]]:
    return [tuple(random.Random(f"{text} {other} {encoder}").uniform(-1, 1) for other in others) for text, others in pairs]


def transcripts(name: str, seed: int) -> list[dict[str, Any]]:
    """Return the predictions of a method for all questions as JSON, with all steps and without times; every fifth seed has errors."""
    method, failing = find_method(name), 0.04 * (seed % 5 == 4)
    options = method.options(**made_up_options(method, seed))
    llm, searcher = MadeUpLLM(seed, failing), MadeUpSearcher(seed, failing)
    llms = dict.fromkeys(method.roles, llm)
    services = Services(llms=llms, searcher=searcher, look_up_title=made_up_page, similarity=made_up_similarity)
    predictions = execute(lambda question: method.run(question, options), QUESTIONS, services, seed=seed, in_flight=1 + seed % 4)
    records = [prediction_to_json(prediction) for prediction in sorted(predictions, key=lambda prediction: prediction.id)]
    for record in records:
        del record["timing"]
        for step in record["steps"]:
            step.pop("seconds", None)
            step.pop("reused", None)
    return records
