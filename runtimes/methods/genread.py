"""GenRead: the model generates a background document instead of retrieving one, then reads it.

Yu et al., Generate rather than Retrieve: Large Language Models are Strong Context Generators, 2023 (arXiv 2209.10063). By default, the
prompts are zero-shot.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from wikidx.base.validation import options
from wikidx.corpora.passage import text_key
from wikidx.runtimes.llms.prompts import Decoding

from .base import Answer, Method, option
from .forms import FORMS, FormName, LineFormName, describe_forms
from .requests import generate, sample
from .templates import Blocks, load_template
from .written_answers import answer_in_form, parse_answer

_BRIEF_TOKENS = 10  # of an answer or a label, as in the authors' code


@options
class GenReadOptions:
    """Options of GenRead."""

    form: FormName = option("short", "ours", describe_forms(FormName))
    documents: int = option(1, "paper", "number of generated documents; one is decoded greedily, several are sampled", minimum=1)
    document_tokens: int = option(300, "paper", "maximum number of tokens of a document", minimum=1)
    shots: int = option(0, "paper", "number of demonstrations in each prompt")
    max_tokens: int | None = option(
        None,
        "authors' code",
        "maximum number of tokens of the answer; none: 10; dialogue: 50 (the authors' numbers); sentence: 256; long: 300",
        minimum=1,
    )


async def genread(question: str, options: GenReadOptions) -> Answer:
    """Answer from documents that the model generates. Blank and duplicate documents are left out."""
    prompt = load_template("genread", "document", options.form)(question=question, shots=options.shots)
    decoding = Decoding(max_tokens=options.document_tokens)
    if options.documents > 1:
        decoding = replace(decoding, temperature=1.0, top_p=0.95)
    distinct: dict[int, str] = {}
    for gen in await sample(prompt, options.documents, decoding, role="document"):
        if gen.text.strip():
            distinct.setdefault(text_key(gen.text), gen.text.strip())
    documents = tuple(distinct.values())
    reading = load_template("genread", "answer", options.form)(documents=Blocks(documents), question=question, shots=options.shots)
    default = _BRIEF_TOKENS if options.form in get_args(LineFormName) else FORMS[options.form].max_tokens
    draft = parse_answer(await generate(reading, Decoding(max_tokens=options.max_tokens or default)))
    return answer_in_form(draft, options.form, documents=list(documents), parse_ok=bool(documents))


METHOD = Method(
    name="genread",
    summary="generate background documents, and answer from them; no retrieval",
    source="GenRead, arXiv 2209.10063",
    roles=("answer", "document"),
    options=GenReadOptions,
    run=genread,
)
