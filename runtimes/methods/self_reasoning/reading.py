"""Retrieval of the passages of the prompt, with noise or in random order for the paper's robustness experiments."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from wikidx.corpora.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.runtimes.methods.requests import Run, gather, retrieve

from .options import SelfReasoningOptions


def read_passages(question: str, options: SelfReasoningOptions) -> Run[tuple[tuple[Passage, ...], frozenset[str]]]:
    """Retrieve the passages of the prompt.

    If the option ``noise`` is above 0, passages of another question replace this fraction of the passages. If the option ``shuffle`` is on,
    the order is random. The option ``seed`` and the question determine all random choices.

    Returns:
        The passages in the order of the prompt, and the ids of noise passages.

    Raises:
        InputError: noise is requested, but ``noise_questions`` has no other question.
    """
    rng = random.Random(f"{options.seed}:{question}")
    queries = [question]
    if options.noise:
        others = [other for other in options.noise_questions if other != question]
        if not others:
            raise InputError(
                f"noise needs the passages of another question, but noise_questions holds only '{question:.80}': give another question"
            )
        queries.append(rng.choice(others))
    passages, *noise = yield from gather(retrieve(query, options.k) for query in queries)
    replacements = _draw_noise(passages, noise[0], options.noise, rng) if noise else {}
    mixed = tuple(replacements.get(position, passage) for position, passage in enumerate(passages))
    shuffled = tuple(rng.sample(mixed, len(mixed))) if options.shuffle else mixed
    return shuffled, frozenset(passage.id for passage in replacements.values())


def _draw_noise(passages: Sequence[Passage], noise: Sequence[Passage], fraction: float, rng: random.Random) -> dict[int, Passage]:
    """Draw noise passages that are not among the question's own, keyed by the positions of the passages that they replace."""
    own_ids = {passage.id for passage in passages}
    candidates = [passage for passage in noise if passage.id not in own_ids]
    n_replaced = min(math.floor(len(passages) * fraction + 0.5), len(candidates))
    positions = rng.sample(range(len(passages)), n_replaced)
    return dict(zip(positions, rng.sample(candidates, n_replaced), strict=True))
