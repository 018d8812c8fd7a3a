"""RECOMP: retrieved passages are compressed before they are read, to the best sentences or to a summary, which may be empty.

Xu et al., RECOMP: Improving Retrieval-Augmented LMs with Compression and Selective Augmentation, 2023 (arXiv 2310.04408), section 3; facts
of ``carriex/recomp``. The authors' compressors are ``fangyuan/{nq,tqa,hotpotqa}_extractive_compressor``, an encoder, and ``…_abstractive``
(T5-large).
"""

from __future__ import annotations

from typing import Literal

from wikidx.base.validation import options
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.prompts import Decoding

from .base import Answer, Method, Preset, option
from .forms import FORMS, FormName, describe_forms
from .model_output import drop_placeholder
from .reading import ReadingOptions, reads_passages
from .requests import generate, label, retrieve, score
from .sentences import split_sentences
from .templates import load_template
from .written_answers import answer_in_form, parse_answer

COMPRESSOR = "compressor"
_SUMMARIZED = "Question: {question}\n Document: {documents}\n Summary: "  # the input on which the authors' T5 is trained


@options
class RecompOptions(ReadingOptions):
    """Options of RECOMP."""

    form: FormName = option("short", "ours", describe_forms(FormName))
    k: int = option(5, "paper", "number of passages that are compressed", minimum=1)
    compress: Literal["abstractive", "extractive"] = option(
        "abstractive",
        "paper, open",
        "abstractive: the role compressor, a T5, writes a summary; extractive: it is an encoder, whose best sentences are read",
    )
    n_sentences: int = option(1, "paper", "sentences of extractive compression, each after its title (HotpotQA in the paper: 2)", minimum=1)
    shots: int = option(0, "ours", "number of demonstrations in the prompt that answers (the authors' code: 5)")
    max_tokens: int | None = option(None, "ours", "maximum number of tokens of the answer; none: 256; long: 300; dialogue: 50", minimum=1)
    summary_tokens: int = option(512, "authors' code", "maximum number of tokens of a summary", minimum=1)


@reads_passages
async def recomp(question: str, options: RecompOptions) -> Answer:
    """Answer from the compressed passages; without them if the compression is empty."""
    passages = await retrieve(question, options.k)
    with label("compress"):
        compressed = await _compress(question, passages, options) if passages else ""
    prompt = load_template("recomp", "answer", options.form)(summary=compressed, question=question, shots=options.shots)
    draft = parse_answer(await generate(prompt, Decoding(max_tokens=options.max_tokens or FORMS[options.form].max_tokens)))
    return answer_in_form(draft, options.form, passages if compressed else (), compressed=compressed)


async def _compress(question: str, passages: tuple[Passage, ...], options: RecompOptions) -> str:
    if options.compress == "abstractive":
        prompt = _SUMMARIZED.format(question=question, documents="\n".join(f"{passage.title} {passage.text}" for passage in passages))
        gen = await generate(prompt, Decoding(max_tokens=options.summary_tokens), role=COMPRESSOR)
        return drop_placeholder(gen.text.strip())
    sentences = [f"{passage.title} {sentence}" for passage in passages for sentence in split_sentences(passage.text)]
    scores = await score(question, sentences, role=COMPRESSOR)
    best = sorted(range(len(sentences)), key=lambda number: -scores[number])[: options.n_sentences]
    return " ".join(sentences[number] for number in best)


METHOD = Method(
    name="recomp",
    summary="compress the passages to a summary or to the best sentences, answer from these",
    source="Xu et al., 2023",
    roles=("answer", COMPRESSOR),
    options=RecompOptions,
    run=recomp,
    presets={"default": Preset(corpus="wiki2018", retriever="contriever")},
    demonstrated=lambda options: ("answer",),
)
