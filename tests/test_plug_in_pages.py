"""The documentation's plug-ins, as files in an empty folder, used by the wheel in an environment without the tree; most of a minute."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.loopback import serving
from tests.readme_blocks import PAGES, blocks, shows_plug_in
from tests.wheel import build_wheel, install_bare

Run = Callable[..., str]

FILES = {block.file: block.text for page in PAGES for block in blocks(page) if shows_plug_in(block)}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The Python of the environment, in the folder of the plug-ins; ``idx`` as its first argument means the command."""
    folder = tmp_path_factory.mktemp("mine")
    _, python = install_bare(build_wheel(tmp_path_factory.mktemp("wheel")), tmp_path_factory.mktemp("bare") / "venv")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"IDX_HOME": str(folder / "home")}

    def call(*arguments: str, **variables: str) -> str:
        command = [python, "-m", "wikidx", *arguments[1:]] if arguments[0] == "idx" else [python, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env={**environment, **variables}, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert str(ROOT) not in call("-c", "import wikidx; print(wikidx.__file__)")
    call("idx", "build", "sample", "--bm25")
    return call


def found(run: Run, query: str, *options: str, **variables: str) -> list[str]:
    """Return the ids of the three best passages."""
    return [hit["id"] for hit in json.loads(run("idx", "search", "sample", query, "-k", "3", "--json", *options, **variables))["passages"]]


def test_each_kind_of_plug_in_is_shown() -> None:
    assert {*FILES} == {
        "notes.py",
        "pubmed.py",
        "trigrams.py",
        "overlap.py",
        "projected.py",
        "german.py",
        "vote.py",
        "vote/answer.txt",
        "first_word.py",
        "gift.py",
        "extract.py",
    }
    assert max(text.count("\n") for text in FILES.values()) < 80


ARTICLE = """<PubmedArticle><MedlineCitation><PMID>{n}</PMID><Article><ArticleTitle>{title}</ArticleTitle>
<Abstract><AbstractText Label="A">{text} is a <i>metal</i>.</AbstractText><AbstractText>It is heavy.</AbstractText></Abstract>
</Article></MedlineCitation></PubmedArticle>"""


def test_the_format_reads_its_files(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "abstracts.xml"
    articles = [ARTICLE.format(n=n, title=name, text=name) for n, name in enumerate(("Gold", "Mercury", "Lead"), 17)]
    file.write_text(f"<PubmedArticleSet>{''.join(articles)}</PubmedArticleSet>")
    run("idx", "build", str(file), "--format", "./pubmed.py:PUBMED")
    (hit,) = json.loads(run("idx", "search", "abstracts", "mercury", "--json"))["passages"]
    assert (hit["id"], hit["title"], hit["text"]) == ("18", "Mercury", "Mercury is a metal. It is heavy.")
    run("-c", f"from wikidx.testing import *; check_reader('pubmed.py:PUBMED', {str(file)!r})")


NOTES = "".join(
    json.dumps({"id": n, "title": title, "text": text}) + "\n"
    for n, title, text in [
        ("1", "Mercury", "Mercury is liquid at room temperature."),
        ("2", "Gold", "Gold has the symbol Au."),
        ("3", "Iron", "Iron rusts."),
    ]
)


def test_the_corpus_is_downloaded_built_and_listed(run: Run, tmp_path: Path) -> None:
    assert f'sha256="{hashlib.sha256(NOTES.encode()).hexdigest()}"' in FILES["notes.py"]
    (tmp_path / "notes.jsonl").write_text(NOTES)
    with serving(tmp_path) as url:
        run("idx", "build", "./notes.py:CORPUS", IDX_MIRROR=url)
    assert [hit["id"] for hit in json.loads(run("idx", "search", "notes", "liquid", "--json"))["passages"]] == ["1"]
    assert "notes  three notes on metals" in run("idx", "--plugin", "./notes.py:CORPUS", "list")
    assert "notes" in run("idx", "list")


def test_the_encoder_and_the_index_find_what_is_misspelt(run: Run) -> None:
    run("idx", "build", "sample", "--encoder", "./trigrams.py:TRIGRAMS", "--index", "./projected.py:PROJECTED", "--device", "cpu")
    plugged = {"IDX_PLUGINS": "./trigrams.py:TRIGRAMS,./projected.py:PROJECTED"}
    exact, projected = (
        found(run, "merkury planett", "--retriever", name, "--device", "cpu", **plugged) for name in ("trigrams", "trigrams-projected")
    )
    assert (exact[0], len({*projected})) == ("planet-mercury#0", 3)
    run("-c", "from wikidx.testing import *; check_encoder('trigrams.py:TRIGRAMS'); check_index('projected.py:PROJECTED', recall=0.5)")


def test_the_reranker_puts_shared_words_first(run: Run) -> None:
    query = "in the water there is a metal"
    by_bm25 = json.loads(run("idx", "search", "sample", query, "-k", "20", "--json"))["passages"]
    words = {*query.split()}
    expected = sorted(by_bm25, key=lambda hit: (-len(words & {*hit["text"].lower().split()}), hit["row"]))
    assert found(run, query, "--reranker", "overlap.py:OVERLAP", "--rerank", "cross-encoder", "--rerank-depth", "20") == [
        hit["id"] for hit in expected[:3]
    ]
    run("-c", "from wikidx.testing import *; check_reranker('overlap.py:OVERLAP')")


def test_the_analyzer_finds_other_forms_of_a_word(run: Run) -> None:
    notes = [("1", "Köln", "Die Stadt Köln liegt am Rhein, mit vielen alten Häusern."), ("2", "Gold", "Gold ist ein Metall.")]
    script = f"import wikidx as idx; idx.build({[{'id': n, 'title': title, 'text': text} for n, title, text in notes]!r}, name='notizen')"
    run("-c", script)
    plugged = ("--plugin", "./german.py:GERMAN")
    run("idx", *plugged, "build", "notizen", "--index", "bm25-german")
    found = run("idx", *plugged, "search", "notizen", "das Haus der Städte", "--retriever", "bm25-german", "--json")
    assert [hit["id"] for hit in json.loads(found)["passages"]] == ["1"]
    assert json.loads(run("idx", "search", "notizen", "das Haus der Städte", "--json"))["passages"] == []
    run("-c", "from wikidx.testing import *; check_analyzer('german.py:GERMAN')")


def test_the_method_answers_by_a_majority(run: Run, tmp_path: Path) -> None:
    script, question = tmp_path / "script.jsonl", "Which metal is liquid?"
    script.write_text(json.dumps({"texts": ["iron", "mercury", "mercury "]}))
    options = ("--corpus", "sample", "--llm", f"scripted:{script}", "--set", "votes=3", "--set", "k=1")
    answered = json.loads(run("idx", "ask", "./vote.py:VOTE", question, *options, "--json"))
    assert (answered["answer"], answered["detail"], len(answered["passages"])) == ("mercury", {"votes": 2}, 1)
    assert "vote  " in run("idx", "--plugin", "./vote.py:VOTE", "ask")
    run("-c", "from wikidx.testing import *; check_method('vote.py:VOTE', votes=3)")


def test_the_metric_compares_first_words(run: Run, tmp_path: Path) -> None:
    predictions = tmp_path / "theirs.json"
    predictions.write_text(json.dumps({"a": "Mercury, of course", "b": "It is gold"}))
    questions = tmp_path / "questions.jsonl"
    golds = {"a": ["mercury (element)"], "b": ["gold"], "c": []}
    lines = [json.dumps({"id": name, "question": f"{name}?", "golden_answers": answers}) for name, answers in golds.items()]
    questions.write_text("\n".join(lines) + "\n")
    options = ("--questions", str(questions), "--metrics", "squad_em,./first_word.py:FIRST_WORD", "--json")
    found = json.loads(run("idx", "eval", "answers", str(predictions), *options))["metrics"]["first_word"]
    assert (found["mean"], found["n"], found["metric_sha256"]) == (0.5, 2, hashlib.sha256(FILES["first_word.py"].encode()).hexdigest())
    run("-c", "from wikidx.testing import *; check_metric('first_word.py:FIRST_WORD')")


def test_the_backend_answers_by_a_sentence_of_the_passages(run: Run) -> None:
    asked = ("rag", "Which metal is liquid at room temperature?", "--corpus", "sample", "--json", "--llm")
    answered = json.loads(run("idx", "ask", *asked, "./extract.py:EXTRACT"))
    assert "liquid" in answered["answer"]
    assert any(answered["answer"].rstrip(".") in passage["text"] for passage in answered["passages"])
    again = run("idx", "--plugin", "./extract.py:EXTRACT", "ask", *asked, "answer=extract")
    assert json.loads(again)["answer"] == answered["answer"]
    run("-c", "from wikidx.testing import *; check_backend('extract.py:EXTRACT')")


def test_a_run_of_another_version_of_the_method_is_not_resumed(run: Run, tmp_path: Path) -> None:
    script, questions, out = tmp_path / "script.jsonl", tmp_path / "questions.jsonl", str(tmp_path / "run")
    script.write_text(json.dumps({"texts": ["mercury"] * 5}) + "\n")
    questions.write_text(json.dumps({"id": "1", "question": "Which metal is liquid?", "golden_answers": ["mercury"]}) + "\n")
    (tmp_path / "vote").mkdir()
    (tmp_path / "vote" / "answer.txt").write_text(FILES["vote/answer.txt"])
    (tmp_path / "vote.py").write_text(FILES["vote.py"])
    command = (
        "run",
        f"{tmp_path}/vote.py:VOTE",
        "--questions",
        str(questions),
        "--corpus",
        "sample",
        "--llm",
        f"scripted:{script}",
        "--out",
        out,
    )
    run("idx", *command)
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert recorded["method_sha256"] == hashlib.sha256(FILES["vote.py"].encode()).hexdigest()
    assert "vote/answer.txt" in recorded["prompts"]
    run("idx", *command)
    (tmp_path / "vote.py").write_text(FILES["vote.py"] + "\n# another version\n")
    with pytest.raises(AssertionError, match="method_sha256"):
        run("idx", *command)


QUIZ = """// a quiz
::Q1:: Which metal is liquid
  at room temperature? {=mercury =quicksilver ~iron#it rusts}

What is the symbol of gold? {=Au}
"""


def test_the_format_of_questions_reads_a_quiz_and_is_recorded(run: Run, tmp_path: Path) -> None:
    script, quiz, out = tmp_path / "script.jsonl", tmp_path / "quiz.txt", tmp_path / "run"
    script.write_text(json.dumps({"texts": ["quicksilver"]}) + "\n" + json.dumps({"texts": ["gold"]}) + "\n")
    quiz.write_text(QUIZ)
    options = ("--questions", str(quiz), "--llm", f"scripted:{script}", "--concurrency", "1", "--out", str(out))
    run("idx", "run", "direct", *options, "--format", "./gift.py:GIFT")
    questions = json.loads((out / "run.json").read_text())["settings"]["questions"]
    assert questions["question_format_sha256"] == hashlib.sha256(FILES["gift.py"].encode()).hexdigest()
    rows = [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]
    assert {row["id"]: row["question"] for row in rows} == {
        "Q1": "Which metal is liquid at room temperature?",
        "2": "What is the symbol of gold?",
    }
    scored = json.loads(run("idx", "--plugin", "./gift.py:GIFT", "eval", "answers", str(out), "--metrics", "squad_em", "--json"))
    assert scored["questions"] == 2
    run("-c", f"from wikidx.testing import *; check_question_format('gift.py:GIFT', {str(quiz)!r})")
