"""ELLERY, evidence collation and discovery: selection of passages, inference of statements, generation of the next query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from wikidx.corpora.passage import text_key
from wikidx.runtimes.methods.model_output import first_line, parse_list
from wikidx.runtimes.methods.requests import gather, generate, retrieve
from wikidx.runtimes.methods.templates import format_passage, load_template

from .answerer import Attempt
from .state import State, keep_best, score_yes

_CAPITALISED = re.compile(r"(?:[^\W\d_a-z][\w.'’-]*)(?:\s+[^\W\d_a-z][\w.'’-]*)*")
_OPENING_WORDS = frozenset("a are did do does for from how in is of on the to was were what when where which who whom whose why".split())
_NO_ENTITIES = "whatever the question names"
_LABEL = re.compile(r"^(?:search |new |next )?query\s*:\s*", re.IGNORECASE)


async def collate(state: State, query: str, matching_query: str) -> list[dict[str, Any]]:
    """Retrieve passages for ``query``, and keep those old and new passages that are most useful for ``matching_query`` (M_e, eq. 2).

    If the option ``update_evidence`` is off, all passages are kept.

    Returns:
        Ids and scores of the kept passages, for the round's record.
    """
    options = state.options
    passages = await retrieve(query, options.k)
    candidates = list({passage.id: passage for passage in (*state.source, *passages)}.values())
    if not options.update_evidence:
        state.source = tuple(candidates)
        return [{"id": passage.id, "score": None} for passage in state.source]
    prompt = load_template("retrorag", "evidence")
    usefulness = await score_yes(
        state, [prompt(question=matching_query, evidence=format_passage(passage)) for passage in candidates], "evidence"
    )
    selected = keep_best(candidates, usefulness, options.n_source)
    state.source = tuple(passage for passage, _ in selected)
    return [{"id": passage.id, "score": score} for passage, score in selected]


async def discover(state: State, matching_query: str) -> list[dict[str, Any]]:
    """Infer statements from the passages (M_IE), drop irrelevant or unsupported statements, and keep the most useful (M_e, eq. 3 and 4).

    Statements that are kept already, but for case and spaces, are dropped first.

    Returns:
        The new statements with their scores, for the round's record.
    """
    options = state.options
    if not state.source:
        return []
    state.entities = state.entities or await find_entities(state)
    prompt = load_template("retrorag", "infer")(source=state.format_source(), entities=state.entities, question=state.question)
    output = await generate(prompt, state.decoding, role="inference")
    known_keys = set(map(text_key, state.inferred))
    statements = [item for item in parse_list(output.text, is_cut=output.finish == "length") if text_key(item) not in known_keys]
    candidates = await _apply_gates(state, statements[: options.max_inferences or None], matching_query)
    await _update(state, [candidate["text"] for candidate in candidates if candidate["kept"]])
    return candidates


async def _apply_gates(state: State, statements: Sequence[str], matching_query: str) -> list[dict[str, Any]]:
    """Score each statement's relevance to the matching query (M_qr) and its attribution to the passages (M_ra).

    A statement is kept if both scores exceed the option ``gate``.
    """
    if not state.options.evaluate_evidence:
        return [{"text": statement, "relevance": None, "attribution": None, "kept": True} for statement in statements]
    inferred, source = state.format_inferred(), state.format_source()
    relevance_prompt, attribution_prompt = load_template("retrorag", "relevance"), load_template("retrorag", "attribution")
    relevances, attributions = await gather(
        score_yes(
            state, [relevance_prompt(question=matching_query, inferred=inferred, statement=item) for item in statements], "relevance"
        ),
        score_yes(state, [attribution_prompt(source=source, statement=item) for item in statements], "attribution"),
    )
    gate = state.options.gate
    return [
        {"text": statement, "relevance": relevance, "attribution": attribution, "kept": relevance > gate and attribution > gate}
        for statement, relevance, attribution in zip(statements, relevances, attributions, strict=True)
    ]


async def _update(state: State, added: Sequence[str]) -> None:
    """Keep those old and new statements that are most useful for the question, or all if the option ``update_evidence`` is off."""
    options = state.options
    statements = [*state.inferred, *added]
    if not options.update_evidence:
        state.inferred = tuple(statements)
        return
    unscored = [statement for statement in added if statement not in state.usefulness]
    prompt = load_template("retrorag", "evidence")
    usefulness = await score_yes(state, [prompt(question=state.question, evidence=item) for item in unscored], "evidence")
    state.usefulness.update(zip(unscored, usefulness, strict=True))
    state.inferred = tuple(item for item, _ in keep_best(statements, [state.usefulness[item] for item in statements], options.n_inferred))


async def find_entities(state: State) -> str:
    """Return the question's key entities as text. The option ``entities`` selects the method that finds them."""
    if state.options.entities == "llm":
        prompt = load_template("retrorag", "entities")(question=state.question)
        output = await generate(prompt, state.brief, role="entities")
        names = parse_list(output.text, is_cut=False)
    else:
        names = find_capitalised(state.question) if state.options.entities == "capitals" else []
    return "; ".join(names) or _NO_ENTITIES


def find_capitalised(question: str) -> list[str]:
    """Return the distinct runs of capitalised words, without leading function words."""
    runs = (run.split() for run in _CAPITALISED.findall(question))
    names = []
    for words in runs:
        while words and words[0].casefold() in _OPENING_WORDS:
            words = words[1:]
        names.append(re.sub(r"['’]s$", "", " ".join(words).rstrip(".")))
    return list(dict.fromkeys(filter(None, names)))


async def next_query(state: State, attempt: Attempt) -> str | None:
    """Generate the next query (M_R, eq. 5); None ends the rounds.

    A blank output becomes the question. A query is repeated if it differs from an earlier query only in case, spacing or Unicode
    compatibility forms. The option ``repeated_query`` sets the handling of repeated queries.
    """
    options = state.options
    prompt = load_template("retrorag", "query")(
        source=state.format_source(), inferred=state.format_inferred(), reason=attempt.reason, question=state.question
    )
    output = await generate(prompt, state.brief, role="query")
    query = _LABEL.sub("", first_line(output.text)).strip(" \"'`“”‘’*")
    query = (query.replace('"', "") if query.count('"') == 1 else query) or state.question
    if options.repeated_query == "search" or text_key(query) not in map(text_key, state.queries):
        return query
    return None if options.repeated_query == "stop" else f"{state.question} {attempt.answer}".strip()
