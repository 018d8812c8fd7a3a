"""Options of every search of a method that reads passages: expansion of its query (``expansion``), noise and random order.

Noise is the robustness experiment of Self-Reasoning (arXiv 2407.19813, figure 3), whose noise are passages of another question.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast

from wikidx.base.errors import InputError
from wikidx.base.validation import options
from wikidx.retrievers.base import Ranking, ScoredPassage

from .base import Answer, option
from .expansion import KINDS, expand
from .requests import Retrieve, gather, labelled, search_by, send

NOISE, EXPANSION = "noise", "expansion"
"""Labels, in the trace, of searches for noise, and of what writes queries."""

O = TypeVar("O", bound="ReadingOptions")  # noqa: E741 - options


@options
class ReadingOptions:
    """Options of all methods that read retrieved passages.

    Raises:
        InputError: there is noise without questions that it comes from.
    """

    expand: Literal["none", "hyde", "rewrites"] = option(
        "none",
        "ours",
        "what the first query of each search gets added; hyde: hypothetical passages that answer it (arXiv 2212.10496); rewrites: other "
        "wordings of it; the role 'answer' writes them",
    )
    expansions: int | None = option(None, "ours", "number of added queries; none: 8 passages (hyde), 3 wordings (rewrites)", minimum=1)
    shuffle: bool = option(False, "ours", "put the passages of each search in random order (Self-Reasoning, figure 3)")
    noise: float = option(
        0.0,
        "ours",
        "fraction of the passages of each search replaced by passages of another question; halves are rounded up (Self-Reasoning, figure "
        "3: 0.5)",
        maximum=1,
    )
    noise_questions: tuple[str, ...] = option(
        (), "ours", "questions whose passages serve as noise; idx run takes all questions of its file"
    )
    seed: int = option(0, "ours", "random seed of order and noise, combined with question and query")

    def __post_init__(self) -> None:
        """Check combinations of values."""
        if self.noise and not self.noise_questions:
            raise InputError(f"noise is {self.noise:g}, but nothing says where it comes from: give noise_questions")


def reads_passages(run: Callable[[str, O], Coroutine[Any, Any, Answer]]) -> Callable[[str, O], Coroutine[Any, Any, Answer]]:
    """Decorate a method whose options are ``ReadingOptions``, so that they hold for all its searches.

    ``detail["noise"]`` has the ids of noise passages, if noise is requested.

    Raises:
        InputError: noise is requested, but ``noise_questions`` has no other question.
    """

    @functools.wraps(run)
    async def read(question: str, options: O) -> Answer:
        if not options.noise and not options.shuffle and options.expand == "none":
            return await run(question, options)
        noise = set[str]()
        with search_by(lambda request: _search(request, question, options, noise)):
            answer = await run(question, options)
        return answer._replace(detail={**answer.detail, "noise": sorted(noise)}) if options.noise else answer

    return read


async def _search(request: Retrieve, question: str, options: ReadingOptions, noise: set[str]) -> Ranking:
    """Search, and return the passages with noise and in random order; ``noise`` gets the ids of noise passages."""
    query = " ".join(request.queries)
    rng = random.Random(f"{options.seed}:{question}" if query == question else f"{options.seed}:{question}:{query}")
    others = [replace(request, queries=(_other_question(question, options, rng),))] if options.noise else []
    hits, *other_hits = await gather(_search_expanded(request, options), *(labelled(NOISE, send(other)) for other in others))
    replacements = _draw_noise(hits, other_hits[0], options.noise, rng) if other_hits else {}
    noise.update(hit.id for hit in replacements.values())
    mixed = [replacements.get(position, hit) for position, hit in enumerate(hits)]
    return Ranking(rng.sample(mixed, len(mixed)) if options.shuffle else mixed, hits.queries)


async def _search_expanded(request: Retrieve, options: ReadingOptions) -> Ranking:
    """Search with the queries of a request and what its first one is expanded to."""
    if options.expand != "none":
        added = await labelled(EXPANSION, expand(request.queries[0], options.expand, options.expansions))
        merge = request.merge or KINDS[options.expand].merge
        request = replace(request, queries=(*request.queries, *added), merge=merge)
    return cast("Ranking", await send(request))


def _other_question(question: str, options: ReadingOptions, rng: random.Random) -> str:
    others = [other for other in options.noise_questions if other != question]
    if not others:
        raise InputError(
            f"noise needs the passages of another question, but noise_questions holds only '{question:.80}': give another question"
        )
    return rng.choice(others)


def _draw_noise(
    hits: Sequence[ScoredPassage], others: Sequence[ScoredPassage], share: float, rng: random.Random
) -> dict[int, ScoredPassage]:
    """Draw noise passages that are not among the question's own, keyed by the positions of the passages that they replace."""
    own_ids = {hit.id for hit in hits}
    candidates = [hit for hit in others if hit.id not in own_ids]
    n_replaced = min(math.floor(len(hits) * share + 0.5), len(candidates))
    positions = rng.sample(range(len(hits)), n_replaced)
    return dict(zip(positions, rng.sample(candidates, n_replaced), strict=True))
