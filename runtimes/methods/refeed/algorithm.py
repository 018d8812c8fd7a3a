"""The algorithm of ReFeed: initial answers, documents found with them, the refined answer, the ensemble."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import replace

from wikidx.runtimes.llms.base import Chat, Decoding
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.requests import Run, retrieve, sample, together
from wikidx.runtimes.methods.templates import numbered, template
from wikidx.runtimes.methods.written_answers import Draft, draft

from .ensemble import ensemble
from .options import RefeedOptions


def refeed(question: str, options: RefeedOptions) -> Run[Answer]:
    """Answer, retrieve with the question and the answers, refine, and keep the likelier answer.

    The answer's passages are the documents if the refined answer is kept, and none otherwise.
    """
    prompt = template("refeed", f"initial_{options.form}")(question=question, shots=options.shots)
    drawn, contenders = yield from _initial(prompt, options)
    answers = distinct(drawn)
    queries = [" ".join(f"{question} {one.answer}".split()) for one in answers]
    root = [question] if options.question_too or not queries else []
    found = yield from retrieve([*root, *queries], options.k, merge=options.merge, dedup=options.dedup)
    listed = "\n".join(f"{number}. {one.text}" for number, one in enumerate(answers, 1)) or "(none)"
    refining = template("refeed", f"refine_{options.form}")(
        passages=numbered(found), question=question, answers=listed, shots=options.shots
    )
    (refined,) = yield from _write(refining, options)
    kept = yield from ensemble(contenders, refined, (prompt, refining), options)
    is_refined = kept.draft is kept.refined
    detail = {
        "kept": "refined" if is_refined else "initial",
        "because": kept.because,
        "initial": kept.initial and kept.initial.as_json(),
        "refined": kept.refined.as_json(),
        "drawn": [one.as_json() for one in drawn],
        "retrieved": [passage.id for passage in found],
        "parse_ok": refined.parse_ok and all(one.parse_ok for one in drawn),
    }
    return Answer(kept.draft.answer, found if is_refined else (), detail)


def _initial(prompt: Chat, options: RefeedOptions) -> Run[tuple[list[Draft], list[Draft]]]:
    """Return the initial answers, and those among them that the ensemble may keep."""
    if options.diverse and options.ensemble and options.contender == "greedy":
        drawn, greedy = yield from together([_write(prompt, options, is_diverse=True), _write(prompt, options)])
        return drawn, greedy
    drawn = yield from _write(prompt, options, is_diverse=options.diverse)
    return drawn, drawn


def _write(prompt: Chat, options: RefeedOptions, *, is_diverse: bool = False) -> Run[list[Draft]]:
    """Sample several answers with nucleus sampling, or generate one greedily."""
    decoding = Decoding(max_tokens=options.max_reasoning_tokens if options.form == "cot" else options.max_tokens)
    if is_diverse:
        decoding = replace(decoding, temperature=options.temperature, top_p=options.top_p)
    gens = yield from sample(prompt, options.samples if is_diverse else 1, decoding, logprobs=options.ensemble and options.nll == "output")
    return [draft(gen, options.form) for gen in gens]


def distinct(drafts: Iterable[Draft]) -> list[Draft]:
    """Return the first draft of each distinct answer, without blank ones."""
    first: dict[str, Draft] = {}
    for one in drafts:
        if one.answer:
            first.setdefault(key(one.answer), one)
    return list(first.values())


def key(answer: str) -> str:
    """Return a key that equal answers share: case, compatibility form, English articles, punctuation and spacing are normalised.

    If that leaves nothing of an answer, only case and form are normalised.
    """
    plain = unicodedata.normalize("NFKC", answer).casefold()
    letters = "".join(" " if unicodedata.category(letter)[0] in "PZC" else letter for letter in plain)
    return " ".join(word for word in letters.split() if word not in ("a", "an", "the")) or plain.strip()
