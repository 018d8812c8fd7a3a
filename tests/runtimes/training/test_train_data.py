"""``idx train-data``: files and manifest, resuming, leaks, refusals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.command_line import Command
from tests.runtimes.evaluation.tiny_nli import save_tiny_classifier
from tests.runtimes.training.replies import check_lines, trajectory
from wikidx.corpora.known import sample
from wikidx.corpora.passage import Passage
from wikidx.runtimes.evaluation.by_models.citations import PRECISION, RECALL, AlceCitations
from wikidx.runtimes.evaluation.by_models.nli import Checkpoint
from wikidx.runtimes.evaluation.by_models.sentence_splitting import SIMPLE
from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.execution.runs import PREDICTIONS
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.questions import Question

Script = Callable[..., str]

pytestmark = pytest.mark.usefixtures("sample_home")
ASKED = sample.questions()[:6]
FIRST = ASKED[0]
LEARNED = ("--set", "negatives=0", "--set", "sentences=simple")


def question_file(folder: Path, name: str = "train.jsonl", *questions: tuple[str, list[str]]) -> Path:
    pairs = questions or [(one.question, list(one.answers)) for one in ASKED[:4]]
    file = folder / name
    lines = [{"id": f"q{number}", "question": text, "golden_answers": golds} for number, (text, golds) in enumerate(pairs)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def asqa_file(folder: Path, *questions: str) -> Path:
    file = folder / "asqa.jsonl"
    entries = [
        {"sample_id": f"{number}", "question": text, "qa_pairs": [{"short_answers": ["river"]}]} for number, text in enumerate(questions)
    ]
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return file


@pytest.fixture
def model(script: Script) -> str:
    """A model that knows the first question's answer, finds every passage relevant and has two sub-questions for everything."""
    return script(
        {"role": "answer", "match": f"{FIRST.question}\nReply", "text": FIRST.answers[0]},
        {"role": "answer", "match": "", "text": "Nobody"},
        {"role": "relevance", "match": "", "text": "yes"},
        {"role": "decompose", "match": "", "text": "1. Who?\n2. When?"},
        {"role": "know", "match": "", "text": "yes"},
    )


def train(method: str, questions: object, *more: object) -> tuple[object, ...]:
    """The arguments of a command that keeps leaks and searches in the sample."""
    return ("train-data", method, "--questions", questions, "--leaks", "keep", "--corpus", "sample", *more)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def targets(out: Path, name: str) -> list[str]:
    return [line["messages"][-1]["content"] for line in lines(out / f"data/{name}.jsonl")]


def files(out: Path) -> dict[str, bytes]:
    for file in (out / "data").glob("*.jsonl"):
        check_lines(lines(file))
    return {file.name: file.read_bytes() for file in sorted((out / "data").iterdir())}


def manifest(out: Path) -> dict[str, Any]:
    files(out)
    found: dict[str, Any] = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    return found


def test_the_three_sets_of_ra_isf(idx: Command, model: str, tmp_path: Path) -> None:
    file, out = question_file(tmp_path), tmp_path / "out"
    against = question_file(tmp_path, "test.jsonl", ("How long is the Nile?", []))
    command = ("train-data", "ra_isf", "--questions", f"mine={file}", "--against", against, "--llm", model, "--corpus", "sample")
    output = idx(*command, "--out", out, "--set", "k=3", "--seed", "7").splitlines()
    assert output[:3] == ["know: 4 of 4", "relevance: 12 of 12", "decompose: 4 of 4"]
    assert targets(out, "know") == ["yes", "no", "no", "no"]
    assert set(targets(out, "decompose")) == {"1. Who?\n2. When?"}
    first = lines(out / "data/know.jsonl")[0]
    labelled = {"label": True, "labelled_by": "the model's own answer, by squad_em"}
    assert first["id"] == "mine/q0/know"
    assert first["provenance"] == {"set": "mine", "question_id": "q0", "question": FIRST.question, **labelled}
    data = manifest(out)
    assert data["counts"]["know"] == {"in": 4, "kept": 4, "kinds": {"yes": 1, "no": 3}, "dropped": {}}
    assert data["files"]["relevance"]["sha256"] == hashlib.sha256((out / "data/relevance.jsonl").read_bytes()).hexdigest()
    training = data["files"]["know"]["training"]
    assert (training["learning_rate"], training["origins"]["learning_rate"]) == (5e-4, "paper")
    assert data["sets"] == {"mine": {"file_sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "read": 4, "eligible": 4, "drawn": 4}}
    assert data["leaks"] == {"mode": "refuse", "near": 0.8, "against": {"test": 1}, "counts": {"equal": 0, "near": 0}}
    assert data["options"]["k"] == {"value": 3, "default": 5, "origin": "paper"}
    assert data["options"]["labels"]["origin"] == "ours"
    assert (data["seed"], data["models"]["answer"]["model"]) == (7, model.partition(":")[2])
    assert "ra_isf/know.txt" in data["prompts"]
    assert data["replies"] == {"questions": 4, "failed": 0}
    info = json.loads((out / "data/dataset_info.json").read_text(encoding="utf-8"))
    assert [(name, one["file_name"], one["columns"]) for name, one in info.items()] == [
        (name, f"{name}.jsonl", {"messages": "messages"}) for name in ("know", "relevance", "decompose")
    ]


def test_a_folder_is_resumed_and_its_files_are_built_anew(idx: Command, model: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = train("ra_isf", question_file(tmp_path), "--llm", model, "--out", out, "--set")
    idx(*command, "k=1")
    whole = files(out)
    assert list(whole) == ["dataset_info.json", "decompose.jsonl", "know.jsonl", "relevance.jsonl"]
    for line, record in zip(lines(out / "data/relevance.jsonl"), lines(out / PREDICTIONS), strict=True):
        passage = Passage(**record["passages"][0])
        assert line["provenance"]["passage"] == passage.id
        assert f"Passage:\n{passage.title}\n{passage.text}\n" in line["messages"][-2]["content"]
    replies = (out / PREDICTIONS).read_bytes().splitlines(keepends=True)
    (out / PREDICTIONS).write_bytes(b"".join(replies[:2]) + replies[2][:40])  # an interruption
    data = json.loads(idx(*command, "k=1", "--json", "--in-flight", "1"))
    assert (data["cost"]["searches"], data["replies"]) == (2, {"questions": 4, "failed": 0})
    assert files(out) == whole
    (out / "data/old.jsonl").write_text("{}\n", encoding="utf-8")
    data = json.loads(idx(*command, "k=1", "--set", "labels=code", "--json"))
    assert data["cost"]["calls"] == 0
    assert targets(out, "know") == ["know", "unknow", "unknow", "unknow"]
    assert list(files(out)) == list(whole)
    assert "holds a run with other settings: options.k.value was 1 and is 2" in idx(*command, "k=2", status=2)
    assert targets(out, "know")[0] == "know"


def test_failed_questions_are_counted_and_left_out(idx: Command, script: Script, tmp_path: Path) -> None:
    model = script({"role": "answer", "match": f"{FIRST.question}\nReply", "text": FIRST.answers[0]})
    out = tmp_path / "out"
    command = train("ra_isf", question_file(tmp_path), "--llm", model, "--out", out, "--set", "decompose=false", "--set", "relevance=false")
    assert "3 questions have failed: add --retry-failed" in idx(*command, status=1)
    assert [line["id"] for line in lines(out / "data/know.jsonl")] == ["train/q0/know"]
    assert manifest(out)["replies"] == {"questions": 4, "failed": 3}


def test_evaluation_questions_are_refused_or_left_out(idx: Command, model: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    test = question_file(tmp_path, "test.jsonl", (FIRST.question.upper(), []), ("Else?", []))
    command = ("train-data", "ra_isf", "--questions", question_file(tmp_path), "--llm", model, "--corpus", "sample", "--out", out)
    assert "name the evaluation questions with --against FILE" in idx(*command, status=2)
    output = idx(*command, "--against", test, status=2)
    assert "1 of 4 questions are evaluation questions too, 1 equal and 0 near" in output
    assert "(train/q0)" in output
    assert not out.exists()
    idx(*command, "--against", test, "--leaks", "drop")
    assert [line["id"] for line in lines(out / "data/know.jsonl")] == [f"train/q{number}/know" for number in (1, 2, 3)]
    assert [(leak["id"], leak["against_id"], leak["kind"]) for leak in lines(out / "leaks.jsonl")] == [("q0", "q0", "equal")]
    assert manifest(out)["leaks"]["counts"] == {"equal": 1, "near": 0}
    assert manifest(out)["sets"]["train"]["eligible"] == 3


def test_trajectories_of_self_reasoning(idx: Command, script: Script, tmp_path: Path) -> None:
    """The teacher answers one question right, one wrong, one beside the form and one not at all."""
    right = trajectory(answer=FIRST.answers[0], cite_list=[])
    model = script(
        {"match": f"Question: {ASKED[0].question}", "text": f"Here it is:\n{right}"},
        {"match": f"Question: {ASKED[1].question}", "text": trajectory(answer="Nobody")},
        {"match": f"Question: {ASKED[2].question}", "text": "I do not know."},
        {"match": "", "text": '{"relevant": true, "relevant_reason": "x"}'},
    )
    out = tmp_path / "out"
    command = train("self_reasoning", question_file(tmp_path), "--llm", model, "--out", out, *LEARNED)
    output = idx(*command).splitlines()
    assert output[:3] == ["readable: 2 of 4; 1 unreadable; 1 incomplete", "quality control: 1 of 2; 1 wrong answer", "size: 1 of 1"]
    (line,) = lines(out / "data/stage3_rap_eap_tap.jsonl")
    assert line["messages"][-1]["content"] == right
    assert len(line["provenance"]["documents"]) == 5
    assert [len(targets(out, name)) for name in ("stage1_rap", "wo_gl", "wo_qc_stage2_rap_eap", "llama2_ft")] == [1, 1, 1, 1]
    rates = {name: file["training"]["learning_rate"] for name, file in manifest(out)["files"].items()}
    assert [rates[name] for name in ("stage1_rap", "stage2_rap_eap", "stage3_rap_eap_tap")] == [5e-5, 3e-5, 1e-5]
    assert manifest(out)["files"]["stage2_rap_eap"]["training"]["begins_from"] == "stage1_rap"
    assert manifest(out)["citations"] is None
    data = json.loads(idx(*command, "--set", "without=rap", "--json"))
    assert (data["cost"]["calls"], "stage1_rap" in data["files"], (out / "data/stage1_rap.jsonl").exists()) == (0, False, False)
    begun = {name: file["training"]["begins_from"] for name, file in data["files"].items()}
    assert begun["stage2_rap_eap"] == begun["wo_qc_stage2_rap_eap"] == "LLaMA-2 7B or 13B"
    assert begun["stage3_rap_eap_tap"] == "stage2_rap_eap"


def test_long_answers_are_held_against_a_model_of_inference(idx: Command, script: Script, tmp_path: Path) -> None:
    """The model's verdicts are nonsense; what they come to is what decides."""
    file, out = asqa_file(tmp_path, *(one.question for one in ASKED)), tmp_path / "out"
    words = "the cat sleeps dog barks loudly river flows through old city a poet wrote many letters".split()
    answers = [f"{' '.join(words[number:])} [1]. The river [{number + 1}]." for number in range(6)]
    model = script(*({"match": f"Question: {one.question}", "text": trajectory(analysis=answers[n])} for n, one in enumerate(ASKED)))
    nli = save_tiny_classifier(tmp_path / "nli", ["entailment", "other"], positions=512)
    command = train("self_reasoning", file, "--llm", model, "--out", out, "--device", "cpu", *LEARNED, "--set", f"nli={nli}")
    data = json.loads(idx(*command, "--json"))
    assert (data["citations"]["nli"]["model"], data["citations"]["sentences"]) == (str(nli), "simple")
    records = lines(out / PREDICTIONS)
    rows = [PredictionRow(record["id"], answers[int(record["id"][-1])], tuple(record["passages"])) for record in records]
    scorer = AlceCitations(Checkpoint(str(nli), EngineOptions(device="cpu")), SIMPLE)
    values = scorer.measure(rows, [Question(row.id, "") for row in rows]).values
    good = (values[RECALL] >= 0.8) & (values[PRECISION] >= 0.8)
    assert good.tolist()[5:] == [False]  # the last answer cites a sixth passage of five
    assert 0 < good.sum() < 6
    expected = {row.id for row, is_good in zip(rows, good, strict=True) if is_good}
    assert {line["id"] for line in lines(out / "data/wo_gl.jsonl")} == expected
    assert sum(data["counts"]["quality control"]["dropped"].values()) == 6 - len(expected)


def test_the_model_of_inference_is_opened_when_a_long_answer_is_left(idx: Command, script: Script, tmp_path: Path) -> None:
    """Its weights are not there: nobody asks for them, as no answer is correct."""
    out, nli = tmp_path / "out", save_tiny_classifier(tmp_path / "nli", ["entailment", "other"])
    (nli / "model.safetensors").unlink()
    model = script({"match": "", "text": trajectory(analysis="A lake [1].")})
    command = train("self_reasoning", asqa_file(tmp_path, "Which river?"), "--llm", model, "--device", "cpu", "--out", out, *LEARNED)
    assert "the most frequent reason is 'wrong answer', 1 times" in idx(*command, "--set", f"nli={nli}", status=2)
    data = manifest(out)
    assert (data["citations"]["nli"], data["files"]) == ({"model": str(nli), "opened": False}, {})


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("nli={folder}", "'{folder}' is no NLI checkpoint"),
        ("nli={labels}", "has the labels 'yes', 'no': an NLI model has one called entailment"),
        ("prompt_shots=99", "the prompt 'self_reasoning/answer' has "),
        ("least_str_em=2", "least_str_em is 2.0: it should be less than or equal to 1"),
    ],
)
def test_an_invalid_build_option_is_found_before_the_teacher_is_asked(
    idx: Command, script: Script, tmp_path: Path, option: str, message: str
) -> None:
    paths = {"folder": str(tmp_path), "labels": str(save_tiny_classifier(tmp_path / "labels", ["yes", "no"]))}
    model, out = script({"match": "", "text": "x"}), tmp_path / "out"
    command = train("self_reasoning", asqa_file(tmp_path, "Which river?"), "--llm", model, "--out", out, *LEARNED)
    assert message.format(**paths) in idx(*command, "--set", option.format(**paths), status=2)
    assert not (out / PREDICTIONS).exists()


def test_no_examples_are_no_success(idx: Command, script: Script, tmp_path: Path) -> None:
    """A teacher that cannot be read, and one that cannot be had."""
    command = train("self_reasoning", question_file(tmp_path), *LEARNED)
    output = idx(*command, "--out", tmp_path / "one", "--llm", script({"match": "", "text": "Well, well."}), status=2)
    assert "no examples for stage1_rap.jsonl, stage2_rap_eap.jsonl, " in output
    assert "the most frequent reason is 'unreadable', 4 times" in output
    assert list(files(tmp_path / "one")) == ["dataset_info.json"]
    assert manifest(tmp_path / "one")["counts"]["readable"]["dropped"] == {"unreadable": 4}
    output = idx(*command, "--out", tmp_path / "two", "--llm", script({"match": "no such prompt", "text": "x"}), status=2)
    assert "the most frequent reason is 'failed: " in output
    assert "', 4 times; see " in output


def test_what_would_be_asked_and_what_can_be_set(idx: Command, tmp_path: Path) -> None:
    output = idx(*train("self_reasoning", question_file(tmp_path), "--dry-run"))
    assert "teacher" in output
    assert "Write one JSON object and nothing else" in output
    explained = idx("train-data", "self_reasoning")
    assert "citation_recall=0.8  [paper] minimum ALCE citation recall of a long answer (delta_r)" in explained
    data = json.loads(idx("train-data", "ra_isf", "--json"))
    assert [one["name"] for one in data["options"]["collect"]][:2] == ["per_set", "know"]


def test_a_set_in_a_format_that_is_named(idx: Command, tmp_path: Path) -> None:
    """ASQA's file has both questions to train on and to evaluate on."""
    entries = {split: {"1": {"ambiguous_question": f"Who {split}?", "qa_pairs": [{"short_answers": ["x"]}]}} for split in ("train", "dev")}
    file = tmp_path / "ASQA.json"
    file.write_text(json.dumps(entries), encoding="utf-8")
    command = ("train-data", "self_reasoning", "--questions", f"asqa={file}", "--against", f"dev={file}", "--dry-run", *LEARNED)
    data = json.loads(idx(*command, "--format", "asqa=asqa-train", "--json"))
    assert (data["first"]["question"], data["leaks"]["against"]) == ("Who train?", {"dev": 1})
    assert "1 of 1 questions are evaluation questions too" in idx(*command, status=2)
    assert "'asq'" in idx(*command, "--format", "asq=asqa-train", status=2)


def test_what_is_refused(idx: Command, model: str, tmp_path: Path) -> None:
    file, out = question_file(tmp_path), tmp_path / "out"
    command = train("ra_isf", file, "--llm", model)
    assert "name the folder for the training data" in idx(*command, status=2)
    assert "'max_token'" in idx(*command, "--out", out, "--set", "max_token=3", status=2)
    assert "labels" in idx(*command, "--out", out, "--set", "labels=other", status=2)
    assert "two sets of questions are called 'train'" in idx(*command, "--out", out, "--questions", file, status=2)
    assert "retrorag" in idx("train-data", "retrorag", status=2)
    assert "no question of the set 'train' is left" in idx(*command[:4], "--against", file, "--leaks", "drop", status=2)
    assert not out.exists()
