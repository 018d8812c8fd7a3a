"""Fields of ids, questions, answers and gold passages that any record may have, as other data sets name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtimes.questions.format_files import FormatFile, item, lines
from wikidx.runtimes.questions import detect_format, read_questions

FILES = (
    FormatFile(
        "questions", "LongBench", lines({"input": "Who?", "answers": ["A"], "context": "…", "_id": "b1"}), [item("Who?", "A", id="b1")]
    ),
    FormatFile(
        "questions",
        "Tevatron",
        lines({"query_id": 7, "query": "Who?", "positive_passages": [{"docid": "d#1", "title": "T", "text": "t"}, {"text": "u"}]}),
        [item("Who?", id="7", passages=["d#1"])],
    ),
    FormatFile(
        "questions",
        "BRIGHT",
        lines(
            {"query": "Who?", "id": "0", "excluded_ids": ["N/A", "c"], "gold_ids": ["d"]},
            {"query": "When?", "excluded_ids": ["N/A"]},
            {"query": "Where?", "excluded_ids": "N/A"},
        ),
        [item("Who?", id="0", passages=["d"], excluded=["c"]), item("When?", id="2"), item("Where?", id="3")],
    ),
    FormatFile(
        "questions",
        "CRAG",
        lines(
            {"interaction_id": "i", "query": "Who?", "answer": "A", "alt_ans": ["B"]}, {"topic_id": 9, "query": "When?", "alt_ans": None}
        ),
        [item("Who?", "A", "B", id="i"), item("When?", id="9")],
    ),
    FormatFile(
        "questions",
        "choices",
        lines(
            {"question": "Who?", "choices": ["C", "A"], "answer": 1},
            {"question": "Who?", "choices": {"text": ["C", "A"], "label": [1, 2]}, "answerKey": "2"},
            {"question": "Who?", "options": {"A": "C", "B": "A"}, "answer": "B"},
            {"question": "How many?", "choices": ["2", "0"], "answer": "0"},
            {"question": "Who?", "choices": ["C", "A"], "golden_answers": [0, "1"]},
            {"question": "How many?", "choices": {"text": ["4", "3", "2", "1"], "label": ["1", "2", "3", "4"]}, "answerKey": "1"},
            {"question": "How many?", "choices": {"text": [4, 3, 2, 1], "label": [1, 2, 3, 4]}, "answerKey": 1},
            {"question": "Which?", "options": {"A": "B", "B": "O"}, "answer": "B"},
            {"question": "Which?", "options": ["B", "O"], "answerKey": "B"},
            {"question": "Which?", "options": ["B", "O"], "answer": "B"},
            {"question": "Which?", "options": {"A": "B", "B": "O"}, "answer": "B", "answer_idx": "A"},
            {"question": "Who?", "choices": ["C", "A"], "answer": "b"},
            {"question": "Who?", "choices": ["C", "A"], "answer": "(B)"},
            {"question": "Who?", "choices": ["C", "A"], "answer": -1},
            {"question": "Who?", "choices": ["C", "A"], "answer": "c"},
            {"question": "Which?", "options": ["B", "O"], "answerKey": "b"},
            {"question": "Who?", "choices": {"text": ["C", "A"], "label": ["1", "2"]}, "answerKey": "(2)"},
            {"question": "Who?", "choices": ["C", "A"], "answer": "A, of B"},
        ),
        [
            item("Who?", "A"),
            item("Who?", "A", id="2"),
            item("Who?", "A", id="3"),
            item("How many?", "0", id="4"),
            item("Who?", "C", "A", id="5"),
            item("How many?", "4", id="6"),
            item("How many?", "4", id="7"),
            item("Which?", "O", id="8"),
            item("Which?", "O", id="9"),
            item("Which?", "B", id="10"),
            item("Which?", "B", id="11"),
            item("Who?", "A", id="12"),
            item("Who?", "A", id="13"),
            item("Who?", id="14"),
            item("Who?", "c", id="15"),
            item("Which?", "O", id="16"),
            item("Who?", "A", id="17"),
            item("Who?", "A, of B", id="18"),
        ],
    ),
    FormatFile(
        "questions", "MS MARCO", lines({"answers": ["No Answer Present."], "query": "Who?", "query_id": 12}), [item("Who?", id="12")]
    ),
    FormatFile(
        "questions",
        "verl",
        lines(
            {"question": "Who?", "reward_model": {"style": "rule", "ground_truth": {"target": ["A", "B"]}}},
            {"question": "Who?", "reward_model": {"ground_truth": "A"}},
        ),
        [item("Who?", "A", "B"), item("Who?", "A", id="2")],
    ),
    FormatFile(
        "questions",
        "of knowledge bases",
        lines(
            {
                "ID": "c",
                "question": "Who?",
                "answers": [{"answer": "A", "answer_id": "m.1", "aliases": ["B"]}, {"answer": "C", "aliases": []}],
            },
            {"id": "m", "question": "Who?", "answer": {"answerType": "entity", "answer": [{"name": "Q1"}], "mention": "A"}},
            {"qid": 2, "question": "Who?", "answer": [{"answer_argument": "m.1", "entity_name": "A"}, {"answer_argument": "1990"}]},
        ),
        [item("Who?", "A", "B", "C", id="c"), item("Who?", "A", id="m"), item("Who?", "A", "1990", id="2")],
    ),
    FormatFile(
        "fever",
        "Climate-FEVER, HoVer",
        lines({"claim_id": "0", "claim": "A.", "claim_label": "NOT_ENOUGH_INFO"}, {"uid": "u", "claim": "B.", "label": "SUPPORTED"}),
        [item("A.", "NOT ENOUGH INFO", id="0", label="NOT ENOUGH INFO"), item("B.", "SUPPORTS", id="u", label="SUPPORTS")],
    ),
    FormatFile(
        "questions",
        "names in other cases, with blanks",
        lines({"Question": "Who?", "Correct Answer": "A"}, {"Prompt": "Who?", "Answer": "A"}, {"problem": "Who?", "answer": "A"}),
        [item("Who?", "A"), item("Who?", "A", id="2"), item("Who?", "A", id="3")],
    ),
    FormatFile(
        "nq-open",
        "FinanceBench, MKQA's ids",
        lines({"financebench_id": "f_1", "question": "Who?", "answer": "A"}, {"query": "Who?", "example_id": -7, "answers": ["A"]}),
        [item("Who?", "A", id="f_1"), item("Who?", "A", id="-7")],
    ),
    FormatFile("nq-open", "RAGAS", lines({"question": "Who?", "answer": "of a model", "ground_truth": "A"}), [item("Who?", "A")]),
    FormatFile("nq-open", "a header of question and answer", "question\tanswer\nWho?\t['A', \"B\"]\n", [item("Who?", "A", "B", id="2")]),
    FormatFile("questions", "intervals", lines({"problem": "Where?", "answer": "[0, 1]"}), [item("Where?", "[0, 1]")]),
    FormatFile(
        "questions",
        "OpenBookQA, TruthfulQA",
        lines(
            {"question_stem": "Who?", "choices": [{"text": "C", "label": "A"}, {"text": "A", "label": "B"}], "answerKey": "B"},
            {"question": "Who?", "best_answer": "A", "correct_answers": ["A", "B"]},
        ),
        [item("Who?", "A"), item("Who?", "A", "B", id="2")],
    ),
    FormatFile("questions", "LlamaIndex", '{"queries": {"u": "Who?"}, "corpus": {"n": "A."}}', [item("Who?", id="u")]),
    FormatFile("questions", "texts", '["Who?", "When?"]', [item("Who?"), item("When?", id="2")]),
    FormatFile("questions", "a request", '{"queries": ["Who?", "When?"], "topk": 3}', [item("Who?"), item("When?", id="2")]),
    FormatFile("beir", "answers", lines({"_id": "1", "text": "Who?", "answers": ["A"]}), [item("Who?", "A")]),
)


@pytest.mark.parametrize("case", FILES, ids=lambda case: case.file)
def test_the_fields_of_other_sets_are_read(tmp_path: Path, case: FormatFile) -> None:
    (tmp_path / "file").write_text(case.content)
    assert read_questions(tmp_path / "file") == case.questions
    assert detect_format(tmp_path / "file") == case.format


@pytest.mark.parametrize(
    ("record", "unread"),
    [
        ({"query": "a", "gold_ids": ["d"], "gold_answer": "b", "gold_ids_long": []}, "gold_answer"),
        ({"_id": "1", "text": "a", "reference": "b", "pos": ["c"], "position": 1}, "reference, pos, position"),
        ({"question": "a", "opa": "b", "cop": 0, "extra": {"gold": "c"}, "exp": None}, "opa, cop, extra"),
        ({"question": "a", "answer": "b", "nq_answer": ["c"]}, ""),
        ({"index": 0, "input": "a", "outputs": ["b"], "length": 9}, "index, outputs, length"),  # RULER's
        ({"id": "1", "input": "a", "output": [], "meta": {"mintaka": 1}}, ""),  # a test set of KILT's
    ],
)
def test_gold_data_that_is_not_read_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, record: dict[str, object], unread: str
) -> None:
    file = tmp_path / "file"
    file.write_text(lines(record, record | {"_id": "2", "id": "2"}))
    read_questions(file)
    assert caplog.messages == ([f"{file}: the first record has no known answer; its other fields: {unread}"] if unread else [])
