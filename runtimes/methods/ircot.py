"""IRCoT: retrieve, generate one sentence of reasoning, retrieve with it, and repeat; then answer from all retrieved passages.

Trivedi et al., Interleaving Retrieval with Chain-of-Thought Reasoning for Knowledge-Intensive Multi-Step Questions, 2023 (arXiv
2212.10509).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from wikidx.base.validation import options
from wikidx.corpora.passage import Passage, text_key
from wikidx.runtimes.llms.base import Gen
from wikidx.runtimes.llms.prompts import Chat, Decoding, Message

from .base import Answer, Method, Preset, option
from .forms import LineFormName, describe_forms
from .reading import ReadingOptions, reads_passages
from .requests import generate, label, note, retrieve
from .sentences import normalize_words, split_sentences
from .templates import format_passages, load_template
from .written_answers import Draft, answer_in_form, parse_draft

# as in the authors' code:
_CONCLUDES = re.compile(r"(?:(?:thus|so)[ ,]|that is,|therefore|hence)|.*\d [+-] \d[\d,.]* = \d", re.IGNORECASE)
_QUESTION_WORDS = frozenset("who what when where why which how does is".split())
_SENTENCE_TOKENS = 100
_SIMILAR = 0.9  # minimum similarity of the titles and of the texts of two passages that count as one


@options
class IrcotOptions(ReadingOptions):
    """Options of IRCoT."""

    form: LineFormName = option("short", "ours", describe_forms(LineFormName))
    k: int = option(6, "paper", "number of passages per search; the paper tries 2, 4, 6 and 8", minimum=1)
    max_passages: int = option(15, "paper", "maximum number of collected passages", minimum=1)
    passage_words: int = option(350, "authors' code", "maximum number of words of a passage in the prompt; 0: no limit")
    max_sentences: int = option(10, "paper", "maximum number of sentences of the chain of thought", minimum=1)
    conclusions: Literal["skip", "search"] = option(
        "skip",
        "authors' code",
        "sentences that begin with thus, so, therefore or the like, or state a sum; skip: search with an earlier sentence; search: search "
        "with them",
    )
    drop_question_words: bool = option(
        True, "authors' code", "leave words such as who, which and is out of search queries, as the authors do for BM25"
    )
    reader: Literal["cot", "direct", "none"] = option(
        "cot",
        "paper",
        "final answer; cot: a reader's, by chain of thought; direct: a reader's, without reasoning; none: the conclusion of the chain",
    )
    shots: int = option(3, "paper, open", "number of demonstrations in each prompt; the paper shows up to 20 with longer contexts")
    max_tokens: int = option(256, "ours", "maximum number of tokens of the reader's reasoning and answer", minimum=1)


@dataclass(slots=True, kw_only=True)
class _Chain:
    """The state of the reasoning on a question.

    Attributes:
        sentences: the chain of thought.
        passages: the collected passages, in the order of retrieval.
        queries: the queries of all searches.
    """

    question: str
    sentences: list[str] = field(default_factory=list)
    passages: list[Passage] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)


@reads_passages
async def ircot(question: str, options: IrcotOptions) -> Answer:
    """Alternate retrieval and reasoning, then let the reader answer from the collected passages.

    The reasoning ends if a sentence states the answer, if the model generates no new sentence, or after ``max_sentences``.
    """
    chain = _Chain(question=question)
    stop_reason = "max_sentences"
    while len(chain.sentences) < options.max_sentences:
        with label(f"step {len(chain.sentences) + 1}"):
            await _search(chain, options)
            sentence = await _next_sentence(chain, options)
        if not sentence:
            stop_reason = "no_sentence"
            break
        chain.sentences.append(sentence)
        if _parse_conclusion(sentence).parse_ok:
            stop_reason = "answer"
            break
    answer = await _read(chain, options)
    detail: dict[str, Any] = {
        "chain": chain.sentences,
        "queries": chain.queries,
        "stop_reason": stop_reason,
        "reader": answer.text,
    }
    return answer_in_form(answer, options.form, tuple(chain.passages), **detail)


async def _search(chain: _Chain, options: IrcotOptions) -> None:
    """Search with the last sentence that ``conclusions`` permits, else with the question, and collect new passages.

    The search is skipped if the query was sent before, or if ``max_passages`` are collected.
    """
    sentences = [sentence for sentence in chain.sentences if options.conclusions == "search" or not _CONCLUDES.match(sentence)]
    query = sentences[-1] if sentences else chain.question
    if options.drop_question_words:
        query = " ".join(word for word in query.split() if word.lower() not in _QUESTION_WORDS) or query
    if normalize_words(query) in map(normalize_words, chain.queries):
        await note("not searched again", {"query": query})
        return
    if len(chain.passages) >= options.max_passages:
        await note("not searched: max_passages are collected")
        return
    chain.queries.append(query)
    for passage in await retrieve(query, options.k):
        if len(chain.passages) < options.max_passages and not any(_is_same(passage, known) for known in chain.passages):
            chain.passages.append(passage)


async def _next_sentence(chain: _Chain, options: IrcotOptions) -> str:
    """Return the next sentence that the chain does not have yet; an empty text if there is none. Some models start over."""
    prompt = _prompt("cot", chain, options)
    if chain.sentences:
        prompt = (*prompt, Message("assistant", " ".join(chain.sentences)))
    output = await generate(prompt, Decoding(max_tokens=min(options.max_tokens, _SENTENCE_TOKENS)))
    known = {"", *map(normalize_words, chain.sentences)}
    return next((sentence for sentence in split_sentences(output.text) if normalize_words(sentence) not in known), "")


async def _read(chain: _Chain, options: IrcotOptions) -> Draft:
    if options.reader == "none":
        return _parse_conclusion("\n".join(chain.sentences))
    output = await generate(_prompt(options.reader, chain, options), Decoding(max_tokens=options.max_tokens))
    return parse_draft(output, "cot" if options.reader == "cot" else "answer")


def _prompt(name: str, chain: _Chain, options: IrcotOptions) -> Chat:
    return load_template("ircot", name, options.form)(
        passages=format_passages(_shorten(chain.passages, options)), question=chain.question, shots=options.shots
    )


def _shorten(passages: Sequence[Passage], options: IrcotOptions) -> list[Passage]:
    if not options.passage_words:
        return list(passages)
    pattern = re.compile(rf"\s*(?:\S+\s+){{0,{options.passage_words - 1}}}\S*")
    return [passage._replace(text=match[0].rstrip() if (match := pattern.match(passage.text)) else "") for passage in passages]


def _parse_conclusion(text: str) -> Draft:
    """Parse the answer that a part of the chain states."""
    return parse_draft(Gen(text=text), "cot")


def _is_same(passage: Passage, other: Passage) -> bool:
    """Return whether titles and texts are equal or closely similar."""
    if (passage.title, text_key(passage.text)) == (other.title, text_key(other.text)):
        return True
    return _are_similar(passage.title, other.title) and _are_similar(passage.text, other.text)


def _are_similar(text: str, other: str) -> bool:
    matcher = difflib.SequenceMatcher(None, text, other, autojunk=False)
    return matcher.real_quick_ratio() >= _SIMILAR and matcher.quick_ratio() >= _SIMILAR and matcher.ratio() >= _SIMILAR


METHOD = Method(
    name="ircot",
    summary="retrieve with each sentence of a chain of thought, then answer from all retrieved passages",
    source="IRCoT, arXiv 2212.10509",
    roles=("answer",),
    options=IrcotOptions,
    run=ircot,
    demonstrated=lambda options: ("direct",) if options.reader == "direct" else (),
    presets={"default": Preset(corpus="wiki2018", retriever="bm25")},
)
