"""The algorithm of ReFeed: initial answers, retrieval with these answers, refined answer, ensemble."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace

from wikidx.runtimes.llms.prompts import Chat, Decoding
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.forms import FORMS
from wikidx.runtimes.methods.reading import reads_passages
from wikidx.runtimes.methods.requests import gather, label, retrieve, sample
from wikidx.runtimes.methods.templates import format_passages, load_template
from wikidx.runtimes.methods.written_answers import Draft, answer_in_form, parse_draft

from .ensemble import ensemble
from .options import RefeedOptions

_LIST_NUMBER = re.compile(r"(\d{1,3})[.)]\s+(?=\S)", re.ASCII)
_NEXT_NUMBER = re.compile(r"\n\s*\d{1,3}[.)]\s", re.ASCII)


@reads_passages
async def refeed(question: str, options: RefeedOptions) -> Answer:
    """Generate initial answers, retrieve with question and answers, generate a refined answer, and keep the likelier answer.

    A refined answer has the retrieved documents as passages; an initial answer has none.
    """
    prompt = load_template("refeed", f"initial_{options.output}", options.form)(question=question, shots=options.shots)
    samples, candidates = await _initial(prompt, options)
    answers = deduplicate(samples)
    queries = [" ".join(f"{question} {draft.answer}".split()) for draft in answers]
    question_query = [question] if options.search_question or not queries else []
    with label("after feedback"):
        documents = await retrieve([*question_query, *queries], options.k, merge=options.merge, dedup=options.dedup)
    answers_text = "\n".join(f"{number}. {draft.text}" for number, draft in enumerate(answers, 1))
    refining = load_template("refeed", f"refine_{options.output}", options.form)(
        passages=format_passages(documents), question=question, answers=answers_text, shots=options.shots
    )
    (refined,) = await _generate(refining, options)
    refined = _strip_list_number(refined, answers)
    choice = await ensemble(candidates, refined, (prompt, refining), options)
    is_refined = choice.draft is choice.refined
    detail = {
        "kept": "refined" if is_refined else "initial",
        "reason": choice.reason,
        "initial": choice.initial and choice.initial.to_json(),
        "refined": choice.refined.to_json(),
        "samples": [draft.to_json() for draft in samples],
        "retrieved": [passage.id for passage in documents],
        "parse_ok": refined.parse_ok and all(draft.parse_ok for draft in samples),
    }
    return answer_in_form(choice.draft._replace(parse_ok=True), options.form, documents if is_refined else (), **detail)


async def _initial(prompt: Chat, options: RefeedOptions) -> tuple[list[Draft], list[Draft]]:
    """Return two lists of initial answers: the answers for retrieval and the candidates for the ensemble."""
    if options.diverse and options.ensemble and options.initial_candidate == "greedy":
        samples, greedy = await gather(_generate(prompt, options, is_diverse=True), _generate(prompt, options))
        return samples, greedy
    samples = await _generate(prompt, options, is_diverse=options.diverse)
    return samples, samples


async def _generate(prompt: Chat, options: RefeedOptions, *, is_diverse: bool = False) -> list[Draft]:
    """Generate several answers by nucleus sampling if ``is_diverse``, else one answer greedily."""
    decoding = Decoding(max_tokens=options.max_tokens or FORMS[options.form].max_tokens)
    if is_diverse:
        decoding = replace(decoding, temperature=options.temperature, top_p=options.top_p)
    gens = await sample(prompt, options.samples if is_diverse else 1, decoding, logprobs=options.ensemble and options.nll == "output")
    return [parse_draft(gen, options.output) for gen in gens]


def _strip_list_number(refined: Draft, answers: Sequence[Draft]) -> Draft:
    """Strip the number of an earlier answer, as the prompt lists them, from a refined answer that is not itself listed with this number.

    Of a copied list the first answer is kept.
    """
    number = _LIST_NUMBER.match(refined.answer)
    is_listed = answer_key(refined.answer) in {answer_key(draft.answer) for draft in answers}
    if number is None or is_listed or not 1 <= int(number[1]) <= len(answers):
        return refined
    first, *others = _NEXT_NUMBER.split(refined.answer[number.end() :])
    parse_ok = refined.parse_ok or bool(others)
    return refined._replace(start=refined.start + number.end(), answer=first.rstrip(), parse_ok=parse_ok)


def deduplicate(drafts: Iterable[Draft]) -> list[Draft]:
    """Return the first draft of each distinct answer that is not blank."""
    first: dict[str, Draft] = {}
    for draft in drafts:
        if draft.answer:
            first.setdefault(answer_key(draft.answer), draft)
    return list(first.values())


def answer_key(answer: str) -> str:
    """Return a key that is the same for equal answers.

    The key ignores case, Unicode compatibility forms, spacing, punctuation and English articles. Articles and punctuation count if an
    answer has nothing else.
    """
    plain = unicodedata.normalize("NFKC", answer).casefold()
    letters = "".join(" " if unicodedata.category(letter)[0] in "PZC" else letter for letter in plain)
    return " ".join(word for word in letters.split() if word not in ("a", "an", "the")) or plain.strip()
