"""Multi-hop questions: HotpotQA, 2WikiMultihopQA, StrategyQA."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from wikidx.corpora.errors import InputError

from .base import Question, gold
from .fields import id_from, identifier, once, text_from, text_of, texts_of
from .records import Record, read_records

ALIASES = "id_aliases.json"  # beside the questions in the authors' zip; JSON Lines despite its name

logger = logging.getLogger(__name__)

_YES_NO = {True: "yes", False: "no"}


def twowiki(record: Record) -> Question:
    """Parse a question of 2WikiMultihopQA, in HotpotQA's format; ``with_aliases`` adds its aliases."""
    answer_id = record.value.get("answer_id")
    return hotpotqa(record, None if answer_id in (None, "") else text_from(record, answer_id, "answer_id"))


def hotpotqa(record: Record, answer_id: str | None = None) -> Question:
    """Parse a question of HotpotQA; the test set has no answers."""
    supporting = supporting_facts(record, record.value.get("supporting_facts"))
    kind = record.value.get("type")
    known = gold(
        titles=list(once(fact[0] for fact in supporting)),
        supporting=supporting,
        type=kind if isinstance(kind, str) else None,
        answer_id=answer_id,
    )
    answers = () if record.value.get("answer") is None else (text_of(record, "answer"),)
    return Question(identifier(record), text_of(record, "question"), answers, known)


def supporting_facts(record: Record, given: object) -> list[list[Any]]:
    """Return titles with sentence numbers, given as pairs or, on the hub, as two lists.

    Raises:
        InputError: they are in neither form.
    """
    if given is None:
        return []
    pairs = _paired(given.get("title"), given.get("sent_id")) if isinstance(given, dict) else given
    if not isinstance(pairs, list) or not all(map(_is_fact, pairs)):
        raise InputError(f"{record.where}: the field 'supporting_facts' is {given!r:.40}, not a list of [title, number of a sentence]")
    return [[text_from(record, title, "supporting_facts"), number] for title, number in pairs]


def _paired(titles: object, numbers: object) -> object:
    if not isinstance(titles, list) or not isinstance(numbers, list) or len(titles) != len(numbers):
        return None
    return [list(pair) for pair in zip(titles, numbers, strict=True)]


def _is_fact(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and type(pair[1]) is int


def with_aliases(path: Path, questions: Sequence[Question]) -> list[Question]:
    """Return the questions of a file with aliases of their answers, if the table of aliases is in the same folder.

    As in the official evaluator: aliases and demonyms of the answer's Wikidata id, the last of repeated rows.

    Raises:
        InputError: the table cannot be read.
    """
    file = path.parent / ALIASES
    wanted = {one.gold["answer_id"] for one in questions if "answer_id" in one.gold}
    if not wanted or not file.is_file():
        return list(questions)
    found = dict(_aliases(file, wanted))
    return [_renamed(one, found.get(str(one.gold.get("answer_id")), ())) for one in questions]


def _aliases(file: Path, wanted: Iterable[str]) -> Iterable[tuple[str, tuple[str, ...]]]:
    ids, n_nameless = frozenset(wanted), 0
    for row in read_records(file):
        if not isinstance(row.value, dict) or "Q_id" not in row.value:
            raise InputError(f"{row.where}: {row.value!r:.40} has no 'Q_id': put the authors' table there, or take the file away")
        if row.value["Q_id"] == "":  # the authors' table has one such row
            n_nameless += 1
        elif (answer := id_from(row, row.value["Q_id"])) in ids:
            yield answer, (*texts_of(row, "aliases"), *texts_of(row, "demonyms"))
    if n_nameless:
        logger.warning("%s: %s rows whose 'Q_id' is empty are left out", file, f"{n_nameless:,}")


def _renamed(question: Question, aliases: Sequence[str]) -> Question:
    others = [name for name in once(aliases) if name not in question.golden_answers]
    if not others:
        return question
    return question._replace(golden_answers=(*question.golden_answers, *others), gold=gold(**question.gold, aliases=others))


def strategyqa(record: Record) -> Question:
    """Parse a question of StrategyQA; the answer is yes or no; the test set has none."""
    answer = record.value.get("answer")
    if answer is not None and not isinstance(answer, bool):
        raise InputError(f"{record.where}: the field 'answer' is {answer!r:.40}, neither true nor false")
    return Question(identifier(record), text_of(record, "question"), () if answer is None else (_YES_NO[answer],))


def strategyqa_bigbench(record: Record) -> Question:
    """Parse a question of StrategyQA in BIG-bench's form, which RA-ISF's authors used."""
    scores = record.value.get("target_scores")
    if not isinstance(scores, dict) or {name.lower() for name in scores} != {"yes", "no"}:
        raise InputError(f"{record.where}: the field 'target_scores' is {scores!r:.40}, not scores of 'Yes' and 'No'")
    best = [name.lower() for name, score in scores.items() if score == 1]
    if len(best) != 1:
        raise InputError(f"{record.where}: the field 'target_scores' is {scores!r:.40}: one of the two must be 1")
    return Question(identifier(record), text_of(record, "input"), (best[0],))
