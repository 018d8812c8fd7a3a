"""200 questions of Natural Questions over 33,888 passages by every method, with a tiny Llama: killed, resumed, every cost accounted for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.commands import idx as idx_process
from tests.runtimes.every_method import short_options
from tests.runtimes.llms.tiny import save_tiny_llama
from tests.runtimes.test_run import killed_after
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
from wikidx.indexer.build import build_index
from wikidx.runtimes.execution.runs import read_predictions
from wikidx.runtimes.methods import METHODS

N_ASKED = 200


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Iterator[Path]:
    """A home with the passages and their BM25 index, and the checkpoint in a folder beside it."""
    folder = tmp_path_factory.mktemp("nq")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(folder / "home"))
        source = shared_data / "dpr_union" / "passages.jsonl.gz"
        build_store(custom_corpus(source, "nq", ReadOptions(file_format=None, split=None, n_words=100)), StoreOptions())
        store = open_store("nq")
        build_index("nq", "bm25", store)
        texts = [passage.text for passage in store.get_many(range(500))]
        save_tiny_llama(folder / "llama", context=4096, texts=texts, n_tokens=4000)  # words, not bytes: prompts a third as long
        yield folder


# Ten seconds to a minute each
@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(one, marks=() if one in ("rag", "refeed") else pytest.mark.exhaustive) for one in METHODS])
def test_200_questions(name: str, made: Path, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_HOME", str(made / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # so small a model is slowed down by threads, ten times on a busy machine
    asked = (
        *(name, "--questions", shared_data / "datasets" / "data_nq_sampled.jsonl.gz", "--limit", N_ASKED, "--corpus", "nq"),
        *("--llm", f"hf:{made / 'llama'}", "--device", "cpu"),
        *(part for field, value in short_options(name).items() for part in ("--set", f"{field}={value}")),
    )
    with killed_after(1, tmp_path / "out", *asked):
        pass
    n_before = (tmp_path / "out" / "predictions.jsonl").read_bytes().count(b"\n")
    ended = idx_process("run", *asked, "--out", tmp_path / "out", "--json")
    report = json.loads(ended.out)
    assert (report["questions"], report["answered"], report["failed"]) == (N_ASKED, N_ASKED, [])
    records = dict(read_predictions(tmp_path / "out"))
    assert list(map(int, sorted(records, key=int))) == list(range(1, N_ASKED + 1))
    assert 0 < n_before <= N_ASKED
    for record in records.values():
        steps, cost = record["steps"], record["cost"]
        calls = [step for step in steps if step.get("request") in ("generate", "yes_no", "nll")]
        searches = [step for step in steps if step.get("request") == "retrieve"]
        assert (cost["calls"], cost["searches"]) == (len(calls), len(searches))
        assert cost["queries"] == sum(len(step["queries"]) for step in searches)
        assert [cost["prompt_tokens"], cost["completion_tokens"]] == [sum(step["tokens"][side] for step in calls) for side in (0, 1)]
        assert cost["depth"] == 1 + max(step["depth"] for step in steps if "request" in step and step["request"] != "truncate")
        assert record["golden_answers"]
        assert record["timing"]["seconds"] > 0
