"""``idx ask``: the answer, the passages used, the steps. Refusals are in ``test_command_errors``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.retrievers.server.serving import Gated, open_gated, serving
from tests.runtimes.command_line import Command, without_times
from tests.runtimes.llms.tiny import save_tiny_llama
from wikidx.corpora.build import open_store
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.server.settings import Settings
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.results import prediction_to_json
from wikidx.runtimes.llms.transformers_engine import TransformersEngine
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.methods.base import list_options
from wikidx.runtimes.questions import Question

pytestmark = pytest.mark.usefixtures("sample_home")

Script = Callable[..., str]

LIQUID = "Which metal is liquid at room temperature?"
BEST = ("element-80#0", "element-10#0")  # what BM25 finds for it


def test_the_answer_and_the_passages_used(idx: Command, script: Script) -> None:
    asked = ("ask", "rag", LIQUID, "--corpus", "sample", "--llm", script({"text": " Mercury\n"}), "--set", "k=2")
    lines = idx(*asked).splitlines()
    assert lines[:4] == [
        "Mercury",
        "",
        "  1  Mercury (element)  [element-80#0]",
        "     The chemical element mercury, written Hg, has 80 protons in its nucleus. Chemists put it as a",
    ]
    assert [line for line in lines if line.startswith("  2  ")] == ["  2  Neon  [element-10#0]"]
    result = idx.json(*asked)
    assert list(result) == ["method", "question", "answer", "passages", "detail", "degraded", "cost", "timing", "replies"]
    assert (result["method"], result["question"], result["answer"]) == ("rag", LIQUID, "Mercury")
    assert [passage["id"] for passage in result["passages"]] == list(BEST)
    assert result["replies"] == {"texts": 1, "cut": 0, "empty": 0}
    assert result["cost"] == {"calls": 1, "prompt_tokens": 216, "completion_tokens": 1, "searches": 1, "queries": 1, "depth": 2}
    (searched, generated) = idx.json(*asked, "--trace")["steps"]
    assert (searched["request"], generated["request"], generated["result"][0]["text"]) == ("retrieve", "generate", " Mercury\n")


RECURSION = [
    {"role": "know", "match": "Which river", "text": "yes"},
    {"role": "know", "text": "no"},
    {"role": "relevance", "match": "Question: What runs through Cairo?", "text": "yes"},
    {"role": "relevance", "text": "no"},
    {"role": "decompose", "text": "1. What runs through Cairo?\n2. Which river is it?"},
    {"match": "Simpler questions", "text": "6650 km"},
    {"match": "Passages", "text": "the Nile"},
    {"text": "that one"},
]
TREE = """\
How long is it?
├── depth 1: generate as 'know' (greedy, at most 8 tokens), N tokens
├── cut to the last 64 tokens of 'answer'
├── depth 2: retrieve 1: How long is it?
├── depth 3: generate as 'relevance' (greedy, at most 8 tokens), N tokens
├── depth 4: generate as 'decompose' (greedy, at most 256 tokens), N tokens
├── sub-question 1
│   ├── depth 5: generate as 'know' (greedy, at most 8 tokens), N tokens
│   ├── cut to the last 64 tokens of 'answer'
│   ├── depth 6: retrieve 1: What runs through Cairo?
│   ├── depth 7: generate as 'relevance' (greedy, at most 8 tokens), N tokens
│   └── depth 8: generate as 'answer' (greedy, at most 256 tokens), N tokens
├── sub-question 2
│   ├── depth 5: generate as 'know' (greedy, at most 8 tokens), N tokens
│   └── depth 6: generate as 'answer' (greedy, at most 256 tokens), N tokens
├── depth 9: generate as 'answer' (greedy, at most 256 tokens), N tokens
└── answer: 6650 km
"""


def test_the_trace_is_a_tree_of_questions_and_their_steps(idx: Command, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are one level below their requests; concurrent requests are drawn in their own branches."""
    monkeypatch.delenv("COLUMNS", raising=False)  # set by readline in processes that pytest starts
    said = idx("ask", "ra_isf", "How long is it?", "--corpus", "sample", "--llm", script(*RECURSION), "--set", "k=1", "--trace")
    heads = ("depth", "cut", "sub-question", "answer: ")
    shown = [line for line in said.splitlines() if line == "How long is it?" or line.lstrip("│├└─ ").startswith(heads)]
    assert [_without_counts(line) for line in shown] == TREE.splitlines()
    assert "│   │   └── → Egypt [country-eg#0] 3.707" in said
    assert "│   └── → 1. What runs through Cairo?\n│       2. Which river is it?" in said
    assert "\n6650 km\n\n  1  Egypt  [country-eg#0]\n" in said


def _without_counts(line: str) -> str:
    head, comma, counts = line.rpartition(", ")
    return f"{head}, N tokens" if comma and counts.endswith(" tokens") and "+" in counts else line


def test_a_terminal_is_told_nothing_by_texts(idx: Command, script: Script) -> None:
    said = idx("ask", "direct", "who?", "--llm", script({"text": "a\u001b[31mred\u009b2J\u0007 [b]é\u202e[/b]"}), "--trace")
    assert said.count("a\\x1b[31mred\\x9b2J\\x07 [b]é\\u202e[/b]") == 3
    assert "\u001b" not in said


def test_a_dry_run_asks_the_scripts_and_the_corpus_that_are_there(idx: Command, script: Script) -> None:
    said = idx("ask", "rag", LIQUID, "--dry-run", "--set", "k=2", "--llm", "hf:/no/such/folder")
    for part in (LIQUID, "depth 1: retrieve 2", "<title 2>", "[system]\n", "[2] <title 2>\n", "<text of passage 2>", "→ <answer 1>"):
        assert part in said
    result = idx.json("ask", "refeed", "who?", "--dry-run", "--set", "samples=2")
    assert [step["request"] for step in result["steps"] if "request" in step] == ["generate", "retrieve", "generate"]
    assert result["steps"][1]["queries"] == ["who? <answer 1.1>", "who? <answer 1.2>"]
    know = "know=" + script({"role": "know", "text": "yes"})
    result = idx.json("ask", "ra_isf", LIQUID, "--corpus", "sample", "--dry-run", "--llm", know)
    assert (result["answer"], result["cost"]["calls"]) == ("<answer 1>", 2)
    result = idx.json("ask", "rag", LIQUID, "--corpus", "sample", "--dry-run", "--set", "k=2")
    assert [passage["id"] for passage in result["passages"]] == list(BEST)
    preset = ("ask", "retrorag", "who?", "--dry-run", "--preset", "default", "--corpus", "sample", "--search")
    assert idx.json(*preset, "rerank=primary")["cost"]["searches"] > 0
    assert "rerank_depth is 100, but rerank is 'none'" in idx(*preset, "rerank=none", status=2)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_dry_run_and_is_explained(idx: Command, name: str) -> None:
    assert idx.json("ask", name, "Who wrote the book that the film was made of?", "--dry-run")["cost"]["calls"] > 0
    method = find_method(name)
    explained = idx("ask", name)
    assert explained.startswith(f"{name}: {method.summary} (")
    for one in list_options(method.options()):
        assert f"\n  {one.name}=" in explained
        assert f"[{one.origin}]" in explained
    about = idx.json("ask", name)
    assert (about["method"], about["roles"], list(about["presets"])) == (name, list(method.roles), list(method.presets))
    assert [one["name"] for one in about["options"]] == [one.name for one in list_options(method.options())]


def test_each_role_has_the_model_that_it_is_given(idx: Command, script: Script) -> None:
    every, know = script({"text": "from every"}), script({"text": "yes"})
    result = idx.json("ask", "ra_isf", "who?", "--corpus", "sample", "--llm", f"know={know}", "--llm", every, "--trace")
    assert [(step["role"], step["result"][0]["text"]) for step in result["steps"]] == [("know", "yes"), ("answer", "from every")]


def test_a_local_model_says_what_it_says_in_python(idx: Command, tmp_path: Path) -> None:
    tiny = str(save_tiny_llama(tmp_path / "llama", context=8192))
    options = ("--device", "cpu", "--set", "max_tokens=9", "--trace")
    result = idx.json("ask", "rag", LIQUID, "--corpus", "sample", "--llm", f"hf:{tiny}", *options)
    method, engine = find_method("rag"), TransformersEngine(tiny)
    services = Services(llms={"answer": engine}, searcher=open_searcher("sample"))
    (expected,) = execute(lambda text: method.run(text, method.options(max_tokens=9)), [Question("question", LIQUID)], services)
    there: dict[str, Any] = json.loads(json.dumps(prediction_to_json(expected)))
    kept = {name: value for name, value in without_times(there).items() if name not in ("id", "error")}
    assert without_times(result) == {"method": "rag", **kept}
    assert result["cost"]["completion_tokens"] > 0


def test_searches_on_a_server(idx: Command, script: Script) -> None:
    model, opened = script({"match": "", "text": "Mercury"}), list[Gated]()
    asked = ("ask", "rag", LIQUID, "--llm", model, "--trace")
    with serving(Settings(corpora=("sample",), port=0, api_key="secret"), open_gated(opened)) as url:
        where = ("--url", url, "--api-key", "secret")
        assert without_times(idx.json(*asked, *where)) == without_times(idx.json(*asked, "--corpus", "sample"))
        assert "requires its API key" in idx(*asked, "--url", url, status=2)
        for arguments, message in (
            (["--corpus", "sampl"], "unknown corpus 'sampl': did you mean 'sample'"),
            (["-r", "bm52"], "unknown retriever 'bm52': did you mean 'bm25'"),
            (["--reranker", "simlm"], "a server has its own"),
        ):
            assert message in idx(*asked, *where, *arguments, status=2)
        react = idx("ask", "react", "who?", "--llm", model, *where, status=2)
        assert "looks titles up, which needs a corpus on this machine" in react
        opened[0].close_gate()  # the time limit of models is another, of ten minutes
        said = idx(*asked, *where, "--search-timeout", "0.3", status=2)
        assert f"{url} did not answer within 0.3 s: give it more time" in said


def test_titles_are_looked_up_in_the_corpus(idx: Command, script: Script) -> None:
    model = script(*({"text": text} for text in ("I look it up.", "Search[Egypt]", "There it is.", "Finish[Cairo]")))
    result = idx.json("ask", "react", "What is its capital?", "--corpus", "sample", "--llm", model, "--trace")
    (found,) = [step["result"] for step in result["steps"] if step.get("request") == "look_up"]
    store = open_store("sample")
    assert [passage["id"] for passage in found] == [passage.id for passage in store.get_many(store.rows_with_title("Egypt"))]
    assert result["answer"] == "Cairo"
