"""Execution of a method without a model: stand-ins with made-up answers and passages, and a rehearsal before a run.

A dry run shows only one possible sequence of requests, because the next requests of a method depend on the answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import DEFAULTS, Match, Ranking, ScoredPassage, Searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.given import GivenPassages
from wikidx.runtimes.llms.base import LLM, AskYesNo, Call, Control, Gen, Generate, Mix, Score, Scores
from wikidx.runtimes.llms.prompts import Choice
from wikidx.runtimes.llms.scripted import Scripted, ScriptedLLM
from wikidx.runtimes.methods.base import Method
from wikidx.runtimes.questions import GivenPassage, Question

PASSAGE_TEXT = "<text of passage"
"""The beginning of the text of every made-up passage."""

REHEARSED_QUESTION = "which is it?"
"""The question of a rehearsal; its words are among those that some methods leave out of queries."""

# Different answers lead methods to different branches. The last two lead to searches.
_REHEARSAL_ANSWERS = ("", "yes", "no", "Follow up: who?", "Search[who]")


def stand_in_llm(text: str | None = None) -> ScriptedLLM:
    """Return a model that generates ``text``, by default the role and number of the call in angle brackets.

    If the text must be one of several choices, the model returns the first. P(yes) is 1 for the text "yes", 0 for "no", and otherwise 0.5.
    Control tokens have equal probabilities, and texts the scores 1, 1/2, 1/3, ….
    """
    n_calls = Counter[str]()
    p_yes = {"yes": 1.0, "no": 0.0}.get(text or "", 0.5)

    def answer(call: Call) -> Scripted:
        if isinstance(call, Score):
            return Scores(values=tuple(1.0 / rank for rank in range(1, len(call.texts) + 1)))
        if not isinstance(call, Generate | Mix):
            return p_yes if isinstance(call, AskYesNo) else 1.0
        if isinstance(call, Generate) and isinstance(call.schema, Choice):
            return [call.schema.texts[0]] * call.n
        if isinstance(call, Generate) and call.control:
            return Gen(text=text or "", control=(Control(0, (0.0,) * len(call.control)),))
        if text is not None:
            return [text] * call.n
        n_calls[call.role] += 1
        name = f"{call.role} {n_calls[call.role]}"
        return [f"<{name}>"] if call.n == 1 else [f"<{name}.{draw}>" for draw in range(1, call.n + 1)]

    return ScriptedLLM(answer, name="stand-in")


class StandInSearcher(Searcher):
    """A searcher that returns ``k`` made-up passages for any query. Their titles and texts state their ranks."""

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        """Return one ranking for each group."""
        return [Ranking(_stand_in_passage(rank, group[0]) for rank in range(1, options.k + 1)) for group in groups]


def stand_in_passages(title: str) -> list[Passage]:
    """Return one made-up passage that has the title."""
    return [Passage("1", title, f"{PASSAGE_TEXT} 1>")]


def _stand_in_passage(rank: int, query: str) -> ScoredPassage:
    passage = Passage(str(rank), f"<title {rank}>", f"{PASSAGE_TEXT} {rank}>")
    return ScoredPassage(passage, rank - 1, 1 / rank, (Match(query, "stand-in", rank, 1 / rank),))


def stand_in_services(roles: Iterable[str], llm: LLM) -> Services:
    """Return a model for all roles, and stand-ins for all else."""
    return Services(
        llms=dict.fromkeys(roles, llm), searcher=StandInSearcher(), look_up_title=stand_in_passages, similarity=stand_in_similarity
    )


def stand_in_similarity(pairs: Sequence[tuple[str, tuple[str, ...]]], encoder: str) -> list[tuple[float, ...]]:
    """Return 1 for each text that equals the one that it is compared with, and 0 for others."""
    del encoder
    return [tuple(float(text == other) for other in others) for text, others in pairs]


def rehearse(method: Method, options: Any, *, searcher: Searcher | None, can_look_up: bool) -> None:  # noqa: ANN401 - the method's own options
    """Run a method with stand-ins on a made-up question, to find errors that would occur for every question.

    Raises:
        InputError: an option has an unusable value, or the method needs a title lookup or a search that is not available, or that the
            searcher refuses.
    """
    look_up_title = stand_in_passages if can_look_up else None
    for text in _REHEARSAL_ANSWERS:
        llms = dict.fromkeys(method.roles, stand_in_llm(text))
        services = Services(llms=llms, searcher=searcher, look_up_title=look_up_title, similarity=stand_in_similarity)
        try:
            (prediction,) = execute(lambda question: method.run(question, options), [Question("rehearsal", REHEARSED_QUESTION)], services)
        except ValueError as error:
            raise InputError(f"'{method.name}' cannot run with these options: {error}") from error
        if prediction.error is not None:
            raise InputError(f"'{method.name}' cannot run: {prediction.error.partition(': ')[2]}")


def rehearsed_passages(given: GivenPassages) -> GivenPassages:
    """Return the passages that are given with questions, and made-up ones for the question of a rehearsal."""
    made_up = tuple(GivenPassage(_stand_in_passage(rank, REHEARSED_QUESTION).passage) for rank in range(1, 6))
    return GivenPassages({**given.passages, REHEARSED_QUESTION: made_up})
