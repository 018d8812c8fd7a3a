"""A small made-up file of every format, and the questions it holds."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from wikidx.runtimes.questions import Question


class FormatFile(NamedTuple):
    """The content of a file in a format, and the questions expected from it; ``file`` distinguishes two files of one format."""

    format: str
    file: str
    content: str
    questions: list[Question]


def lines(*records: object) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def array(*records: object) -> str:
    return json.dumps(records, indent=2)


def item(text: str, *answers: str, id: str = "1", **gold: Any) -> Question:  # noqa: ANN401 - JSON
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
_SQUAD_QUESTIONS = [item("Whose?", "Egypt", id="a", titles=["Nile"]), item("Why?", id="b", titles=["Nile"])]

FORMAT_FILES = (
    FormatFile(
        "idx",
        "",
        lines({"id": "q1", "question": "Who?", "golden_answers": ["A", "B"], "gold": {"titles": ["T"], "provenance": [[_PAGE], []]}}),
        [item("Who?", "A", "B", id="q1", titles=["T"], provenance=[[_PAGE], []])],
    ),
    FormatFile(
        "flashrag", "", lines({"id": "test_0", "question": "Who?", "golden_answers": ["A", "B"]}), [item("Who?", "A", "B", id="test_0")]
    ),
    FormatFile(
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
        [item("Where?", "Egypt", id="dev_0", **_HOP_GOLD, popularity=3)],
    ),
    FormatFile(
        "flashrag",
        "type and hops",
        lines({"id": "1", "question": "Who?", "golden_answers": ["A"], "type": "bridge", "hops": 2}),
        [item("Who?", "A", id="1", type="bridge", hops=2)],
    ),
    FormatFile(
        "nq-open",
        "",
        lines({"question": "Who?", "answer": ["A", "B"]}, {"question": "When?", "answer": "now"}),
        [item("Who?", "A", "B"), item("When?", "now", id="2")],
    ),
    FormatFile(
        "fid",
        "",
        array({"id": 0, "question": "Who?", "target": "A", "answers": ["A", "B"], "ctxs": [{"title": "T", "text": "t"}]}),
        [item("Who?", "A", "B", id="0")],
    ),
    FormatFile(
        "self-reasoning",
        "",
        lines({"question": "Who?", "answers": ["A"], "passages": ["Document 1 (Title: T): t"]}),
        [item("Who?", "A")],
    ),
    FormatFile(
        "questions",
        "",
        lines({"qid": "litm0", "question": "Who?", "answers": ["A"], "gold_ids": ["18", 9]}),
        [item("Who?", "A", id="litm0", passages=["18", "9"])],
    ),
    FormatFile("questions", "bare", lines({"question": "Who?"}), [item("Who?")]),
    FormatFile(
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
        [item("Who?", "A", titles=["T"], passages=["11", "12"]), item("When?", id="2")],
    ),
    FormatFile(
        "dpr-tsv",
        "",
        'who sang "it"\t[\'A\', \'B\\\'s\']\r\n"a ""quoted"" one"\t"[\'C\', ""D\'s""]"\r\nwho\t["\\u00e9"]\n',
        [item('who sang "it"', "A", "B's"), item('a "quoted" one', "C", "D's", id="2"), item("who", "é", id="3")],
    ),
    FormatFile("dpr-tsv", "header", "question\tanswers\nwho\t['A']\n", [item("who", "A", id="2")]),
    FormatFile(
        "trec",
        "SGML",
        "<top>\n<num> Number: 051\n<title> Topic: AT&T &amp; the\n  fox\n\n<desc> Description:\nx < y\n</top>\n"
        "<top>\n<num>2b</num><desc> Description: who? </desc>\n</top>\n",
        [item("AT&T & the fox", id="51"), item("who?", id="2b")],
    ),
    FormatFile(
        "trec",
        "XML",
        '<?xml version="1.0"?>\n<!DOCTYPE x [<!ENTITY a "no">]>\n<webtrack2009><topic number="1" type="faceted"><query>fox &a;</query>\n'
        '<description>x</description><subtopic number="1">y</subtopic></topic><TOPIC number="2"><title>den</title></TOPIC></webtrack2009>',
        [item("fox &a;", id="1"), item("den", id="2")],
    ),
    FormatFile(
        "trec",
        "",
        "<queries>\n<query>\n<qid>0001</qid>\n<content>fox</content>\n<description>d</description>\n</query>\n"
        '<query id="2">who?</query></queries>\n',
        [item("fox", id="0001"), item("who?", id="2")],
    ),
    FormatFile(
        "trec", "", '<topics>\n<topic number="3">\nA man with\na cough.\n</topic>\n</topics>\n', [item("A man with a cough.", id="3")]
    ),
    FormatFile("topics", "", "0\twho got it\n1\twho else\n", [item("who got it", id="0"), item("who else", id="1")]),
    FormatFile(
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
        [item("What is the capital of Peru?", "LIMA", "Lima", "Lima, Peru", "Lima town", id="tc_1")],
    ),
    FormatFile(
        "triviaqa",
        "hub",
        lines(
            {
                "question": "What?",
                "question_id": "tc_2",
                "answer": {"value": "Lima", "aliases": ["Lima", "LIMA"], "normalized_aliases": ["lima"]},
            }
        ),
        [item("What?", "Lima", "LIMA", id="tc_2")],
    ),
    FormatFile(
        "musique",
        "",
        lines(
            {
                "id": "2hop__1_2",
                "paragraphs": [
                    {"idx": 0, "title": "The Nile", "paragraph_text": "It ends in Egypt.", "is_supporting": True},
                    {"idx": 1, "title": "Lima", "paragraph_text": "A city.", "is_supporting": False},
                ],
                "question": "Where does the longest river end?",
                "question_decomposition": [
                    {"id": 1, "question": "longest river", "answer": "Nile", "paragraph_support_idx": 0},
                    {"id": 2, "question": "#1 >> end", "answer": "Egypt", "paragraph_support_idx": 0},
                ],
                "answer": "Egypt",
                "answer_aliases": ["EG", "Egypt"],
                "answerable": True,
            },
            {"id": "2hop__3_4", "question": "Who?", "question_decomposition": [], "paragraphs": [], "answer": "x", "answerable": False},
        ),
        [
            item("Where does the longest river end?", "Egypt", "EG", id="2hop__1_2", titles=["The Nile"], hops=2),
            item("Who?", id="2hop__3_4"),
        ],
    ),
    FormatFile("squad", "", json.dumps({"version": "v2.0", "data": _SQUAD}), _SQUAD_QUESTIONS),
    FormatFile("squad", "data first", json.dumps({"data": _SQUAD, "version": "v2.0"}, indent=1), _SQUAD_QUESTIONS),
    FormatFile(
        "squad",
        "hub",
        lines({"id": "a", "title": "Nile", "question": "Whose?", "answers": {"text": ["Egypt"], "answer_start": [4]}}),
        _SQUAD_QUESTIONS[:1],
    ),
    FormatFile(
        "ottqa", "", array({"question_id": "x", "question": "Who?", "table_id": "t", "answer-text": "A"}), [item("Who?", "A", id="x")]
    ),
    FormatFile(
        "popqa",
        "",
        'id\tprop\ts_pop\tquestion\tpossible_answers\n7\tcapital\t42\tWhat is the capital of Peru?\t"[""Lima"", ""City of \\u00c9""]"\n',
        [item(_POPQA["question"], "Lima", "City of É", id="7", popularity=42, type="capital")],
    ),
    FormatFile(
        "popqa",
        "json",
        lines({**_POPQA, "possible_answers": '["Lima"]'}),
        [item(_POPQA["question"], "Lima", id="7", popularity=42, type="capital")],
    ),
    FormatFile("popqa", "list", lines({"question": "What?", "possible_answers": ["Lima"]}), [item("What?", "Lima")]),
    FormatFile(
        "hotpotqa",
        "",
        array({**_HOP, "level": "hard", "context": [["The Nile", ["A river.", " It ends."]]]}),
        [item(_HOP["question"], "Egypt", id="5ab", **_HOP_GOLD)],
    ),
    FormatFile(
        "hotpotqa",
        "hub",
        lines({**_HOP, "supporting_facts": {"title": ["The Nile", "Lake Victoria", "The Nile"], "sent_id": [0, 2, 1]}}),
        [item(_HOP["question"], "Egypt", id="5ab", **_HOP_GOLD)],
    ),
    FormatFile(
        "2wikimultihopqa",
        "",
        array({**_HOP, "evidences": [], "answer_id": "Q79"}),
        [item(_HOP["question"], "Egypt", id="5ab", **_HOP_GOLD, answer_id="Q79")],
    ),
    FormatFile(
        "strategyqa",
        "",
        array({"qid": "e0", "question": "Can a nut float?", "answer": True}, {"qid": "e1", "question": "Can it fly?", "answer": False}),
        [item("Can a nut float?", "yes", id="e0"), item("Can it fly?", "no", id="e1")],
    ),
    FormatFile(
        "strategyqa-bigbench",
        "",
        json.dumps({"canary": "…", "metrics": ["multiple_choice_grade"], "examples": [_BIG_BENCH]}),
        [item("Can a nut float?", "yes")],
    ),
    FormatFile(
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
            item("Soul Food is a film.", "SUPPORTS", id="3", label="SUPPORTS", titles=["Soul Food (film)"]),
            item("Nobody knows.", "NOT ENOUGH INFO", id="4", label="NOT ENOUGH INFO"),
            item("Unlabelled.", id="5"),
        ],
    ),
    FormatFile(
        "fever",
        "question",
        lines({"id": 3, "question": "It is.", "label": "REFUTES", "evidence": [[[1, 2, "It", 0]]], "pars": ["…"]}),
        [item("It is.", "REFUTES", id="3", label="REFUTES", titles=["It"])],
    ),
    FormatFile(
        "asqa",
        "",
        json.dumps({"train": {"-1": _ASQA_QUESTION}, "dev": {"-2": _ASQA_QUESTION}}),
        [item("Who won the cup?", "Uruguay", "URU", "Italy", id="-2", **_ASQA_GOLD)],
    ),
    FormatFile(
        "asqa",
        "list",
        array({**_ASQA_QUESTION, "id": "-2"}),
        [item("Who won the cup?", "Uruguay", "URU", "Italy", id="-2", **_ASQA_GOLD)],
    ),
    FormatFile(
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
        [item("Who won the cup?", "Uruguay", "URU", "Italy", id="5", **_ASQA_GOLD)],
    ),
    FormatFile(
        "beir",
        "",
        lines({"_id": "PLAIN-2", "text": "Do statins help?", "metadata": {"url": "…"}}, {"_id": "PLAIN-12", "text": "Why deep fry?"}),
        [item("Do statins help?", id="PLAIN-2"), item("Why deep fry?", id="PLAIN-12")],
    ),
    FormatFile(
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
            item("capital?", "Lima", "lima", id="a", long_answers=["Lima", "lima"], titles=["Lima"], provenance=[[_PAGE], [], [_PAGE]]),
            item("It is.", "REFUTES", id="b", label="REFUTES", provenance=[[]]),
            item("I like it.\nSo do I.\nWhy?", id="c", turns=3),
        ],
    ),
    FormatFile(
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
            item("你是谁？", "模型", "软件", type="Misleading", wrong_answers=["人", "狗"]),
            item("首都？", "利马", id="2", type="Knowledge", wrong_answers=["库斯科"]),
        ],
    ),
    FormatFile(
        "begin",
        "",
        "model_name\tdata_source\tknowledge\tmessage\tresponse\tbegin_label\n"
        't5\twow\tIt is blue.\t"I said ""blue""."\tyes\tFully attributable\n',
        [item('I said "blue".', id="2", type="wow", turns=1)],
    ),
)
