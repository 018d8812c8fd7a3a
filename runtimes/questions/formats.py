"""Table of question formats, each with a predicate and a parser.

The format of a file is the first format in the table whose predicate accepts the file's first record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from wikidx.base.errors import InputError

from .base import FEVER_LABELS, Question
from .claims import parse_fever
from .kilt import parse_kilt
from .long_form import parse_asqa, parse_begin, parse_halluqa
from .multi_hop import add_aliases, parse_hotpotqa, parse_musique, parse_strategyqa, parse_strategyqa_bigbench, parse_twowiki
from .open_domain import (
    ANSWERS,
    parse_beir,
    parse_converted,
    parse_dpr_row,
    parse_list,
    parse_plain,
    parse_popqa,
    parse_squad,
    parse_topic,
    parse_trec_topic,
    parse_triviaqa,
)
from .records import Record
from .topics import Topic


class Format(NamedTuple):
    """A question format.

    Attributes:
        name: value of ``--format``.
        record: a one-line description of the records, for display.
        matches: predicate for a file's first record.
        read: record -> question; raises ``InputError`` for an invalid record.
        split: the split to read from a file of several splits; "": all records are read.
        complete: (path, questions) -> questions with data from other files; None: no other file is read.
    """

    name: str
    record: str
    matches: Callable[[Record], bool]
    read: Callable[[Record], Question]
    split: str = ""
    complete: Callable[[Path, Sequence[Question]], list[Question]] | None = None

    def selects(self, record: Record) -> bool:
        """Return whether a record is of the split to read."""
        return not self.split or not record.path or record.path[0] == self.split


def _has(*fields: str) -> Callable[[Record], bool]:
    needed = frozenset(fields)
    return lambda record: isinstance(record.value, dict) and needed <= record.value.keys()


def _either(*predicates: Callable[[Record], bool]) -> Callable[[Record], bool]:
    return lambda record: any(matches(record) for matches in predicates)


def _is_twowiki(record: Record) -> bool:
    return _has("question", "supporting_facts")(record) and not {"evidences", "answer_id", "entity_ids"}.isdisjoint(record.value)


def _is_strategyqa(record: Record) -> bool:
    return _has("question")(record) and (isinstance(record.value.get("answer"), bool) or _has("qid", "decomposition")(record))


def _is_claim(record: Record) -> bool:
    return _has("claim")(record) or (_has("question", "label")(record) and record.value["label"] in FEVER_LABELS)


def _is_nq_open(record: Record) -> bool:
    return _has("question", "answer")(record) and isinstance(record.value["answer"], list | str)


def _is_triviaqa(record: Record) -> bool:
    answer = record.value.get("answer") if _has("question", "answer")(record) else None
    return _has("Question", "QuestionId")(record) or (isinstance(answer, dict) and not {"value", "aliases"}.isdisjoint(answer))


def _is_squad(record: Record) -> bool:
    if not _has("question", "answers")(record):
        return False
    answers = record.value["answers"]
    first = next(iter(answers), None) if isinstance(answers, list) else answers
    return "is_impossible" in record.value or (isinstance(first, dict) and "text" in first)


def _is_halluqa(record: Record) -> bool:
    return _has("Question")(record) and any(name.startswith("Best") for name in record.value)


def _is_beir(record: Record) -> bool:
    return _has("text")(record) and {"question", "query", "title"}.isdisjoint(record.value)  # passages have a title


def _is_kilt(record: Record) -> bool:
    if not _either(_has("input"), _has("question", "output"))(record) or "target_scores" in record.value:
        return False
    return isinstance(record.value.get("output", []), list) and ("output" in record.value or record.value.keys().isdisjoint(ANSWERS))


def _is_answered_row(record: Record) -> bool:
    row = record.value
    return isinstance(row, tuple) and len(row) == 2 and isinstance(parse_list(row[1]), list)


def _is_topic(record: Record) -> bool:
    row = record.value
    return isinstance(row, tuple) and len(row) == 2 and len(row[0].split()) == 1 and not row[1].lstrip().startswith("[")


def _is_trec(record: Record) -> bool:
    return isinstance(record.value, Topic)


def _is_other(record: Record) -> bool:
    return not isinstance(record.value, tuple)


def _is_table_with_answers(record: Record) -> bool:
    return _has("question", "answers")(record) and isinstance(record.value["answers"], str)


_ALL = (
    Format(
        "trec",
        "TREC topics: <top> with <num> and <title>, or XML: <topic number> with <query>, <query> with <qid> and <content>",
        _is_trec,
        parse_trec_topic,
    ),
    Format("idx", "idx questions': {id, question, golden_answers, gold}", _has("question", "golden_answers", "gold"), parse_converted),
    Format("popqa", "PopQA, TSV or JSON: id, question, possible_answers, prop, s_pop", _has("question", "possible_answers"), parse_popqa),
    Format("triviaqa", "TriviaQA's own JSON: Data: [{QuestionId, Question, Answer: {Value, Aliases}}]", _is_triviaqa, parse_triviaqa),
    Format(
        "2wikimultihopqa",
        "{_id, question, answer, answer_id, supporting_facts}; id_aliases.json in the same folder",
        _is_twowiki,
        parse_twowiki,
        "",
        add_aliases,
    ),
    Format(
        "hotpotqa", "{_id, question, answer, supporting_facts: [[title, sentence]]}", _has("question", "supporting_facts"), parse_hotpotqa
    ),
    Format(
        "musique",
        "MuSiQue: {id, question, answer, answer_aliases, paragraphs, question_decomposition}",
        _has("question", "question_decomposition", "paragraphs"),
        parse_musique,
    ),
    Format("strategyqa", "{qid, question, answer: true or false}", _is_strategyqa, parse_strategyqa),
    Format("strategyqa-bigbench", "BIG-bench's: {input, target_scores}", _has("input", "target_scores"), parse_strategyqa_bigbench),
    Format("fever", "{id, claim, label: SUPPORTS, REFUTES or NOT ENOUGH INFO, evidence}; question for claim", _is_claim, parse_fever),
    Format("alce", "ALCE's file of ASQA: [{question, qa_pairs, annotations, docs}]", _has("question", "qa_pairs", "docs"), parse_asqa),
    Format(
        "asqa",
        "ASQA: {dev: {id: {ambiguous_question, qa_pairs, annotations}}}, or a list of them",
        _has("qa_pairs"),
        parse_asqa,
        "dev",
    ),
    Format("asqa-train", "the same file's training questions", _has("qa_pairs"), parse_asqa, "train"),
    Format("beir", "BEIR's queries.jsonl: {_id, text}, with an id or not; its qrels by --qrels", _is_beir, parse_beir),
    Format("kilt", "KILT, WoW among it: {id, input, output: [{answer, provenance}]}", _is_kilt, parse_kilt),
    Format("halluqa", "HalluQA: [{question_id, Question, Best Answer…, Wrong_Answer…, Category}]", _is_halluqa, parse_halluqa),
    Format("begin", "BEGIN's table of Wizard of Wikipedia: a header with message, knowledge", _has("message", "knowledge"), parse_begin),
    Format("squad", "SQuAD 1.1 and 2.0: data: [{title, paragraphs: [{qas: [{id, question, answers: [{text}]}]}]}]", _is_squad, parse_squad),
    Format(
        "dpr", "DPR's JSON of questions: [{question, answers, positive_ctxs}]", _has("question", "answers", "positive_ctxs"), parse_plain
    ),
    Format(
        "dpr-tsv",
        "DPR's TSV, topics.dpr.*: question, tab, ['answer', …]",
        _either(_is_answered_row, _is_table_with_answers),
        parse_dpr_row,
    ),
    Format("topics", "TREC topics as TSV: id, tab, question; no answers", _is_topic, parse_topic),
    Format("flashrag", "FlashRAG: {id, question, golden_answers}", _has("question", "golden_answers"), parse_plain),
    Format("fid", "FiD: {id, question, answers, ctxs}", _has("question", "answers", "ctxs"), parse_plain),
    Format("self-reasoning", "Self-Reasoning's: {question, answers, passages}", _has("question", "answers", "passages"), parse_plain),
    Format("nq-open", "NQ-open: {question, answer: […]}", _is_nq_open, parse_plain),
    Format("ottqa", "OTT-QA, HybridQA: [{question_id, question, answer-text}]", _has("question", "answer-text"), parse_plain),
    Format("questions", "any other: {question}, {query} or {input}, with id and answers or not; {id: question, …}", _is_other, parse_plain),
)

FORMATS = {entry.name: entry for entry in _ALL}


def find_format(record: Record) -> Format:
    """Return the format of a record; raises ``InputError`` if it is in none."""
    found = next((candidate for candidate in _ALL if candidate.matches(record)), None)
    if found is None:
        advice = (
            "a table has id, tab, question; or question, tab, ['answer', …]; or a header; of lines of text make JSON Lines of {question}"
        )
        raise InputError(f"{record.location}: {record.value!r:.60} is no question in a known format: {advice}")
    return found
