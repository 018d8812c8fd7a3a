"""CRAG: an evaluator scores the retrieved passages; by its scores they are refined, left out, or both; then the question is answered.

Yan et al., Corrective Retrieval Augmented Generation, 2024 (arXiv 2401.15884), sections 4.2 to 4.4; facts of ``HuskyInSalt/CRAG``, whose
evaluator is a T5-large with one label. The paper searches the web where the passages are not right: here nothing replaces them. Strips are
read best first, as in that code; the paper joins them "in order".
"""

from __future__ import annotations

from typing import Literal

from wikidx.base.validation import options
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.prompts import Decoding

from .base import Answer, Method, Preset, option
from .forms import FORMS, FormName, describe_forms
from .reading import ReadingOptions, reads_passages
from .requests import ask_yes_no, gather, generate, label, note, retrieve, score
from .sentences import split_sentences
from .templates import load_template
from .written_answers import answer_in_form, parse_answer

EVALUATOR = "evaluator"
_SEPARATOR = " [SEP] "  # between question and text, in the evaluator's input
_LEAST_WORDS = 4  # as in the authors' code, a shorter strip has the score -1

Action = Literal["correct", "incorrect", "ambiguous"]


@options
class CragOptions(ReadingOptions):
    """Options of CRAG."""

    form: FormName = option("short", "ours", describe_forms(FormName))
    k: int = option(10, "paper", "number of passages", minimum=1)
    evaluate: Literal["score", "yes_no"] = option(
        "score", "paper", "score: the role evaluator is a classifier; yes_no: a language model, whose P(yes) is mapped to [-1, 1]"
    )
    upper: float = option(
        0.59, "paper", "score from which a passage is right (PopQA; PubHealth, ARC: 0.5; biographies: 0.95)", minimum=-100
    )
    lower: float = option(-0.99, "paper", "score below which it is wrong (PopQA; the others: -0.91)", minimum=-100)
    strip_sentences: int = option(3, "authors' code", "number of sentences of a strip", minimum=1)
    n_strips: int = option(5, "paper", "maximum number of strips that are read", minimum=1)
    strip_score: float = option(-0.5, "paper", "score below which a strip is left out", minimum=-100)
    shots: int = option(0, "ours", "number of demonstrations in the prompt that answers")
    max_tokens: int | None = option(None, "ours", "maximum number of tokens of the answer; none: 256; long: 300; dialogue: 50", minimum=1)


def choose_action(scores: tuple[float, ...], upper: float, lower: float) -> Action:
    """Return what the scores of the passages say: correct if one reaches ``upper``, incorrect if none reaches ``lower``."""
    best = max(scores, default=lower - 1)
    return "correct" if best >= upper else "ambiguous" if best >= lower else "incorrect"


@reads_passages
async def crag(question: str, options: CragOptions) -> Answer:
    """Answer from the strips of right or doubtful passages; without any if all are wrong."""
    passages = await retrieve(question, options.k)
    with label("evaluate"):
        scores = await _evaluate(question, [passage.text for passage in passages], options)
    action = choose_action(scores, options.upper, options.lower)
    await note(action, {"scores": [round(each, 6) for each in scores], **({} if action == "correct" else {"web": "not searched"})})
    with label("refine"):
        strips = [] if action == "incorrect" else await _refine(question, passages, options)
    prompt = load_template("crag", "answer", options.form)(
        knowledge="\n".join(strip for strip, _ in strips), question=question, shots=options.shots
    )
    draft = parse_answer(await generate(prompt, Decoding(max_tokens=options.max_tokens or FORMS[options.form].max_tokens)))
    detail = {"action": action, "scores": list(scores), "strips": [strip for strip, _ in strips]}
    return answer_in_form(draft, options.form, tuple(dict.fromkeys(passage for _, passage in strips)), **detail)


async def _refine(question: str, passages: tuple[Passage, ...], options: CragOptions) -> list[tuple[str, Passage]]:
    """Return the best strips of the passages, best first, each with its passage."""
    strips = [(strip, passage) for passage in passages for strip in split_strips(passage.text, options.strip_sentences)]
    long = [number for number, (strip, _) in enumerate(strips) if len(strip.split()) >= _LEAST_WORDS]
    scores = dict.fromkeys(range(len(strips)), -1.0) | dict(
        zip(long, await _evaluate(question, [strips[number][0] for number in long], options), strict=True)
    )
    best = sorted(scores, key=lambda number: -scores[number])[: options.n_strips]
    return [strips[number] for number in best if scores[number] >= options.strip_score]


def split_strips(text: str, n_sentences: int) -> list[str]:
    """Return the strips of a text: so many sentences each, the last perhaps fewer."""
    sentences = split_sentences(text)
    return [" ".join(sentences[start : start + n_sentences]) for start in range(0, len(sentences), n_sentences)]


async def _evaluate(question: str, texts: list[str], options: CragOptions) -> tuple[float, ...]:
    if options.evaluate == "score":
        return await score("", [f"{question}{_SEPARATOR}{text}" for text in texts], role=EVALUATOR)
    template = load_template("crag", "evaluate")
    answers = await gather(*(ask_yes_no(template(question=question, text=text), role=EVALUATOR) for text in texts))
    return tuple(0.0 if answer.score is None else 2 * answer.score - 1 for answer in answers)


METHOD = Method(
    name="crag",
    summary="score the passages; answer from the best strips of right ones, from none of wrong ones",
    source="Yan et al., 2024",
    roles=("answer", EVALUATOR),
    options=CragOptions,
    run=crag,
    presets={"default": Preset(corpus="wiki2018", retriever="contriever")},
    demonstrated=lambda options: ("answer",),
)
