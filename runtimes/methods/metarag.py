"""MetaRAG: rounds in which an answer is monitored, criticised and planned anew until an expert model's answer is similar.

Zhou et al., Metacognitive Retrieval-Augmented Large Language Models, 2024 (arXiv 2402.11626, section 4), and the authors' code
(``ignorejjj/MetaRAG``), which decides where the paper is silent.

The *monitor* compares the answer with that of an expert model (cosine of their vectors). The *critic* looks for basic errors in the answer,
and judges whether the model's own knowledge, and whether the passages, suffice. The *planner* turns its verdicts into advice for the next
answer: retrieve more with a new query, rely on one of both sources, or check the reasoning, if an NLI model says that it leads elsewhere.

Deviations: the critic says whether the passages suffice, as in the code, where the paper asks the NLI model; the judgements are yes/no
probabilities, where the code looks for "no" within generated text, also within "know"; the expert reads the passages, which its prompt in
the code leaves out by mistake; a new query is what follows the label, not what precedes it. The language model stands in for expert and NLI
model unless their roles have models of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from wikidx.base.validation import options
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.prompts import Decoding, JsonSchema, Prompt

from .base import Answer, Method, Preset, option
from .forms import FORMS, describe_forms
from .model_output import find_object, first_line, to_text
from .reading import ReadingOptions, reads_passages
from .requests import ask_yes_no, compare, gather, generate, label, retrieve
from .retrorag.answerer import Attempt, read_attempt
from .templates import format_passages, load_template, read_prompt
from .written_answers import parse_answer

_ADVICE = "advice.json"
_QUERY_CHARACTERS = 64  # of a new query, as in the authors' code
_EXPERT_TOKENS = 16  # as in the authors' code
_LABEL = re.compile(r".*\bquery(?: is)?\s*:?\s+", re.IGNORECASE)
_FAULTS = ("logic error", "off the question", "redundant")
_ANSWERED = JsonSchema.of_fields({"reason": {"type": "string"}, "answer": {"type": "string"}})
_CHECKED = JsonSchema.of_fields({"judgement": {"type": "string", "enum": [*_FAULTS, "correct"]}, "feedback": {"type": "string"}})


@options
class MetaRagOptions(ReadingOptions):
    """Options of MetaRAG."""

    form: Literal["short", "yes_no"] = option("short", "ours", describe_forms(Literal["short", "yes_no"]))
    k: int = option(5, "paper", "number of passages per search; passages of all searches stay", minimum=1)
    max_rounds: int = option(5, "paper", "maximum number of rounds of criticism (the code: 3); 0: the first answer is only monitored")
    threshold: float = option(0.4, "paper", "similarity to the expert's answer above which an answer is accepted (the code: 0.3)")
    encoder: str = option("minilm", "paper", "encoder that compares the two answers")
    shots: int = option(4, "authors' code", "number of demonstrations in the prompt of the answer")
    max_tokens: int = option(256, "authors' code", "maximum number of tokens of an answer with its reason, and of a criticism", minimum=1)


class _Verdicts(NamedTuple):
    """The critic's verdicts.

    Attributes:
        judgement, feedback: the error in the answer, or "correct", and what to do about it.
        internal, external: whether the model's own knowledge, and whether the passages, suffice.
        supported: whether the reason supports the answer; None: not asked.
    """

    judgement: str
    feedback: str
    internal: bool
    external: bool
    supported: bool | None = None

    @property
    def advice(self) -> str:
        """The planner's strategy: its name in ``advice.json``."""
        if self.internal and self.external:
            return "check_answer" if self.supported else "reason_in_steps"
        if self.internal:
            return "own_knowledge"
        return "passages_only" if self.external else "sub_questions"


@reads_passages
async def metarag(question: str, options: MetaRagOptions) -> Answer:
    """Answer, and answer again by the planner's advice, until the monitor accepts an answer or ``max_rounds`` are over."""
    passages = await retrieve(question, options.k)
    attempt = await _answer(question, passages, "", options)
    rounds = list[dict[str, Any]]()
    while True:
        with label(f"round {len(rounds) + 1}"):
            record = await _monitor(question, passages, attempt, options)
            rounds.append(record)
            if record["similarity"] > options.threshold or len(rounds) > options.max_rounds:
                break
            verdicts = await _criticise(question, passages, attempt, options)
            record |= {**verdicts._asdict(), "advice": verdicts.advice}
            if not verdicts.external:
                record["query"] = await _new_query(question, passages, attempt, options)
                passages = tuple(dict.fromkeys((*passages, *await retrieve(record["query"], options.k))))
            attempt = await _answer(question, passages, _advise(verdicts), options)
    answer = FORMS[options.form].read(attempt.answer, 0)
    accepted = rounds[-1]["similarity"] > options.threshold
    return Answer(answer.text, passages, {"accepted": accepted, "rounds": rounds, "parse_ok": attempt.parse_ok and answer.is_read})


async def _answer(question: str, passages: tuple[Passage, ...], advice: str, options: MetaRagOptions) -> Attempt:
    prompt = load_template("metarag", "answer", options.form)(
        passages=format_passages(passages), question=question, advice=advice, shots=options.shots
    )
    return read_attempt(prompt, await generate(prompt, Decoding(max_tokens=options.max_tokens), schema=_ANSWERED))


async def _monitor(question: str, passages: tuple[Passage, ...], attempt: Attempt, options: MetaRagOptions) -> dict[str, Any]:
    """Compare the answer with the expert's; an empty answer is similar to none."""
    prompt = load_template("metarag", "expert")(passages=format_passages(passages), question=question)
    expert = parse_answer(await generate(prompt, Decoding(max_tokens=_EXPERT_TOKENS), role="expert")).answer
    comparable = bool(attempt.answer and expert)
    similarity = (await compare(expert, [attempt.answer], options.encoder))[0] if comparable else 0.0
    return {"reason": attempt.reason, "answer": attempt.answer, "expert": expert, "similarity": similarity}


async def _criticise(question: str, passages: tuple[Passage, ...], attempt: Attempt, options: MetaRagOptions) -> _Verdicts:
    prompt = load_template("metarag", "check")(question=question, answer=attempt.answer)
    check = await generate(prompt, Decoding(max_tokens=options.max_tokens), role="critic", schema=_CHECKED)
    internal, external = await gather(
        _affirms(load_template("metarag", "internal")(question=question), "critic"),
        _affirms(load_template("metarag", "external")(question=question, passages=format_passages(passages)), "critic"),
    )
    fields = find_object(check.text, ("judgement", "feedback")).value
    judgement, feedback = to_text(fields.get("judgement")).casefold(), to_text(fields.get("feedback"))
    verdicts = _Verdicts(judgement if judgement in _FAULTS else "correct", feedback, internal, external)
    if not (internal and external):
        return verdicts
    entails = load_template("metarag", "entail")(reason=attempt.reason, answer=attempt.answer)
    return verdicts._replace(supported=await _affirms(entails, "nli"))


async def _affirms(prompt: Prompt, role: str) -> bool:
    """Return whether "yes" (or "1", as NLI models of the TRUE mixture write) is likelier than "no"; unknown counts as yes."""
    verdict = await ask_yes_no(prompt, role=role, positive=("yes", "1"), negative=("no", "0"))
    return verdict.score is None or verdict.score > 1 / 2


async def _new_query(question: str, passages: tuple[Passage, ...], attempt: Attempt, options: MetaRagOptions) -> str:
    prompt = load_template("metarag", "query")(passages=format_passages(passages), question=question, answer=attempt.answer)
    output = await generate(prompt, Decoding(max_tokens=options.max_tokens), role="critic")
    return _LABEL.sub("", first_line(output.text)).strip(" \"'")[:_QUERY_CHARACTERS].strip() or question


def _advise(verdicts: _Verdicts) -> str:
    """Return the strategy, and the critic's feedback or, without an error, a reminder."""
    advice: Mapping[str, str] = json.loads(read_prompt("metarag", _ADVICE))["advice"]
    hint = advice["in_steps"] if verdicts.judgement == "correct" else verdicts.feedback
    return "\n".join(filter(None, (advice[verdicts.advice], hint)))


METHOD = Method(
    name="metarag",
    summary="answer, compare with an expert's answer, criticise, and answer again by the planner's advice",
    source="MetaRAG, arXiv 2402.11626",
    roles=("answer", "expert", "critic", "nli"),
    options=MetaRagOptions,
    run=metarag,
    presets={
        "default": Preset(corpus="wiki2018", retriever="bm25", search={"depth": 100, "rerank": "cross-encoder", "rerank_depth": 100}),
    },
)
