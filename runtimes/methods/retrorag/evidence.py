"""ELLERY, evidence collation and discovery: selection of passages and inferences, and the next query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from wikidx.corpora.passage import text_key
from wikidx.runtimes.methods.model_output import first_line, listed
from wikidx.runtimes.methods.requests import Run, generate, retrieve, together
from wikidx.runtimes.methods.templates import template, unnumbered

from .answerer import Attempt
from .inquiry import Inquiry, best, scores

_CAPITALISED = re.compile(r"(?:[^\W\d_a-z][\w.'’-]*)(?:\s+[^\W\d_a-z][\w.'’-]*)*")
_OPENING_WORDS = frozenset("a are did do does for from how in is of on the to was were what when where which who whom whose why".split())
_NOBODY = "whatever the question names"
_LABEL = re.compile(r"^(?:search |new |next )?query\s*:\s*", re.IGNORECASE)


def collate(inquiry: Inquiry, query: str, matching: str) -> Run[list[dict[str, Any]]]:
    """Retrieve, and keep those stored and new passages that are most useful for the matching query (M_e, eq. 2).

    Returns:
        Ids and scores of the passages kept, for the record.
    """
    options = inquiry.options
    found = yield from retrieve(query, options.k)
    candidates = list({passage.id: passage for passage in (*inquiry.source, *found)}.values())
    if not options.update_evidence:
        inquiry.source = tuple(candidates)
        return [{"id": passage.id, "score": None} for passage in inquiry.source]
    prompt = template("retrorag", "evidence")
    worth = yield from scores(inquiry, [prompt(question=matching, evidence=unnumbered(passage)) for passage in candidates], "evidence")
    kept = best(candidates, worth, options.n_source)
    inquiry.source = tuple(passage for passage, _ in kept)
    return [{"id": passage.id, "score": score} for passage, score in kept]


def discover(inquiry: Inquiry, matching: str) -> Run[list[dict[str, Any]]]:
    """Infer statements from the passages (M_IE), drop those that fail a gate, and keep the best (M_e, eq. 3 and 4).

    Returns:
        The candidates with their scores, for the record.
    """
    options = inquiry.options
    if not inquiry.source:  # nothing to infer from
        return []
    inquiry.entities = inquiry.entities or (yield from key_entities(inquiry))
    prompt = template("retrorag", "infer")(source=inquiry.shown_source(), entities=inquiry.entities, question=inquiry.question)
    written = yield from generate(prompt, inquiry.decoding(options.inference_tokens), role="inference")
    known = set(map(text_key, inquiry.inferred))
    statements = [item for item in listed(written.text, is_cut=written.finish == "length") if text_key(item) not in known]
    candidates = yield from _gated(inquiry, statements[: options.max_inferences], matching)
    yield from _update(inquiry, [candidate["text"] for candidate in candidates if candidate["kept"]])
    return candidates


def _gated(inquiry: Inquiry, statements: Sequence[str], matching: str) -> Run[list[dict[str, Any]]]:
    """Score each statement's relevance to the matching query (M_qr) and its attribution to the passages (M_ra), concurrently."""
    if not inquiry.options.evaluate_evidence:
        return [{"text": statement, "relevance": None, "attribution": None, "kept": True} for statement in statements]
    known, source = inquiry.shown_inferred(), inquiry.shown_source()
    relevant, attributed = template("retrorag", "relevance"), template("retrorag", "attribution")
    of_question, of_source = yield from together(
        [
            scores(inquiry, [relevant(question=matching, inferred=known, statement=item) for item in statements], "relevance"),
            scores(inquiry, [attributed(source=source, statement=item) for item in statements], "attribution"),
        ]
    )
    gate = inquiry.options.gate
    return [
        {"text": statement, "relevance": relevance, "attribution": attribution, "kept": relevance > gate and attribution > gate}
        for statement, relevance, attribution in zip(statements, of_question, of_source, strict=True)
    ]


def _update(inquiry: Inquiry, new: Sequence[str]) -> Run[None]:
    """Keep the best of the stored and the new statements, scored for the original question."""
    options = inquiry.options
    merged = [*inquiry.inferred, *new]
    if not options.update_evidence:
        inquiry.inferred = tuple(merged)
        return
    unscored = [statement for statement in new if statement not in inquiry.worth]
    prompt = template("retrorag", "evidence")
    worth = yield from scores(inquiry, [prompt(question=inquiry.question, evidence=item) for item in unscored], "evidence")
    inquiry.worth.update(zip(unscored, worth, strict=True))
    inquiry.inferred = tuple(item for item, _ in best(merged, [inquiry.worth[item] for item in merged], options.n_inferred))


def key_entities(inquiry: Inquiry) -> Run[str]:
    """Return the key entities of the question, by the rule of the option."""
    if inquiry.options.entities == "llm":
        prompt = template("retrorag", "entities")(question=inquiry.question)
        written = yield from generate(prompt, inquiry.decoding(inquiry.options.answer_tokens), role="entities")
        names = listed(written.text, is_cut=False)
    else:
        names = capitalised(inquiry.question) if inquiry.options.entities == "capitals" else []
    return "; ".join(names) or _NOBODY


def capitalised(question: str) -> list[str]:
    """Return the runs of words that begin with a capital letter, without the question's opening words."""
    runs = (run.split() for run in _CAPITALISED.findall(question))
    names = []
    for words in runs:
        while words and words[0].casefold() in _OPENING_WORDS:
            words = words[1:]
        names.append(re.sub(r"['’]s$", "", " ".join(words).rstrip(".")))
    return list(dict.fromkeys(filter(None, names)))


def next_query(inquiry: Inquiry, attempt: Attempt) -> Run[str | None]:
    """Ask for the next query (M_R, eq. 5): the first line of the output, or the question if that is blank.

    A repeated query, case and spacing aside, is handled as the option says; None: it ends the rounds.
    """
    options = inquiry.options
    prompt = template("retrorag", "query")(
        source=inquiry.shown_source(), inferred=inquiry.shown_inferred(), reason=attempt.reason, question=inquiry.question
    )
    written = yield from generate(prompt, inquiry.decoding(options.answer_tokens), role="query")
    query = _LABEL.sub("", first_line(written.text)).strip(" \"'`“”‘’*") or inquiry.question
    if options.repeated_query == "search" or text_key(query) not in map(text_key, inquiry.searched):
        return query
    return None if options.repeated_query == "stop" else f"{inquiry.question} {attempt.answer}".strip()
