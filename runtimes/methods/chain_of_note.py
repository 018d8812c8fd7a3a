"""Chain-of-Note: read each passage into a note, and answer from the notes, in one output.

Yu et al., Chain-of-Note: Enhancing Robustness in Retrieval-Augmented Language Models, 2024 (arXiv 2311.09210, section 3). A note says what
a passage tells: the answer, something from which the model can infer it, or nothing of use; then the model answers by itself, or that it
does not know. There is no public code.

Deviations: the paper trains Llama-2-7B to write the notes; here a prompt asks for them. Its training on answers without notes has no part.
"""

from __future__ import annotations

import re
from typing import Literal

from wikidx.base.validation import options
from wikidx.runtimes.llms.prompts import Decoding

from .base import Answer, Method, Preset, option
from .forms import LineFormName, describe_forms
from .reading import ReadingOptions, reads_passages
from .requests import generate, retrieve
from .templates import format_passages, load_template
from .written_answers import answer_in_form, parse_draft

_NOTE = re.compile(r"^[ \t*#-]*(?:reading )?note[ \t]*\[?(\d+)\]?[ \t*]*:[ \t*]*(.+)", re.IGNORECASE | re.MULTILINE)


@options
class ChainOfNoteOptions(ReadingOptions):
    """Options of Chain-of-Note."""

    form: LineFormName = option("short", "ours", describe_forms(LineFormName))
    k: int = option(5, "ours", "number of passages", minimum=1)
    otherwise: Literal["guess", "unknown"] = option(
        "guess",
        "paper, open",
        "answer if no passage is of use; guess: what the model thinks right; unknown: the word unknown, unless the model knows",
    )
    max_tokens: int = option(512, "ours", "maximum number of tokens of the notes and the answer", minimum=1)


@reads_passages
async def chain_of_note(question: str, options: ChainOfNoteOptions) -> Answer:
    """Retrieve, then write notes and answer."""
    passages = await retrieve(question, options.k)
    prompt = load_template("chain_of_note", options.otherwise, options.form)(passages=format_passages(passages), question=question)
    draft = parse_draft(await generate(prompt, Decoding(max_tokens=options.max_tokens)), "cot")
    noted = {int(note[1]): note[2].strip() for note in _NOTE.finditer(draft.text)}
    notes = [{"passage": passage.id, "note": noted.get(number)} for number, passage in enumerate(passages, 1)]
    return answer_in_form(draft, options.form, passages, notes=notes, text=draft.text)


METHOD = Method(
    name="chain_of_note",
    summary="write a note on each passage, then answer from the notes",
    source="Chain-of-Note, arXiv 2311.09210",
    roles=("answer",),
    options=ChainOfNoteOptions,
    run=chain_of_note,
    presets={"default": Preset(corpus="wiki2018", retriever="dpr")},
)
