"""``--prompts``, ``--shots-from``, and the origins that ``idx ask METHOD`` prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.runtimes.command_line import Command

Script = Callable[..., str]


def question_file(folder: Path, n: int = 3) -> Path:
    records = [{"id": f"t{number}", "question": f"What is {number}?", "golden_answers": [f"gold {number}"]} for number in range(n)]
    (folder / "train.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return folder / "train.jsonl"


def test_a_method_says_where_prompts_and_defaults_come_from(idx: Command) -> None:
    own = idx("ask", "ra_isf")
    assert "prompt set paper: idx ask ra_isf --prompts paper" in own
    assert "prompts [ours]: forms/dialogue.shots.jsonl (4), forms/fever.shots.jsonl (4), forms/forms.json, " in own
    assert "k=5  [paper] number" in own
    assert "max_sub_questions=5  [ours] maximum" in own
    assert "depth_test=exceeded  [paper, open] exceeded" in own
    assert "prompts [paper: the criteria of appendix E, worded anew]: closed_book.txt, " in idx("ask", "ra_isf", "--prompts", "paper")
    described = idx.json("ask", "retrorag", "--prompts", "metarag")
    assert described["prompt_sets"] == ["metarag"]
    origins = {prompt["name"]: prompt["origin"].partition(":")[0] for prompt in described["prompts"]}
    assert (origins["reason.txt"], origins["query.txt"]) == ("authors' code", "ours")
    assert {option["origin"] for option in described["options"]} == {"paper", "paper, open", "authors' code", "ours"}


def test_a_run_is_resumed_with_the_same_prompts_only(idx: Command, script: Script, tmp_path: Path) -> None:
    prompts, out = tmp_path / "mine", tmp_path / "out"
    prompts.mkdir()
    (prompts / "answer.txt").write_text("[user]\nMINE {question}\n", encoding="utf-8")
    command = ("run", "direct", "--questions", question_file(tmp_path), "--llm", script({"match": "", "text": "x"}), "--out", out)
    idx(*command, "--prompts", prompts)
    (first, *_) = [json.loads(line) for line in (out / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]
    assert first["steps"][0]["prompt"] == [{"role": "user", "content": f"MINE {first['question']}"}]
    idx(*command, "--prompts", prompts)
    moved = prompts.rename(tmp_path / "moved")
    idx(*command, "--prompts", moved)
    (moved / "answer.txt").write_text("[user]\nOTHER {question}\n", encoding="utf-8")
    for changed in ((), ("--prompts", moved)):
        assert "holds a run with other settings: prompts.direct/answer.txt was " in idx(*command, *changed, status=2)


def test_demonstrations_are_drawn_by_a_seed(idx: Command, script: Script, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("run", "direct", "--questions", "sample", "--limit", 1, "--llm", script({"match": "", "text": "x"}), "--out", out)
    drawn = ("--shots-from", question_file(tmp_path, 30), "--set", "shots=5")
    idx(*command, *drawn)
    (record,) = [json.loads(line) for line in (out / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]
    turns = [turn["content"] for turn in record["steps"][0]["prompt"][1:-1]]
    shown = [int(turn.removeprefix("Question: What is ").partition("?")[0]) for turn in turns[::2]]
    assert len(set(shown)) == 5
    assert turns[1::2] == [f"gold {number}" for number in shown]
    idx(*command, *drawn)
    assert "prompts.drawn demonstrations was" in idx(*command, *drawn, "--shots-seed", 1, status=2)


def test_a_method_that_asks_no_model_needs_neither_prompts_nor_a_model(idx: Command, tmp_path: Path) -> None:
    (tmp_path / "longest.py").write_text(
        "from wikidx.base.validation import options\n"
        "from wikidx.runtimes.methods.base import Answer, Method\n"
        "@options\nclass Nothing:\n    'None.'\n"
        "async def longest(question, options):\n    return Answer(max(question.split(), key=len), ())\n"
        "LONGEST = Method(name='longest', summary='-', source='-', roles=(), options=Nothing, run=longest)\n"
    )
    method, out = f"{tmp_path}/longest.py:LONGEST", tmp_path / "out"
    assert "embedded" not in idx("run", method, "--questions", question_file(tmp_path), "--out", out)
    answers = [json.loads(line)["answer"] for line in (out / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]
    assert answers == ["What"] * 3
    assert "longest" in idx("ask", method)
    asks = (tmp_path / "longest.py").read_text().replace("roles=()", "roles=('answer',)").replace("name='longest'", "name='asks'")
    (tmp_path / "asks.py").write_text(asks)
    method = f"{tmp_path}/asks.py:LONGEST"
    assert "put them beside its file" in idx("run", method, "--questions", question_file(tmp_path), "--out", tmp_path / "new", status=2)
