"""The algorithm of RetroRAG: rounds of evidence collation, answering, answer evaluation and evidence discovery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.forms import FORMS
from wikidx.runtimes.methods.reading import reads_passages
from wikidx.runtimes.methods.requests import label

from .answerer import Attempt, answer_question, assess, check_consistency
from .evidence import collate, discover, next_query
from .options import RetroRAGOptions
from .state import State, summarize_verdicts


class Round(NamedTuple):
    """The result of a round: its attempt, its record as JSON values, and the next round's query (None: there is no next round)."""

    attempt: Attempt
    record: dict[str, Any]
    next_query: str | None = None


@reads_passages
async def retrorag(question: str, options: RetroRAGOptions) -> Answer:
    """Run rounds until an answer is accepted, ``max_rounds`` is reached, or a query is repeated while ``repeated_query`` is "stop"."""
    state = State(question=question, options=options)
    rounds: list[Round] = []
    n_rounds = options.max_rounds if options.ellery else 1
    query: str | None = question
    while query is not None:
        number = len(rounds) + 1
        with label(f"round {number}"):
            rounds.append(await _round(state, query, is_last=number == n_rounds))
        query = rounds[-1].next_query
    attempts = [round_.attempt for round_ in rounds]
    final = _select_attempt(attempts, options)
    if options.assessor == "after":
        final = await assess(state, final)
    answer = FORMS[options.form].read(final.answer, 0)
    detail = {
        "accepted": _is_accepted(attempts[-1], options),
        "n_rounds": len(rounds),
        "entities": state.entities,
        "parse_ok": final.parse_ok and answer.is_read,
        "yes_no": summarize_verdicts(state.verdicts),
        "rounds": [round_.record for round_ in rounds],
    }
    return Answer(answer.text, final.source, detail)


async def _round(state: State, query: str, *, is_last: bool) -> Round:
    """Collate evidence (M_e), answer the question (M_C, M_D), and score the answer's consistency (M_sc).

    If the answer is rejected, infer statements (M_IE) and generate the next query (M_R); the last round does neither.
    """
    options = state.options
    matching_query = f"{state.question} {query}" if state.queries else state.question
    record: dict[str, Any] = {"query": query}
    if options.ellery:
        state.queries.append(query)
        record["source"] = await collate(state, query, matching_query)
    attempt = await answer_question(state)
    if options.assessor == "before":
        attempt = await assess(state, attempt)
    attempt = await check_consistency(state, attempt)
    record |= {name: getattr(attempt, name) for name in ("reason", "answer", "parse_ok", "monitor", "consistency")}
    if is_last or _is_accepted(attempt, options):
        return Round(attempt, record)
    if options.inferential_evidence:
        record["candidates"] = await discover(state, matching_query)
        record["inferred"] = [{"text": statement, "score": state.usefulness.get(statement)} for statement in state.inferred]
    query_ = await next_query(state, attempt)
    return Round(attempt, record if query_ is None else {**record, "next_query": query_}, query_)


def _is_accepted(attempt: Attempt, options: RetroRAGOptions) -> bool:
    return attempt.consistency is not None and attempt.consistency > options.threshold


def _select_attempt(attempts: Sequence[Attempt], options: RetroRAGOptions) -> Attempt:
    """Return the last attempt or, if it is rejected and ``at_budget`` is "best", the most consistent attempt (the latest among equals)."""
    if options.at_budget == "last" or _is_accepted(attempts[-1], options):
        return attempts[-1]
    return max(reversed(attempts), key=lambda attempt: -1.0 if attempt.consistency is None else attempt.consistency)
