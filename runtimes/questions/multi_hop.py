"""Multi-hop questions: HotpotQA, 2WikiMultihopQA, MuSiQue, StrategyQA."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .base import Question, gold
from .fields import id_from, objects_of, record_id, text_from, text_of, texts_of, unique
from .records import Record, read_records

ALIASES_FILE = "id_aliases.json"  # in the zip file of 2WikiMultihopQA's authors; JSON Lines despite its name

logger = logging.getLogger(__name__)

_YES_NO = {True: "yes", False: "no"}


def parse_twowiki(record: Record) -> Question:
    """Parse a 2WikiMultihopQA question, which has HotpotQA's format and the Wikidata id of the answer."""
    answer_id = record.value.get("answer_id")
    return parse_hotpotqa(record, None if answer_id in (None, "") else text_from(record, answer_id, "answer_id"))


def parse_hotpotqa(record: Record, answer_id: str | None = None) -> Question:
    """Parse a HotpotQA question; the test set has no answers."""
    supporting = supporting_facts(record, record.value.get("supporting_facts"))
    kind = record.value.get("type")
    gold_data = gold(
        titles=list(unique(fact[0] for fact in supporting)),
        supporting=supporting,
        type=kind if isinstance(kind, str) else None,
        answer_id=answer_id,
    )
    answers = () if record.value.get("answer") is None else (text_of(record, "answer"),)
    return Question(record_id(record), text_of(record, "question"), answers, gold_data)


def supporting_facts(record: Record, value: object) -> list[list[Any]]:
    """Return supporting facts as [title, sentence number] pairs.

    Args:
        record: the record, for error messages.
        value: a list of such pairs, or an object of two lists (the Hugging Face hub's form); None: no facts.

    Raises:
        InputError: the value has another form.
    """
    if value is None:
        return []
    pairs = _pair_up(value.get("title"), value.get("sent_id")) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or not all(map(_is_fact, pairs)):
        raise record.wrong("supporting_facts", value, "not a list of [title, number of a sentence]")
    return [[text_from(record, title, "supporting_facts"), number] for title, number in pairs]


def _pair_up(titles: object, numbers: object) -> object:
    if not isinstance(titles, list) or not isinstance(numbers, list) or len(titles) != len(numbers):
        return None
    return [list(pair) for pair in zip(titles, numbers, strict=True)]


def _is_fact(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and type(pair[1]) is int


def add_aliases(path: Path, questions: Sequence[Question]) -> list[Question]:
    """Add answer aliases to the questions of a file, if the alias table is in the same folder.

    As in 2WikiMultihopQA's official evaluator, these are the table's ``aliases`` and ``demonyms`` for the answer's Wikidata id. If
    several rows of the table have the same id, the last row counts.

    Raises:
        InputError: the alias table cannot be read.
    """
    file = path.parent / ALIASES_FILE
    answer_ids = {question.gold["answer_id"] for question in questions if "answer_id" in question.gold}
    if not answer_ids or not file.is_file():
        return list(questions)
    aliases = dict(_read_aliases(file, answer_ids))
    return [_extend_answers(question, aliases.get(str(question.gold.get("answer_id")), ())) for question in questions]


def _read_aliases(file: Path, answer_ids: Iterable[str]) -> Iterable[tuple[str, tuple[str, ...]]]:
    ids, n_nameless = frozenset(answer_ids), 0
    for row in read_records(file):
        if not isinstance(row.value, dict) or "Q_id" not in row.value:
            raise row.error(f"{row.value!r:.40} has no 'Q_id': put the authors' table there, or take the file away")
        if row.value["Q_id"] == "":  # an empty id occurs once in the authors' table
            n_nameless += 1
        elif (answer := id_from(row, row.value["Q_id"])) in ids:
            yield answer, (*texts_of(row, "aliases"), *texts_of(row, "demonyms"))
    if n_nameless:
        logger.warning("%s: %s rows whose 'Q_id' is empty are left out", file, f"{n_nameless:,}")


def _extend_answers(question: Question, aliases: Sequence[str]) -> Question:
    new = [name for name in unique(aliases) if name not in question.golden_answers]
    if not new:
        return question
    return question._replace(golden_answers=(*question.golden_answers, *new), gold=gold(**question.gold, aliases=new))


def parse_musique(record: Record) -> Question:
    """Parse a MuSiQue question, with its aliases as further answers; a question of MuSiQue-Full may be unanswerable.

    The gold ``titles`` are those of the supporting paragraphs.
    """
    answers = (text_of(record, "answer"), *texts_of(record, "answer_aliases")) if record.value.get("answerable", True) else ()
    titles = [text_from(record, item.get("title"), "title") for item in objects_of(record, "paragraphs") if item.get("is_supporting")]
    hops = len(objects_of(record, "question_decomposition")) or None
    return Question(record_id(record), text_of(record, "question"), unique(answers), gold(titles=list(unique(titles)), hops=hops))


def parse_strategyqa(record: Record) -> Question:
    """Parse a StrategyQA question. The answer is "yes" or "no"; the test set has no answers."""
    answer = record.value.get("answer")
    if answer is not None and not isinstance(answer, bool):
        raise record.wrong("answer", answer, "neither true nor false")
    return Question(record_id(record), text_of(record, "question"), () if answer is None else (_YES_NO[answer],))


def parse_strategyqa_bigbench(record: Record) -> Question:
    """Parse a StrategyQA question in BIG-bench's format, which the authors of RA-ISF used."""
    scores = record.value.get("target_scores")
    if not isinstance(scores, dict) or {name.lower() for name in scores} != {"yes", "no"}:
        raise record.wrong("target_scores", scores, "not scores of 'Yes' and 'No'")
    best = [name.lower() for name, score in scores.items() if score == 1]
    if len(best) != 1:
        raise record.error(f"the field 'target_scores' is {scores!r:.40}: one of the two must be 1")
    return Question(record_id(record), text_of(record, "input"), (best[0],))
