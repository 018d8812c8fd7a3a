"""``idx ask``: the answer, the passages used, the steps; every mistake in one line."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.command_line import Command, without_times
from tests.runtimes.llms.tiny import save_tiny_llama
from tests.runtimes.test_cli import error
from tests.runtimes.test_serve import idx_serve
from wikidx.corpora.build import open_store
from wikidx.retrievers.opening import open_searcher
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.results import prediction_to_json
from wikidx.runtimes.llms.transformers_engine import TransformersEngine
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.methods.base import list_options
from wikidx.runtimes.questions import Question

Script = Callable[..., str]

LIQUID = "Which metal is liquid at room temperature?"
BEST = ("element-80#0", "element-10#0")  # what BM25 finds for it


@pytest.mark.usefixtures("sample_home")
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
    result = json.loads(idx(*asked, "--json"))
    assert list(result) == ["method", "question", "answer", "passages", "detail", "degraded", "cost", "timing", "replies"]
    assert (result["method"], result["question"], result["answer"]) == ("rag", LIQUID, "Mercury")
    assert [passage["id"] for passage in result["passages"]] == list(BEST)
    assert result["replies"] == {"texts": 1, "cut": 0, "empty": 0}
    assert result["cost"] == {"calls": 1, "prompt_tokens": 216, "completion_tokens": 1, "searches": 1, "queries": 1, "depth": 2}
    (searched, generated) = json.loads(idx(*asked, "--json", "--trace"))["steps"]
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


@pytest.mark.usefixtures("sample_home")
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


@pytest.mark.usefixtures("sample_home")
def test_a_terminal_is_told_nothing_by_texts(idx: Command, script: Script) -> None:
    said = idx("ask", "direct", "who?", "--llm", script({"text": "a\u001b[31mred\u009b2J\u0007 [b]é\u202e[/b]"}), "--trace")
    assert said.count("a\\x1b[31mred\\x9b2J\\x07 [b]é\\u202e[/b]") == 3
    assert "\u001b" not in said


def test_a_dry_run_needs_neither_model_nor_corpus(idx: Command) -> None:
    said = idx("ask", "rag", LIQUID, "--dry-run", "--set", "k=2", "--llm", "hf:/no/such/folder")
    for part in (LIQUID, "depth 1: retrieve 2", "<title 2>", "[system]\n", "[2] <title 2>\n", "<text of passage 2>", "→ <answer 1>"):
        assert part in said
    result = json.loads(idx("ask", "refeed", "who?", "--dry-run", "--json", "--set", "samples=2"))
    assert [step["request"] for step in result["steps"] if "request" in step] == ["generate", "retrieve", "generate"]
    assert result["steps"][1]["queries"] == ["who? <answer 1.1>", "who? <answer 1.2>"]


@pytest.mark.usefixtures("sample_home")
def test_a_dry_run_asks_scripts_and_the_corpus(idx: Command, script: Script) -> None:
    result = json.loads(
        idx(
            "ask", "ra_isf", LIQUID, "--corpus", "sample", "--dry-run", "--json", "--llm", "know=" + script({"role": "know", "text": "yes"})
        )
    )
    assert result["answer"] == "<answer 1>"
    assert result["cost"]["calls"] == 2
    result = json.loads(idx("ask", "rag", LIQUID, "--corpus", "sample", "--dry-run", "--json", "--set", "k=2"))
    assert [passage["id"] for passage in result["passages"]] == list(BEST)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_dry_run_and_is_explained(idx: Command, name: str) -> None:
    result = json.loads(idx("ask", name, "Who wrote the book that the film was made of?", "--dry-run", "--json"))
    assert result["cost"]["calls"] > 0
    method = find_method(name)
    explained = idx("ask", name)
    assert explained.startswith(f"{name}: {method.summary} (")
    for one in list_options(method.options()):
        assert f"\n  {one.name}=" in explained
        assert f"[{one.origin}]" in explained
    about = json.loads(idx("ask", name, "--json"))
    assert (about["method"], about["roles"], list(about["presets"])) == (name, list(method.roles), list(method.presets))
    assert [one["name"] for one in about["options"]] == [one.name for one in list_options(method.options())]


def test_each_role_has_the_model_that_it_is_given(sample_home: Path, idx: Command, script: Script) -> None:
    every, know = script({"text": "from every"}), script({"text": "yes"})
    result = json.loads(idx("ask", "ra_isf", "who?", "--corpus", "sample", "--llm", f"know={know}", "--llm", every, "--json", "--trace"))
    assert [(step["role"], step["result"][0]["text"]) for step in result["steps"]] == [("know", "yes"), ("answer", "from every")]


def test_a_local_model_says_what_it_says_in_python(sample_home: Path, idx: Command, tmp_path: Path) -> None:
    tiny = str(save_tiny_llama(tmp_path / "llama", context=8192))
    result = json.loads(
        idx(
            "ask",
            "rag",
            LIQUID,
            "--corpus",
            "sample",
            "--llm",
            f"hf:{tiny}",
            "--device",
            "cpu",
            "--set",
            "max_tokens=9",
            "--json",
            "--trace",
        )
    )
    method, engine = find_method("rag"), TransformersEngine(tiny)
    services = Services(llms={"answer": engine}, searcher=open_searcher("sample"))
    (expected,) = execute(lambda text: method.run(text, method.options(max_tokens=9)), [Question("question", LIQUID)], services)
    there: dict[str, Any] = json.loads(json.dumps(prediction_to_json(expected)))
    assert without_times(result) == {
        "method": "rag",
        **{name: value for name, value in without_times(there).items() if name not in ("id", "error")},
    }
    assert result["cost"]["completion_tokens"] > 0


def test_searches_on_a_server(sample_home: Path, idx: Command, script: Script) -> None:
    asked = ("ask", "rag", LIQUID, "--llm", script({"match": "", "text": "Mercury"}), "--json", "--trace")
    with idx_serve("sample", "--no-access-log", IDX_API_KEY="secret") as server:
        there = json.loads(idx(*asked, "--url", server.url, "--api-key", "secret"))
        here = json.loads(idx(*asked, "--corpus", "sample"))
        assert without_times(there) == without_times(here)
        assert "requires its API key" in idx(*asked, "--url", server.url, status=2)
        for arguments, message in (
            (["--corpus", "sampl"], "unknown corpus 'sampl': did you mean 'sample'"),
            (["-r", "bm52"], "unknown retriever 'bm52': did you mean 'bm25'"),
            (["--reranker", "simlm"], "a server has its own"),
        ):
            assert message in idx(*asked, "--url", server.url, "--api-key", "secret", *arguments, status=2)
        react = ("ask", "react", "who?", "--llm", script({"text": "x"}), "--url", server.url, "--api-key", "secret")
        assert "looks titles up, which needs a corpus on this machine" in idx(*react, status=2)
    assert "cannot be reached" in idx(*asked, "--url", server.url, status=2)
    assert "is not the address of a server" in idx(*asked, "--url", "nowhere", status=2)


class _HangingServer(BaseHTTPRequestHandler):
    """A server that lists its corpus, and answers no search."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        served = {
            "corpus": "made",
            "fingerprint": "f",
            "passages": None,
            "retrievers": [{"retriever": "bm25", "ready": True}],
            "indexes": [],
        }
        body = json.dumps({"corpora": [served]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read()  # until the client gives up


def test_a_search_on_a_server_has_a_time_limit_of_its_own(idx: Command, script: Script) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _HangingServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url, started = f"http://127.0.0.1:{server.server_port}", time.monotonic()
    try:
        asked = ("ask", "rag", LIQUID, "--llm", script({"text": "Mercury"}), "--url", url, "--search-timeout", "0.3")
        assert f"{url} did not answer within 0.3 s: give it more time" in idx(*asked, status=2)
    finally:
        server.shutdown()
        server.server_close()
    assert time.monotonic() - started < 60  # --timeout, which is of models, is 600


@pytest.mark.usefixtures("sample_home")
def test_titles_are_looked_up_in_the_corpus(idx: Command, script: Script) -> None:
    texts = ["I look it up.", "Search[Egypt]", "There it is.", "Finish[Cairo]"]
    result = json.loads(
        idx(
            "ask",
            "react",
            "What is its capital?",
            "--corpus",
            "sample",
            "--llm",
            script(*({"text": text} for text in texts)),
            "--json",
            "--trace",
        )
    )
    (found,) = [step["result"] for step in result["steps"] if step.get("request") == "look_up"]
    store = open_store("sample")
    assert [passage["id"] for passage in found] == [passage.id for passage in store.get_many(store.rows_with_title("Egypt"))]
    assert result["answer"] == "Cairo"


@pytest.mark.usefixtures("sample_home")
def test_a_preset_gives_way_to_what_is_named(idx: Command, script: Script) -> None:
    asked = ("ask", "retrorag", "who?", "--llm", script({"text": "x"}), "--preset", "default")
    assert "'wiki2018' is not built: run 'idx build wiki2018'" in idx(*asked, status=2)
    said = idx(*asked, "--corpus", "sample", "--search", "rerank=none", status=2)
    assert "rerank_depth is 100, but rerank is 'none'" in said
    dry = idx("ask", "retrorag", "who?", "--dry-run", "--preset", "default", "--corpus", "sample", "--search", "rerank=primary", "--json")
    assert json.loads(dry)["cost"]["searches"] > 0


@pytest.mark.usefixtures("sample_home")
def test_a_question_that_fails_is_an_error_after_its_steps(idx: Command, script: Script) -> None:
    asked = ("ask", "rag", "who?", "--corpus", "sample", "--llm", script({"yes": 0.5}))
    assert idx(*asked, status=2) == "error: the script answers 0.5 where it should answer a text, as 'answer': correct the script"
    assert "where it should answer a text" in idx(*asked, "--json", status=2)


MISTAKES: Sequence[tuple[Sequence[str], str]] = [
    (["ragg", "who?"], "unknown method 'ragg': did you mean 'rag'"),
    (["rag", " "], "the question is ' ', not a text in UTF-8"),
    (["ra_isf", "who?", "--llm", "know=SCRIPT", "--corpus", "sample"], "no model for 'answer', 'relevance', 'decompose': add --llm"),
    (["rag", "who?", "--llm", "SCRIPT"], "nothing to search: add --corpus, --preset or --url"),
    (["self_ask", "who?", "--llm", "SCRIPT"], "nothing to search: add --corpus, --preset or --url"),
    (["rag", "who?", "--llm", "SCRIPT", "-r", "bm25"], "--retriever says how to search, but not where: add --corpus, --preset or --url"),
    (["rag", "who?", "--llm", "SCRIPT", "--search", "depth=3"], "--search says how to search, but not where"),
    (["rag", "who?", "--llm", "SCRIPT", "--corpus", "smaple"], "unknown corpus 'smaple': did you mean 'sample'"),
    (["rag", "who?", "--llm", "SCRIPT", "--corpus", "wiki2018"], "the corpus 'wiki2018' is not built: run 'idx build wiki2018'"),
    (["rag", "who?", "--llm", "SCRIPT", "--corpus", "sample", "-r", "bm52"], "unknown retriever 'bm52'"),
    (["rag", "who?", "--llm", "SCRIPT", "--corpus", "sample", "-r", "minilm"], "idx build sample --encoder minilm"),
    (["rag", "who?", "--llm", "SCRIPT", "--corpus", "sample", "-r", "bm25+bm25"], "names a retriever twice"),
    (["rag", "who?", "--llm", "SCRIPT", "--corpus", "sample", "--set", "kk=1"], "unknown option 'kk': did you mean 'k'"),
    (["rag", "who?", "--llm", "SCRIPT", "--corpus", "sample", "--set", "k=0"], "k is 0: it should be greater than or equal to 1"),
    (
        ["rag", "who?", "--llm", "SCRIPT", "--corpus", "sample", "--set", "max_tokens=0"],
        "max_tokens is 0: it should be greater than or equal to 1",
    ),
    (["rag", "who?", "--llm", "SCRIPT", "--corpus", "sample", "--set", "shots=99"], "has 6 demonstrations, not 99"),
    (
        ["ra_isf", "who?", "--llm", "SCRIPT", "--corpus", "sample", "--set", "depth_test=never"],
        "it should be 'exceeded', 'reached' or 'leaf'",
    ),
    (["rag", "who?", "--llm", "SCRIPT", "--corpus", "sample", "--search", "dept=3"], "unknown search option 'dept': did you mean 'depth'"),
    (
        ["rag", "who?", "--llm", "SCRIPT", "--corpus", "sample", "--search", "depth=0"],
        "depth is 0: it should be greater than or equal to 1",
    ),
    (["rag", "who?", "--llm", "SCRIPT", "--corpus", "sample", "--search", "nprobe=4"], "nprobe is no parameter of 'bm25'"),
    (["ra_isf", "who?", "--llm", "SCRIPT", "--preset", "NQ"], "unknown preset of 'ra_isf' 'NQ': known: default"),
    (["rag", "who?", "--llm", "SCRIPT", "--corpus", "sample", "--device", "gpu"], "the device 'gpu' is none of"),
    (["rag", "who?", "--llm", "gpt", "--corpus", "sample"], "'gpt' names no language model"),
    (["rag", "who?", "--llm", "opnai:gpt", "--corpus", "sample"], "unknown backend 'opnai': did you mean 'openai'"),
    (["rag", "who?", "--llm", "judge=SCRIPT", "--corpus", "sample"], "unknown role 'judge'"),
    (["rag", "who?", "--llm", "SCRIPT", "--llm", "hf:x", "--corpus", "sample"], "every role is given to two models"),
    (["rag", "who?", "--llm", "scripted:/no/such/file", "--corpus", "sample"], "there is no file /no/such/file"),
    (["rag", "who?", "--llm", "hf:/no/such/folder", "--corpus", "sample"], "'/no/such/folder' is no checkpoint"),
]


@pytest.mark.usefixtures("sample_home")
@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_mistakes_are_one_line(idx: Command, script: Script, arguments: Sequence[str], message: str) -> None:
    model = script({"text": "x"})
    said = idx("ask", *(argument.replace("SCRIPT", model) for argument in arguments), status=2)
    assert said.startswith("error: ")
    assert message in said


def test_nothing_of_it_is_a_traceback_in_a_process_of_its_own(sample_home: Path) -> None:
    asked = ("ask", "rag", "who?", "--corpus", "sample", "--llm", "openai:x@http://127.0.0.1:9/v1", "--retries", "0")
    assert error(*asked).startswith("nobody listens at http://127.0.0.1:9/v1")
    assert error("ask", "rag", b"caf\xe9".decode(errors="surrogateescape"), "--dry-run").startswith("the question is 'caf")
