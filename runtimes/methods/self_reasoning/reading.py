"""The passages of the prompt: those found with the question; for the robustness experiment, with noise or in random order."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from wikidx.corpora.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.runtimes.methods.requests import Run, retrieve, together

from .options import SelfReasoningOptions


def read_passages(question: str, options: SelfReasoningOptions) -> Run[tuple[tuple[Passage, ...], frozenset[str]]]:
    """Retrieve for the question and, if noise is requested, for another question at the same time.

    Returns:
        The passages in the order of the prompt, and the ids of those that are noise.

    Raises:
        InputError: noise is requested, and there is no other question.
    """
    chance = random.Random(f"{options.seed}:{question}")
    queries = [question]
    if options.noise:
        others = [other for other in options.noise_questions if other != question]
        if not others:
            raise InputError(f"no noise can be had: noise_questions holds nothing but '{question:.80}', give another question")
        queries.append(chance.choice(others))
    found, *noise = yield from together(retrieve(query, options.k) for query in queries)
    put_in = _noise(found, noise[0], options.noise, chance) if noise else {}
    read = tuple(put_in.get(place, passage) for place, passage in enumerate(found))
    shown = tuple(chance.sample(read, len(read))) if options.shuffle else read
    return shown, frozenset(passage.id for passage in put_in.values())


def _noise(found: Sequence[Passage], noise: Sequence[Passage], share: float, chance: random.Random) -> dict[int, Passage]:
    """Draw passages of another question that are not among the question's own, and the positions that they replace."""
    own = {passage.id for passage in found}
    strange = [passage for passage in noise if passage.id not in own]
    n_replaced = min(math.floor(len(found) * share + 0.5), len(strange))
    places = chance.sample(range(len(found)), n_replaced)
    return dict(zip(places, chance.sample(strange, n_replaced), strict=True))
