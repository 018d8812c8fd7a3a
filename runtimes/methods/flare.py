"""FLARE: write the next sentence tentatively; if the model is unsure of one of its words, search with it, and write it again.

Jiang et al., Active Retrieval Augmented Generation, 2023 (arXiv 2305.06983, section 3.2: FLARE direct), and the authors' code
(``jzbjyb/FLARE``), whose settings for 2WikiMultihopQA are the defaults.

A sentence is doubtful if a token's probability is theta at most. The query is the sentence without the tokens of beta at most (implicit),
or a question for each of their spans (explicit).

Deviations: spans are not widened to whole phrases by a further call; the number of sentences is limited, not that of all tokens; a
sentence that states the answer, or comes again, ends the text; one that nothing is searched with is not written again. If the model tells
no probabilities, each sentence is searched with as it is, which is theta = 1 and beta = 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from wikidx.base.validation import options
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Gen
from wikidx.runtimes.llms.prompts import Decoding, Message

from .base import Answer, Method, Preset, option
from .forms import LineFormName, describe_forms
from .model_output import first_line
from .reading import ReadingOptions, reads_passages
from .requests import gather, generate, label, retrieve, truncate
from .sentences import normalize_words, sentence_spans
from .templates import format_passages, load_template
from .written_answers import answer_in_form, parse_draft

_MIN_SENTENCE = 5  # characters of a sentence at least, as in the authors' code
_MIN_GAP = 5  # tokens between two spans at least, as in the authors' code
_QUESTION_TOKENS = 64


@options
class FlareOptions(ReadingOptions):
    """Options of FLARE."""

    form: LineFormName = option("short", "ours", describe_forms(LineFormName))
    k: int = option(2, "authors' code", "number of passages per search; each search replaces the passages of the one before", minimum=1)
    theta: float = option(0.8, "authors' code", "a sentence is searched with if a token's probability is at most this", maximum=1)
    beta: float = option(0.4, "authors' code", "tokens of at most this probability are left out of the query", maximum=1)
    queries: Literal["masked", "questions"] = option(
        "masked",
        "authors' code",
        "what a doubtful sentence is searched with; masked: itself without improbable tokens; questions: a question for each span of them",
    )
    max_sentences: int = option(15, "ours", "maximum number of sentences", minimum=1)
    sentence_tokens: int = option(64, "authors' code", "maximum number of tokens of a sentence", minimum=1)
    query_tokens: int = option(64, "authors' code", "maximum number of tokens of a query, which are its last", minimum=1)
    shots: int = option(3, "ours", "number of demonstrations in the prompt (the authors' code: 8)")


class Token(NamedTuple):
    """A generated token, and its probability."""

    text: str
    probability: float


@reads_passages
async def flare(question: str, options: FlareOptions) -> Answer:
    """Write sentence by sentence, with passages of the question at first, until the answer is stated or there is no new sentence."""
    passages = await retrieve(question, options.k)
    evidence = dict.fromkeys(passages)
    sentences, steps = list[str](), list[dict[str, Any]]()
    last, is_whole = Gen(text=""), False
    while len(sentences) < options.max_sentences and not is_whole:
        with label(f"step {len(sentences) + 1}"):
            sentence, is_whole = await _next_sentence(question, passages, sentences, options)
            queries = await _queries(sentence, sentences, options)
            if queries:
                passages = await retrieve(queries, options.k, merge="interleave")
                evidence |= dict.fromkeys(passages)
                steps.append({"sentence": sentence.text.strip(), "queries": queries, "passages": [passage.id for passage in passages]})
                sentence, is_whole = await _next_sentence(question, passages, sentences, options)
        text, last = sentence.text.strip(), sentence
        if not normalize_words(text) or text in sentences:
            break
        sentences.append(text)
        is_whole = is_whole or parse_draft(Gen(text=text), "cot").parse_ok
    draft = parse_draft(Gen(text=" ".join(sentences), finish=last.finish), "cot")
    return answer_in_form(draft, options.form, tuple(evidence), text=draft.text, searches=steps)


async def _next_sentence(question: str, passages: Sequence[Passage], sentences: Sequence[str], options: FlareOptions) -> tuple[Gen, bool]:
    """Return the next sentence, and whether the model has ended the text with it."""
    prompt = load_template("flare", "cot", options.form)(passages=format_passages(passages), question=question, shots=options.shots)
    if sentences:
        prompt = (*prompt, Message("assistant", " ".join(sentences)))
    output = await generate(prompt, Decoding(max_tokens=options.sentence_tokens, stop=("\n\n",)), logprobs=True)
    ends = [end for _, end in sentence_spans(output.text) if end >= _MIN_SENTENCE]
    whole = len(output.text.rstrip())
    if not ends or ends[0] >= whole:
        return output, output.finish == "stop"
    return replace(output.part(0, ends[0]), finish="stop"), False


async def _queries(sentence: Gen, sentences: Sequence[str], options: FlareOptions) -> list[str]:
    """Return the queries of a doubtful sentence; none if the model is sure of it."""
    tokens = tokens_of(sentence)
    if tokens is None:
        return [await truncate(sentence.text.strip(), options.query_tokens, keep="end")] if sentence.text.strip() else []
    if not is_doubtful(tokens, options.theta):
        return []
    queries = [mask(tokens, options.beta)]
    if options.queries == "questions":
        queries = await _ask(tokens, sentences, options) or [sentence.text.strip()]
    return [await truncate(query, options.query_tokens, keep="end") for query in queries if query]


async def _ask(tokens: Sequence[Token], sentences: Sequence[str], options: FlareOptions) -> list[str]:
    """Return a question for each span of improbable tokens."""
    text, ask = " ".join([*sentences, "".join(token.text for token in tokens).strip()]), load_template("flare", "ask")
    prompts = [ask(text=text, span=span) for span in improbable_spans(tokens, options.beta)]
    replies = await gather(*(generate(prompt, Decoding(max_tokens=_QUESTION_TOKENS), role="question") for prompt in prompts))
    return [question for reply in replies if (question := first_line(reply.text)).endswith("?")]


def tokens_of(sentence: Gen) -> list[Token] | None:
    """Return the tokens of a sentence that have a text; None if probabilities or places are unknown."""
    if sentence.logprobs is None or sentence.ends is None:
        return None
    texts = [sentence.text[start:end] for start, end in itertools.pairwise((0, *sentence.ends))]
    return [Token(text, math.exp(logprob)) for text, logprob in zip(texts, sentence.logprobs, strict=True) if text]


def is_doubtful(tokens: Sequence[Token], theta: float) -> bool:
    """Return whether the probability of a token is ``theta`` at most."""
    return any(token.probability <= theta for token in tokens)


def mask(tokens: Sequence[Token], beta: float) -> str:
    """Return the text with a space in place of each token whose probability is ``beta`` at most."""
    return "".join(token.text if token.probability > beta else " " for token in tokens).strip()


def improbable_spans(tokens: Sequence[Token], beta: float) -> list[str]:
    """Return the spans of tokens whose probability is ``beta`` at most; such tokens less than ``_MIN_GAP`` apart are of one span."""
    spans = list[tuple[int, int]]()
    for place in (place for place, token in enumerate(tokens) if token.probability <= beta):
        near = spans and place - spans[-1][1] < _MIN_GAP
        spans = [*spans[:-1], (spans[-1][0], place)] if near else [*spans, (place, place)]
    texts = ("".join(token.text for token in tokens[start : end + 1]).strip() for start, end in spans)
    return [text for text in texts if normalize_words(text)]


METHOD = Method(
    name="flare",
    summary="write sentence by sentence; search with each that has an improbable word, and write it again",
    source="FLARE, arXiv 2305.06983",
    roles=("answer", "question"),
    options=FlareOptions,
    run=flare,
    presets={"default": Preset(corpus="wiki2018", retriever="bm25")},
)
