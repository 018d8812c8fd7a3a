"""REPLUG: one prompt for each passage, and the next token always from the mean of all, weighted by the softmax of the passages' scores.

Shi et al., REPLUG: Retrieval-Augmented Black-Box Language Models, 2023 (arXiv 2301.12652), section 3.2; facts of ``swj0419/REPLUG``.
Its training of the retriever by the model's likelihoods (LSR, section 4) is not done here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from wikidx.base.validation import options
from wikidx.runtimes.llms.prompts import Decoding

from .base import Answer, Method, Preset, option
from .forms import FORMS, FormName, describe_forms
from .reading import ReadingOptions, reads_passages
from .requests import mix, rank
from .templates import format_passages, load_template
from .written_answers import answer_in_form, parse_answer


@options
class ReplugOptions(ReadingOptions):
    """Options of REPLUG."""

    form: FormName = option("short", "ours", describe_forms(FormName))
    k: int = option(10, "paper", "number of passages, each with a prompt of its own", minimum=1)
    shots: int = option(0, "ours", "number of demonstrations in the prompts (the paper: 16)")
    max_tokens: int | None = option(None, "ours", "maximum number of tokens of the answer; none: 256; long: 300; dialogue: 50", minimum=1)


def weigh(scores: Sequence[float]) -> tuple[float, ...]:
    """Return the softmax of scores; passages whose scores are unknown weigh the same."""
    if not all(map(math.isfinite, scores)):
        return (1 / len(scores),) * len(scores)
    powers = [math.exp(score - max(scores)) for score in scores]
    return tuple(power / math.fsum(powers) for power in powers)


@reads_passages
async def replug(question: str, options: ReplugOptions) -> Answer:
    """Answer from the mean over the passages; without passages, from the question."""
    hits = await rank(question, options.k)
    passages, weights = tuple(hit.passage for hit in hits), weigh([hit.score for hit in hits]) or (1.0,)
    template = load_template("replug", "answer", options.form)
    read = [format_passages([passage]) for passage in passages] or [format_passages([])]
    prompts = [template(passages=one, question=question, shots=options.shots) for one in read]
    gen = await mix(prompts, weights, Decoding(max_tokens=options.max_tokens or FORMS[options.form].max_tokens))
    return answer_in_form(parse_answer(gen), options.form, passages, weights=list(weights))


METHOD = Method(
    name="replug",
    summary="one prompt for each passage; each token from the mean of their distributions, weighted by the passages' scores",
    source="Shi et al., 2023",
    roles=("answer",),
    options=ReplugOptions,
    run=replug,
    presets={"default": Preset(corpus="wiki2018", retriever="contriever")},
    demonstrated=lambda options: ("answer",),
)
