"""Self-RAG: a model trained to write control tokens, by which it decides whether to retrieve, and judges passages and what it writes.

Asai et al., Self-RAG: Learning to Retrieve, Generate, and Critique through Self-Reflection, 2023 (arXiv 2310.11511), section 3.3 and
algorithm 1; names of tokens, form of prompts and defaults of ``AkariAsai/self-rag``, whose checkpoints are ``selfrag/selfrag_llama2_7b``
and ``…_13b``. A short answer has one segment. A long one has several, each with passages of its own, which a beam search chooses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from wikidx.base.validation import options
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Gen
from wikidx.runtimes.llms.prompts import Decoding

from .base import Answer, Method, Preset, option
from .forms import describe_forms
from .reading import ReadingOptions, reads_passages
from .requests import gather, generate, label, labelled, note, retrieve
from .templates import load_template
from .written_answers import answer_in_form, parse_answer

Form = Literal["short", "yes_no", "fever", "long"]

RETRIEVE, NO_RETRIEVE, CONTINUE = "[Retrieval]", "[No Retrieval]", "[Continue to Use Evidence]"
RELEVANT = ("[Relevant]", "[Irrelevant]")
SUPPORTED = ("[Fully supported]", "[Partially supported]", "[No support / Contradictory]")
USEFUL = tuple(f"[Utility:{degree}]" for degree in range(1, 6))
_PARAGRAPH = ("<paragraph>", "</paragraph>")
CONTROL = (RETRIEVE, NO_RETRIEVE, CONTINUE, *RELEVANT, *SUPPORTED, *USEFUL, *_PARAGRAPH)
_PROMPT = "### Instruction:\n{}\n\n### Response:\n"
_WORTHS = {RELEVANT: (1.0, 0.0), SUPPORTED: (1.0, 0.5, 0.0), USEFUL: (-1.0, -0.5, 0.0, 0.5, 1.0)}
"""Control tokens of a kind -> the worth of each, of which a critique is the mean."""


@options
class SelfRagOptions(ReadingOptions):
    """Options of Self-RAG."""

    form: Form = option("short", "ours", describe_forms(Form))
    k: int = option(5, "paper", "number of passages of each segment", minimum=1)
    retrieve: Literal["adaptive", "always", "never"] = option("adaptive", "paper", "adaptive: if the model's own wish reaches threshold")
    threshold: float = option(0.2, "paper", "share of the token for retrieval above which passages are retrieved (ASQA: 0)", maximum=1)
    w_rel: float = option(1.0, "paper", "weight of the passage's relevance")
    w_sup: float = option(1.0, "paper", "weight of the passage's support")
    w_use: float = option(0.5, "paper", "weight of the answer's utility")
    likelihood: bool = option(True, "paper", "whether a segment's score includes its likelihood, the geometric mean over its tokens")
    beam: int = option(2, "paper", "texts that are kept at each segment of a long answer", minimum=1)
    max_segments: int = option(6, "authors' code", "maximum number of segments of a long answer (max_depth 7, as for ASQA)", minimum=1)
    query: Literal["question", "segment"] = option(
        "question", "authors' code", "query of segments after the first; segment: the question with the segment before (the paper)"
    )
    max_tokens: int | None = option(
        None, "authors' code", "maximum number of tokens of a segment; none: 100, of a long answer 300", minimum=1
    )


class Critique(NamedTuple):
    """The model's critique of a segment; 0 for what it does not say. Relevance and support lie in [0, 1], utility in [-1, 1]."""

    relevance: float
    support: float
    utility: float
    likelihood: float

    def score(self, options: SelfRagOptions) -> float:
        """Return the weighted sum (equations 3 and 4)."""
        critique = options.w_rel * self.relevance + options.w_sup * self.support + options.w_use * self.utility
        return critique + self.likelihood * options.likelihood


class Text(NamedTuple):
    """A text so far.

    Attributes:
        segments: what the model has written, with control tokens.
        passages: the passage of each segment.
        score: product of the segments' scores, as in the authors' code.
        is_open: whether the model wants to retrieve and go on.
    """

    segments: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()
    score: float = 1.0
    is_open: bool = True


def criticize(gen: Gen) -> Critique:
    """Return the critique of a generated text: relevance by its first token, the others by the first of their own tokens."""
    first = next((control.logprobs for control in gen.control if control.place == 0), None)
    own = {kind: next((at.logprobs for at in gen.control if gen.text.startswith(kind, at.place)), None) for kind in (SUPPORTED, USEFUL)}
    likelihood = 0.0 if gen.mean_nll is None else math.exp(-gen.mean_nll)
    return Critique(_worth(first, RELEVANT), _worth(own[SUPPORTED], SUPPORTED), _worth(own[USEFUL], USEFUL), likelihood)


def _worth(logprobs: Sequence[float] | None, kind: tuple[str, ...]) -> float:
    """Return the mean worth of the tokens of a kind by their probabilities; 0 if these are unknown."""
    if logprobs is None:
        return 0.0
    powers = [math.exp(logprobs[CONTROL.index(token)]) for token in kind]
    return sum(p * worth for p, worth in zip(powers, _WORTHS[kind], strict=True)) / total if (total := math.fsum(powers)) else 0.0


def wish(logprobs: Sequence[float]) -> float:
    """Return the share of the token for retrieval beside that against it; 0 if neither has a probability."""
    yes, no = (math.exp(logprobs[CONTROL.index(token)]) for token in (RETRIEVE, NO_RETRIEVE))
    return yes / (yes + no) if yes + no else 0.0


def first_segment(gen: Gen, options: SelfRagOptions) -> tuple[Gen, bool]:
    """Return a text up to where the model wants to retrieve, by its token or by its wish at a token against it, and whether it does."""
    for at in gen.control:
        says = gen.text.startswith(RETRIEVE, at.place) or (
            gen.text.startswith(NO_RETRIEVE, at.place) and options.retrieve == "adaptive" and wish(at.logprobs) > options.threshold
        )
        if says and at.place > 0:
            return gen.part(0, at.place), True
    return gen, False


@reads_passages
async def self_rag(question: str, options: SelfRagOptions) -> Answer:
    """Answer without passages, or by the best of the texts that rest on one each."""
    asked = load_template("self_rag", "instruction", options.form)(question=question)
    prompt = _PROMPT.format(asked[-1].content)
    with label("retrieve?"):
        passages = await retrieve(question, options.k) if await _wants_passages(prompt, options) else ()
    if not passages:
        gen = await generate(prompt + NO_RETRIEVE, _decoding(options), control=CONTROL)
        return _answer((gen.text,), (), options, retrieved=False)
    if options.form == "long":
        best = await _search_texts(question, prompt, passages, options)
        return _answer(best.segments, best.passages, options, retrieved=True, score=best.score)
    texts = await _write(prompt, Text(), passages, options)
    chosen = max(texts, key=lambda text: (_total(text, texts) * (options.form in ("yes_no", "fever")), text.score))
    return _answer(chosen.segments, chosen.passages, options, retrieved=True, score=chosen.score)


async def _wants_passages(prompt: str, options: SelfRagOptions) -> bool:
    if options.retrieve != "adaptive":
        return options.retrieve == "always"
    gen = await generate(prompt, Decoding(max_tokens=1), control=CONTROL)
    p = wish(gen.control[0].logprobs) if gen.control else 0.0
    await note("wish to retrieve", {"p": round(p, 6), "threshold": options.threshold})
    return p > options.threshold


async def _search_texts(question: str, prompt: str, passages: tuple[Passage, ...], options: SelfRagOptions) -> Text:
    """Return the best text of a beam search over segments."""
    beam = [Text()]
    for depth in range(1, options.max_segments + 1):
        with label(f"segment {depth}"):
            written = await gather(*(_continue(question, prompt, text, passages, options) for text in beam))
        beam = sorted((text for texts in written for text in texts), key=lambda text: -text.score)[: options.beam]
        if not any(text.is_open for text in beam):
            break
    return beam[0]


async def _continue(question: str, prompt: str, text: Text, passages: tuple[Passage, ...], options: SelfRagOptions) -> list[Text]:
    if not text.is_open:
        return [text]
    if text.segments and options.query == "segment":
        passages = await retrieve(f"{question} {strip_control(text.segments[-1])}", options.k)
    return await _write(prompt, text, passages, options) or [text._replace(is_open=False)]


async def _write(prompt: str, text: Text, passages: tuple[Passage, ...], options: SelfRagOptions) -> list[Text]:
    """Return a text with its next segment, once for each passage."""
    begun = prompt + "".join(text.segments) + RETRIEVE
    calls = [
        generate(
            f"{begun}{_PARAGRAPH[0]}{passage.title}\n{passage.text}{_PARAGRAPH[1]}", _decoding(options), control=CONTROL, logprobs=True
        )
        for passage in passages
    ]
    gens = await gather(*(labelled(f"passage {number}", call) for number, call in enumerate(calls, 1)))
    texts = list[Text]()
    for passage, (segment, is_open) in zip(passages, (first_segment(gen, options) for gen in gens), strict=True):
        score = text.score * criticize(segment).score(options)
        texts.append(Text((*text.segments, segment.text), (*text.passages, passage), score, is_open))
    return texts


def _total(text: Text, texts: Sequence[Text]) -> float:
    """Return the sum of the scores of all texts that answer as one does."""
    return math.fsum(other.score for other in texts if strip_control(other.segments[0]) == strip_control(text.segments[0]))


def strip_control(text: str) -> str:
    """Return a text without control tokens."""
    for token in (*CONTROL, "</s>"):
        text = text.replace(token, "")
    return text.strip()


def _decoding(options: SelfRagOptions) -> Decoding:
    return Decoding(max_tokens=options.max_tokens or (300 if options.form == "long" else 100))


def _answer(segments: Sequence[str], passages: tuple[Passage, ...], options: SelfRagOptions, **detail: object) -> Answer:
    """Return the answer in its form; in a long one, each segment cites its passage before the full stop."""
    used = tuple(dict.fromkeys(passages))
    texts = [strip_control(segment) for segment in segments]
    if options.form == "long" and passages:
        numbers = [used.index(passage) + 1 for passage in passages]
        texts = [f"{text.rstrip(' .')} [{number}]." for text, number in zip(texts, numbers, strict=True) if text]
    draft = parse_answer(Gen(text=" ".join(texts)))
    return answer_in_form(draft, options.form, used, segments=list(segments), **detail)


METHOD = Method(
    name="self_rag",
    summary="a trained model decides by control tokens whether to retrieve, and which passage's text is best",
    source="Asai et al., 2023",
    roles=("answer",),
    options=SelfRagOptions,
    run=self_rag,
    presets={"default": Preset(corpus="wiki2018", retriever="contriever")},
)
