"""The table of question formats: the shape of a record of each, and its reader.

A file's format is the first one in the table that its first record matches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from .base import FEVER_LABELS, Question
from .claims import fever
from .kilt import kilt
from .long_form import asqa, begin, halluqa
from .multi_hop import hotpotqa, strategyqa, strategyqa_bigbench, twowiki, with_aliases
from .open_domain import dpr, dpr_table, plain, popqa, squad, topic, triviaqa, written_list
from .records import Record


class Format(NamedTuple):
    """A format of questions.

    Attributes:
        name: value of ``--format``.
        record: an example, on one line.
        matches: whether a file's first record has this format.
        read: a record -> its question; raises ``InputError`` if it is invalid.
        split: the split to read, of files that hold several; "": they hold one.
        complete: adds data to all questions once they are read; None: nothing to add.
    """

    name: str
    record: str
    matches: Callable[[Record], bool]
    read: Callable[[Record], Question]
    split: str = ""
    complete: Callable[[Path, Sequence[Question]], list[Question]] | None = None


def _has(*fields: str) -> Callable[[Record], bool]:
    return lambda record: isinstance(record.value, dict) and all(field in record.value for field in fields)


def _either(*checks: Callable[[Record], bool]) -> Callable[[Record], bool]:
    return lambda record: any(check(record) for check in checks)


def _is_twowiki(record: Record) -> bool:
    return _has("question", "supporting_facts")(record) and not {"evidences", "answer_id", "entity_ids"}.isdisjoint(record.value)


def _is_strategyqa(record: Record) -> bool:
    return _has("question")(record) and (isinstance(record.value.get("answer"), bool) or _has("qid", "decomposition")(record))


def _is_claim(record: Record) -> bool:
    return _has("claim")(record) or (_has("question", "label")(record) and record.value["label"] in FEVER_LABELS)


def _is_nq_open(record: Record) -> bool:
    return _has("question", "answer")(record) and isinstance(record.value["answer"], list | str)


def _is_triviaqa(record: Record) -> bool:
    return _has("Question", "QuestionId")(record) or (_has("question", "answer")(record) and isinstance(record.value["answer"], dict))


def _is_squad(record: Record) -> bool:
    if not _has("question", "answers")(record):
        return False
    answers = record.value["answers"]
    return (
        "is_impossible" in record.value
        or isinstance(answers, dict)
        or (isinstance(answers, list) and isinstance(next(iter(answers), None), dict))
    )


def _is_halluqa(record: Record) -> bool:
    return _has("Question")(record) and any(name.startswith("Best") for name in record.value)


def _is_kilt(record: Record) -> bool:
    if not _either(_has("input"), _has("question", "output"))(record) or "target_scores" in record.value:
        return False
    return isinstance(record.value.get("output", []), list)


def _is_answered_row(record: Record) -> bool:
    row = record.value
    return isinstance(row, tuple) and len(row) == 2 and isinstance(written_list(row[1]), list)


def _is_topic(record: Record) -> bool:
    row = record.value
    return isinstance(row, tuple) and len(row) == 2 and len(row[0].split()) == 1 and not row[1].lstrip().startswith("[")


def _is_table_with_answers(record: Record) -> bool:
    return _has("question", "answers")(record) and isinstance(record.value["answers"], str)


_ALL = (
    Format(
        "popqa",
        "PopQA, TSV or JSON: id, question, possible_answers (a JSON list in a field), prop, s_pop",
        _has("question", "possible_answers"),
        popqa,
    ),
    Format("triviaqa", "TriviaQA's own JSON: Data: [{QuestionId, Question, Answer: {Value, Aliases}}]", _is_triviaqa, triviaqa),
    Format(
        "2wikimultihopqa",
        "{_id, question, answer, answer_id, supporting_facts}; id_aliases.json beside it",
        _is_twowiki,
        twowiki,
        "",
        with_aliases,
    ),
    Format(
        "hotpotqa", "{_id, question, answer, type, supporting_facts: [[title, sentence]]}", _has("question", "supporting_facts"), hotpotqa
    ),
    Format("strategyqa", "{qid, question, answer: true or false}", _is_strategyqa, strategyqa),
    Format(
        "strategyqa-bigbench",
        "BIG-bench's: examples: [{input, target_scores: {Yes, No}}]",
        _has("input", "target_scores"),
        strategyqa_bigbench,
    ),
    Format("fever", "{id, claim, label: SUPPORTS, REFUTES or NOT ENOUGH INFO, evidence}; question for claim", _is_claim, fever),
    Format("alce", "ALCE's file of ASQA: [{question, qa_pairs, annotations, docs}]", _has("question", "qa_pairs", "docs"), asqa),
    Format("asqa", "ASQA: {dev: {id: {ambiguous_question, qa_pairs, annotations}}}, or a list of them", _has("qa_pairs"), asqa, "dev"),
    Format("asqa-train", "the same file's training questions", _has("qa_pairs"), asqa, "train"),
    Format("kilt", "KILT, WoW among it: {id, input, output: [{answer, provenance}]}", _is_kilt, kilt),
    Format("halluqa", "HalluQA: [{question_id, Question, Best Answer…, Wrong_Answer…, Category}]", _is_halluqa, halluqa),
    Format(
        "begin", "BEGIN's table of Wizard of Wikipedia: message, knowledge, response with a header", _has("message", "knowledge"), begin
    ),
    Format("squad", "SQuAD 1.1 and 2.0: data: [{title, paragraphs: [{qas: [{id, question, answers: [{text}]}]}]}]", _is_squad, squad),
    Format("dpr", "DPR's JSON, NQ and TriviaQA: [{question, answers, positive_ctxs}]", _has("question", "answers", "positive_ctxs"), dpr),
    Format(
        "dpr-tsv", "DPR's TSV, topics.dpr.*: question, tab, ['answer', …]", _either(_is_answered_row, _is_table_with_answers), dpr_table
    ),
    Format("topics", "TREC topics as TSV: id, tab, question; no answers", _is_topic, topic),
    Format("flashrag", "FlashRAG, idx: {id, question, golden_answers}", _has("question", "golden_answers"), plain),
    Format("fid", "FiD: {id, question, answers, ctxs}", _has("question", "answers", "ctxs"), plain),
    Format("self-reasoning", "Self-Reasoning's samples: {question, answers, passages}", _has("question", "answers", "passages"), plain),
    Format("nq-open", "NQ-open: {question, answer: […]}", _is_nq_open, plain),
    Format("ottqa", "OTT-QA, HybridQA: [{question_id, question, answer-text}]", _has("question", "answer-text"), plain),
    Format("questions", "any other: {question}, with id and answers or not", lambda record: not isinstance(record.value, tuple), plain),
)

FORMATS = {one.name: one for one in _ALL}
