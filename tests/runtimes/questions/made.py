"""A small made-up file of every format, and the questions it holds."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from wikidx.runtimes.questions import Question


class Made(NamedTuple):
    """The content of a file in a format, and the questions expected from it; ``file`` distinguishes two files of one format."""

    format: str
    file: str
    content: str
    questions: list[Question]


def lines(*records: object) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def array(*records: object) -> str:
    return json.dumps(records, indent=2)


def one(text: str, *answers: str, id: str = "1", **gold: Any) -> Question:  # noqa: ANN401 - JSON
    return Question(id, text, answers, gold)


_SUPPORTING = [["The Nile", 0], ["Lake Victoria", 2], ["The Nile", 1]]
_HOP: dict[str, Any] = {
    "_id": "5ab",
    "question": "Where does the Nile end?",
    "answer": "Egypt",
    "supporting_facts": _SUPPORTING,
    "type": "bridge",
}
_HOP_GOLD = {"titles": ["The Nile", "Lake Victoria"], "supporting": _SUPPORTING, "type": "bridge"}
_POPQA: dict[str, Any] = {"id": 7, "prop": "capital", "s_pop": 42, "question": "What is the capital of Peru?"}
_TRIVIA_ANSWER = {
    "Value": "LIMA",
    "Aliases": ["Lima", "Lima, Peru"],
    "NormalizedAliases": ["lima"],
    "HumanAnswers": ["Lima town"],
    "Type": "X",
}
_PAIRS = [
    {"question": "Who won in 1930?", "short_answers": ["Uruguay", "URU"], "wikipage": None},
    {"question": "Who won in 1934?", "short_answers": ["Italy", "URU"]},
]
_ASQA_QUESTION = {
    "ambiguous_question": "Who won the cup?",
    "qa_pairs": _PAIRS,
    "annotations": [{"knowledge": [], "long_answer": "Uruguay, then Italy."}],
}
_ASQA_GOLD = {"answer_groups": [["Uruguay", "URU"], ["Italy", "URU"]], "long_answers": ["Uruguay, then Italy."]}
_PAGE = {"wikipedia_id": "290", "title": "Lima", "start_paragraph_id": 1, "end_paragraph_id": 1}
_BIG_BENCH = {"input": "Can a nut float?", "target_scores": {"Yes": 1, "No": 0}, "target": "Yes. It is light."}

_SQUAD = [
    {
        "title": "Nile",
        "paragraphs": [
            {
                "context": "In Egypt.",
                "qas": [{"id": "a", "question": "Whose?", "answers": [{"text": "Egypt", "answer_start": 3}] * 2, "is_impossible": False}],
            },
            {"context": "Long.", "qas": [{"id": "b", "question": "Why?", "answers": [], "is_impossible": True}]},
        ],
    }
]
_SQUAD_QUESTIONS = [one("Whose?", "Egypt", id="a", titles=["Nile"]), one("Why?", id="b", titles=["Nile"])]

MADE = (
    Made("flashrag", "", lines({"id": "test_0", "question": "Who?", "golden_answers": ["A", "B"]}), [one("Who?", "A", "B", id="test_0")]),
    Made(
        "flashrag",
        "metadata",
        lines(
            {
                "id": "dev_0",
                "question": "Where?",
                "golden_answers": ["Egypt"],
                "metadata": {
                    "type": "bridge",
                    "s_pop": 3,
                    "supporting_facts": {"title": ["The Nile", "Lake Victoria", "The Nile"], "sent_id": [0, 2, 1]},
                },
            }
        ),
        [one("Where?", "Egypt", id="dev_0", **_HOP_GOLD, popularity=3)],
    ),
    Made(
        "nq-open",
        "",
        lines({"question": "Who?", "answer": ["A", "B"]}, {"question": "When?", "answer": "now"}),
        [one("Who?", "A", "B"), one("When?", "now", id="2")],
    ),
    Made(
        "fid",
        "",
        array({"id": 0, "question": "Who?", "target": "A", "answers": ["A", "B"], "ctxs": [{"title": "T", "text": "t"}]}),
        [one("Who?", "A", "B", id="0")],
    ),
    Made("self-reasoning", "", lines({"question": "Who?", "answers": ["A"], "passages": ["Document 1 (Title: T): t"]}), [one("Who?", "A")]),
    Made(
        "questions",
        "",
        lines({"qid": "litm0", "question": "Who?", "answers": ["A"], "gold_ids": ["18", 9]}),
        [one("Who?", "A", id="litm0", passages=["18", "9"])],
    ),
    Made("questions", "bare", lines({"question": "Who?"}), [one("Who?")]),
    Made(
        "dpr",
        "",
        array(
            {
                "question": "Who?",
                "answers": ["A"],
                "positive_ctxs": [{"title": "T", "text": "t", "passage_id": "11"}, {"title": "T", "text": "u", "psg_id": 12}],
                "negative_ctxs": [],
                "hard_negative_ctxs": [],
            },
            {"question": "When?", "answers": [], "positive_ctxs": []},
        ),
        [one("Who?", "A", titles=["T"], passages=["11", "12"]), one("When?", id="2")],
    ),
    Made(
        "dpr-tsv",
        "",
        'who sang "it"\t[\'A\', \'B\\\'s\']\r\n"a ""quoted"" one"\t"[\'C\', ""D\'s""]"\r\nwho\t["\\u00e9"]\n',
        [one('who sang "it"', "A", "B's"), one('a "quoted" one', "C", "D's", id="2"), one("who", "é", id="3")],
    ),
    Made("dpr-tsv", "header", "question\tanswers\nwho\t['A']\n", [one("who", "A", id="2")]),
    Made("topics", "", "0\twho got it\n1\twho else\n", [one("who got it", id="0"), one("who else", id="1")]),
    Made(
        "triviaqa",
        "",
        json.dumps(
            {
                "Data": [
                    {
                        "Answer": _TRIVIA_ANSWER,
                        "Question": "What is the capital of Peru?",
                        "QuestionId": "tc_1",
                        "SearchResults": [{"Rank": 0}],
                    }
                ],
                "Domain": "Web",
                "VerifiedEval": False,
                "Version": 1.0,
            },
            indent=2,
        ),
        [one("What is the capital of Peru?", "LIMA", "Lima", "Lima, Peru", "Lima town", id="tc_1")],
    ),
    Made(
        "triviaqa",
        "hub",
        lines(
            {
                "question": "What?",
                "question_id": "tc_2",
                "answer": {"value": "Lima", "aliases": ["Lima", "LIMA"], "normalized_aliases": ["lima"]},
            }
        ),
        [one("What?", "Lima", "LIMA", id="tc_2")],
    ),
    Made("squad", "", json.dumps({"version": "v2.0", "data": _SQUAD}), _SQUAD_QUESTIONS),
    Made("squad", "data first", json.dumps({"data": _SQUAD, "version": "v2.0"}, indent=1), _SQUAD_QUESTIONS),
    Made(
        "squad",
        "hub",
        lines({"id": "a", "title": "Nile", "question": "Whose?", "answers": {"text": ["Egypt"], "answer_start": [4]}}),
        _SQUAD_QUESTIONS[:1],
    ),
    Made("ottqa", "", array({"question_id": "x", "question": "Who?", "table_id": "t", "answer-text": "A"}), [one("Who?", "A", id="x")]),
    Made(
        "popqa",
        "",
        'id\tprop\ts_pop\tquestion\tpossible_answers\n7\tcapital\t42\tWhat is the capital of Peru?\t"[""Lima"", ""City of \\u00c9""]"\n',
        [one(_POPQA["question"], "Lima", "City of É", id="7", popularity=42, type="capital")],
    ),
    Made(
        "popqa",
        "json",
        lines({**_POPQA, "possible_answers": '["Lima"]'}),
        [one(_POPQA["question"], "Lima", id="7", popularity=42, type="capital")],
    ),
    Made("popqa", "list", lines({"question": "What?", "possible_answers": ["Lima"]}), [one("What?", "Lima")]),
    Made(
        "hotpotqa",
        "",
        array({**_HOP, "level": "hard", "context": [["The Nile", ["A river.", " It ends."]]]}),
        [one(_HOP["question"], "Egypt", id="5ab", **_HOP_GOLD)],
    ),
    Made(
        "hotpotqa",
        "hub",
        lines({**_HOP, "supporting_facts": {"title": ["The Nile", "Lake Victoria", "The Nile"], "sent_id": [0, 2, 1]}}),
        [one(_HOP["question"], "Egypt", id="5ab", **_HOP_GOLD)],
    ),
    Made(
        "2wikimultihopqa",
        "",
        array({**_HOP, "evidences": [], "answer_id": "Q79"}),
        [one(_HOP["question"], "Egypt", id="5ab", **_HOP_GOLD, answer_id="Q79")],
    ),
    Made(
        "strategyqa",
        "",
        array({"qid": "e0", "question": "Can a nut float?", "answer": True}, {"qid": "e1", "question": "Can it fly?", "answer": False}),
        [one("Can a nut float?", "yes", id="e0"), one("Can it fly?", "no", id="e1")],
    ),
    Made(
        "strategyqa-bigbench",
        "",
        json.dumps({"canary": "…", "metrics": ["multiple_choice_grade"], "examples": [_BIG_BENCH]}),
        [one("Can a nut float?", "yes")],
    ),
    Made(
        "fever",
        "",
        lines(
            {
                "id": 3,
                "claim": "Soul Food is a film.",
                "label": "SUPPORTS",
                "evidence": [[[1, 2, "Soul_Food_-LRB-film-RRB-", 0], [1, 3, "Soul_Food_-LRB-film-RRB-", 4]]],
            },
            {"id": 4, "claim": "Nobody knows.", "label": "NOT ENOUGH INFO", "evidence": [[[5, None, None, None]]]},
            {"id": 5, "claim": "Unlabelled."},
        ),
        [
            one("Soul Food is a film.", "SUPPORTS", id="3", label="SUPPORTS", titles=["Soul Food (film)"]),
            one("Nobody knows.", "NOT ENOUGH INFO", id="4", label="NOT ENOUGH INFO"),
            one("Unlabelled.", id="5"),
        ],
    ),
    Made(
        "fever",
        "question",
        lines({"id": 3, "question": "It is.", "label": "REFUTES", "evidence": [[[1, 2, "It", 0]]], "pars": ["…"]}),
        [one("It is.", "REFUTES", id="3", label="REFUTES", titles=["It"])],
    ),
    Made(
        "asqa",
        "",
        json.dumps({"train": {"-1": _ASQA_QUESTION}, "dev": {"-2": _ASQA_QUESTION}}),
        [one("Who won the cup?", "Uruguay", "URU", "Italy", id="-2", **_ASQA_GOLD)],
    ),
    Made(
        "asqa", "list", array({**_ASQA_QUESTION, "id": "-2"}), [one("Who won the cup?", "Uruguay", "URU", "Italy", id="-2", **_ASQA_GOLD)]
    ),
    Made(
        "alce",
        "",
        array(
            {
                "sample_id": "5",
                "question": "Who won the cup?",
                "qa_pairs": _PAIRS,
                "answer": "Uruguay, then Italy.",
                "docs": [{"id": "1", "title": "Cup", "text": "…"}],
            }
        ),
        [one("Who won the cup?", "Uruguay", "URU", "Italy", id="5", **_ASQA_GOLD)],
    ),
    Made(
        "kilt",
        "",
        lines(
            {
                "id": "a",
                "input": "capital?",
                "output": [{"answer": "Lima", "provenance": [{**_PAGE, "bleu_score": 1.0}]}, {"answer": "lima"}, {"provenance": [_PAGE]}],
                "meta": {},
            },
            {"id": "b", "input": "It is.", "output": [{"answer": "REFUTES"}]},
            {"id": "c", "input": "I like it.\nSo do I.\nWhy?"},
        ),
        [
            one("capital?", "Lima", "lima", id="a", long_answers=["Lima", "lima"], titles=["Lima"], provenance=[[_PAGE], [], [_PAGE]]),
            one("It is.", "REFUTES", id="b", label="REFUTES", provenance=[[]]),
            one("I like it.\nSo do I.\nWhy?", id="c"),
        ],
    ),
    Made(
        "halluqa",
        "",
        array(
            {
                "question_id": 1,
                "Question": "你是谁？",
                "Best Answer1": "模型",
                "Best Answer2": "软件",
                "Best Answer3": "",
                "Wrong_Answer1": "人",
                "Wrong_Answer2": "狗",
                "Category": "Misleading",
            },
            {"question_id": 2, "Question": "首都？", "Best Answer": "利马", "Wrong_Answer": "库斯科", "Category": "Knowledge"},
        ),
        [
            one("你是谁？", "模型", "软件", type="Misleading", wrong_answers=["人", "狗"]),
            one("首都？", "利马", id="2", type="Knowledge", wrong_answers=["库斯科"]),
        ],
    ),
    Made(
        "begin",
        "",
        "model_name\tdata_source\tknowledge\tmessage\tresponse\tbegin_label\n"
        't5\twow\tIt is blue.\t"I said ""blue""."\tyes\tFully attributable\n',
        [one('I said "blue".', id="2", type="wow")],
    ),
)
