"""SKR: retrieve only for questions that the model does not know, by its knowledge of questions that it has met before.

Wang et al., Self-Knowledge Guided Retrieval Augmentation for Large Language Models, 2023 (arXiv 2310.05002, section 3), and the authors'
code (``THUNLP-MT/SKR``). Self-knowledge is a file of training questions, each with the status "ir better" (right with passages alone), "ir
worse" (right without passages alone) or "same"; ``knn`` leaves the last out, as the code does, where the paper (equation 4) counts
questions that both answer rightly as known.

Deviations: the encoder is one of idx, not SimCSE; the classifier is a language model that answers yes or no, not BERT; prompts are
answered by probabilities, not by words. Questions are answered as by ``cot`` and by one round of ``iter_retgen``, or by ``direct`` and
``rag``.
"""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Any, Literal, NamedTuple

from wikidx.base.artifacts.durable import parse_json
from wikidx.base.errors import InputError
from wikidx.base.validation import options
from wikidx.corpora.reading.compression import read_text

from .base import Answer, Method, Preset, option
from .cot import CotOptions, cot
from .direct import DirectOptions, direct
from .forms import LineFormName, describe_forms
from .iter_retgen import IterRetGenOptions, iter_retgen
from .model_output import fold_keys
from .rag import RagOptions, rag
from .reading import ReadingOptions, reads_passages
from .requests import ask_yes_no, compare, label
from .templates import SHOTS, load_template, parse_shots, read_prompt

BETTER, WORSE, SAME = "ir better", "ir worse", "same"
_STATUS_OF_NEED = {"yes": BETTER, "no": WORSE}


@options
class SkrOptions(ReadingOptions):
    """Options of SKR."""

    form: LineFormName = option("short", "ours", describe_forms(LineFormName))
    elicit: Literal["knn", "prompt", "icl", "classifier"] = option(
        "knn",
        "paper",
        "what decides; knn: the most similar questions of the self-knowledge; prompt: the model, asked; icl: the model, with "
        "demonstrations; classifier: a model trained to answer yes, if passages are needed, or no",
    )
    self_knowledge: str = option(
        "",
        "ours",
        "JSON file of questions with their status, of 'idx eval self-knowledge' or the authors' code; empty: icl's demonstrations",
    )
    neighbours: int = option(5, "authors' code", "k: number of similar questions; the code tries 5 to 10, the paper 3 to 10", minimum=1)
    rule: Literal["ratio", "margin"] = option(
        "ratio",
        "paper",
        "what the neighbours decide; ratio: known if known to unknown ones are at least as all known to all unknown; margin: the authors' "
        "code: the commoner status of all, unless the other leads among the neighbours by its share",
    )
    encoder: str = option("minilm", "ours", "encoder that finds similar questions")
    knowledge_shots: int = option(4, "ours", "number of demonstrations of icl")
    output: Literal["cot", "answer"] = option(
        "cot", "paper", "output; cot: a chain of thought that ends with the answer; answer: the answer alone"
    )
    k: int = option(3, "paper", "number of passages", minimum=1)
    shots: int = option(4, "paper", "number of demonstrations in the prompts that answer")
    max_tokens: int = option(256, "ours", "maximum number of tokens of an output", minimum=1)


class _Neighbour(NamedTuple):
    """A question of the self-knowledge, its status, and its similarity."""

    question: str
    status: str
    similarity: float


@reads_passages
async def skr(question: str, options: SkrOptions) -> Answer:
    """Decide whether passages are needed, and answer with or without them."""
    with label("self-knowledge"):
        needs_passages, reason = await _elicit(question, options)
    answer = await _answer(question, options, reads=needs_passages)
    return answer._replace(detail={"retrieved": needs_passages, **reason, **answer.detail})


async def _elicit(question: str, options: SkrOptions) -> tuple[bool, dict[str, Any]]:
    """Return whether passages are needed, and the reason as JSON values. An unknown probability is a need."""
    if options.elicit == "knn":
        found = await _neighbours(question, options)
        known = read_self_knowledge(options.self_knowledge)
        needs = _RULES[options.rule](Counter(each.status for each in found), Counter(status for _, status in known), options.neighbours)
        return needs, {"neighbours": [each._asdict() for each in found]}
    name = "classify" if options.elicit == "classifier" else "need"
    prompt = load_template("skr", name)(question=question, shots=options.knowledge_shots if options.elicit == "icl" else 0)
    score = (await ask_yes_no(prompt, role="knowledge")).score
    return score is None or score > 1 / 2, {"need": score}


async def _neighbours(question: str, options: SkrOptions) -> list[_Neighbour]:
    """Return the most similar questions whose status is not "same", the most similar first."""
    stored = [(other, status) for other, status in read_self_knowledge(options.self_knowledge) if status != SAME]
    cosines = await compare(question, [other for other, _ in stored], options.encoder)
    found = [_Neighbour(other, status, cosine) for (other, status), cosine in zip(stored, cosines, strict=True)]
    return sorted(found, key=lambda each: -each.similarity)[: options.neighbours]


def needs_by_ratio(near: Counter[str], known: Counter[str], k: int) -> bool:
    """Return whether l / (k - l) < |D+| / |D-|, of l known neighbours (section 3.2)."""
    del k
    return near[WORSE] * known[BETTER] < near[BETTER] * known[WORSE]


def needs_by_margin(near: Counter[str], known: Counter[str], k: int) -> bool:
    """Return what ``knn.py`` of the authors decides."""
    lead = known[WORSE] - known[BETTER]
    margin = int(abs(lead) * k / max(1, known.total()))
    of_others = near[WORSE] - near[BETTER] if lead > 0 else near[BETTER] - near[WORSE]
    exceeds = of_others > 0 and of_others >= margin
    return not exceeds if lead > 0 else exceeds


_RULES = {"ratio": needs_by_ratio, "margin": needs_by_margin}


def read_self_knowledge(file: str) -> tuple[tuple[str, str], ...]:
    """Return (question, status) of each question of a file; of the demonstrations of icl without one.

    Raises:
        InputError: the file cannot be read, or has no such questions.
    """
    if not file:
        return _read_demonstrations(read_prompt("skr", f"need{SHOTS}"))
    path = Path(file)
    return _read_file(path, path.stat().st_mtime_ns if path.is_file() else 0)


@functools.cache
def _read_demonstrations(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((shot["question"], _STATUS_OF_NEED[shot["output"]]) for shot in parse_shots(text)[1])


@functools.lru_cache(4)
def _read_file(path: Path, _: int) -> tuple[tuple[str, str], ...]:
    """Return the questions of a JSON array, or of lines of JSON; anew when the file has changed."""
    text = read_text(path)
    try:
        records = parse_json(text) if text.lstrip().startswith("[") else [parse_json(line) for line in text.splitlines() if line.strip()]
        folded = [fold_keys(record) for record in records]
        read = tuple((str(record["question"]), str(record["status"]).strip()) for record in folded)
    except (ValueError, KeyError) as error:
        raise InputError(f"{path}: self-knowledge is a list of objects with 'question' and 'status' ({error})") from None
    if odd := next((status for _, status in read if status not in (BETTER, WORSE, SAME)), None):
        raise InputError(f"{path}: the status is '{odd:.40}', not '{BETTER}', '{WORSE}' or '{SAME}'")
    return read


async def _answer(question: str, options: SkrOptions, *, reads: bool) -> Answer:
    shared: dict[str, Any] = {"form": options.form, "shots": options.shots, "max_tokens": options.max_tokens}
    if options.output == "answer":
        return await (rag(question, RagOptions(k=options.k, **shared)) if reads else direct(question, DirectOptions(**shared)))
    if reads:
        return await iter_retgen(question, IterRetGenOptions(rounds=1, k=options.k, **shared))
    return await cot(question, CotOptions(**shared))


METHOD = Method(
    name="skr",
    summary="retrieve only for questions that the model does not know, by similar questions or by asking it",
    source="SKR, arXiv 2310.05002",
    roles=("answer", "knowledge"),
    options=SkrOptions,
    run=skr,
    parts=("cot", "direct", "iter_retgen", "rag"),
    presets={"default": Preset(corpus="wiki2018", retriever="dpr")},
)
