"""The algorithm of RetroRAG: rounds of evidence collation, a checked answer, and evidence discovery (ELLERY)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.requests import Run, named

from .answerer import Attempt, answered, assessed, judged
from .evidence import collate, discover, next_query
from .inquiry import Inquiry, summary_of
from .options import RetroRAGOptions


class Round(NamedTuple):
    """A round: its answer, its record as JSON values, and the query of the next round; None: there is none."""

    attempt: Attempt
    record: dict[str, Any]
    next_query: str | None = None


def retrorag(question: str, options: RetroRAGOptions) -> Run[Answer]:
    """Answer in rounds until an answer is accepted or the limit of rounds is reached."""
    inquiry = Inquiry(question=question, options=options)
    rounds: list[Round] = []
    n_rounds = options.max_rounds if options.ellery else 1
    query: str | None = question
    while query is not None:
        number = len(rounds) + 1
        rounds.append((yield from named(f"round {number}", _round(inquiry, query, is_last=number == n_rounds))))
        query = rounds[-1].next_query
    attempts = [one.attempt for one in rounds]
    final = _chosen(attempts, options)
    if options.assessor == "after":
        final = yield from assessed(inquiry, final)
    detail = {
        "accepted": _is_accepted(attempts[-1], options),
        "n_rounds": len(rounds),
        "entities": inquiry.entities,
        "parse_ok": final.parse_ok,
        "yes_no": summary_of(inquiry.verdicts),
        "rounds": [one.record for one in rounds],
    }
    return Answer(final.answer, final.source, detail)


def _round(inquiry: Inquiry, query: str, *, is_last: bool) -> Run[Round]:
    """Collate evidence for the query (M_e), answer (M_C, M_D) and judge (M_sc); if unsure, infer (M_IE) and ask for a query (M_R)."""
    options = inquiry.options
    matching = f"{inquiry.question} {query}" if inquiry.searched else inquiry.question
    record: dict[str, Any] = {"query": query}
    if options.ellery:
        inquiry.searched.append(query)
        record["source"] = yield from collate(inquiry, query, matching)
    attempt = yield from answered(inquiry)
    if options.assessor == "before":
        attempt = yield from assessed(inquiry, attempt)
    attempt = yield from judged(inquiry, attempt)
    record |= {name: getattr(attempt, name) for name in ("reason", "answer", "parse_ok", "monitor", "consistency")}
    if is_last or _is_accepted(attempt, options):
        return Round(attempt, record)
    if options.inferential_evidence:
        record["candidates"] = yield from discover(inquiry, matching)
        record["inferred"] = [{"text": statement, "score": inquiry.worth.get(statement)} for statement in inquiry.inferred]
    next_ = yield from next_query(inquiry, attempt)
    return Round(attempt, record if next_ is None else {**record, "next_query": next_}, next_)


def _is_accepted(attempt: Attempt, options: RetroRAGOptions) -> bool:
    return attempt.consistency is not None and attempt.consistency > options.threshold


def _chosen(attempts: Sequence[Attempt], options: RetroRAGOptions) -> Attempt:
    """Return the last answer or, if none was accepted and the option says so, the most consistent one, the later among equals."""
    if options.at_budget == "last" or _is_accepted(attempts[-1], options):
        return attempts[-1]
    return max(reversed(attempts), key=lambda attempt: -1.0 if attempt.consistency is None else attempt.consistency)
