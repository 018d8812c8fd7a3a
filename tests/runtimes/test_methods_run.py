"""Methods with a real model: a tiny Llama over the sample corpus, in this process and behind an HTTP server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.lucene.jvm import require_java
from tests.runtimes.every_method import short_options
from tests.runtimes.llms.endpoint import serving, tiny_endpoint
from tests.runtimes.llms.tiny import save_tiny_llama
from wikidx.corpora.build import open_store
from wikidx.corpora.known.sample import questions
from wikidx.retrievers.opening import open_searcher
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.rehearsal import stand_in_similarity
from wikidx.runtimes.execution.results import Prediction, prediction_to_json
from wikidx.runtimes.llms.base import LLM, Gen, YesNo
from wikidx.runtimes.llms.openai_model import OpenAIHttp
from wikidx.runtimes.llms.options import ConnectionOptions
from wikidx.runtimes.llms.transformers_engine import TransformersEngine
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.questions import Question

N_ASKED = 1
OWN_SCORES = {"retrorag", "metarag", "searchain", "crag", "replug"}
"""Methods that go by probabilities, of yes and no or of all next tokens: over HTTP only those of the 20 likeliest are known."""
OF_ANY_MODEL = [name for name in METHODS if name != "self_rag"]  # which needs a model with its tokens: llms/test_control_tokens


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TransformersEngine:
    """A tiny Llama whose context takes five passages."""
    return TransformersEngine(str(save_tiny_llama(tmp_path_factory.mktemp("tiny") / "llama", context=8192)))


@pytest.fixture
def over_http(tiny: TransformersEngine) -> Iterator[LLM]:
    with serving(tiny_endpoint(tiny)) as url:
        model = OpenAIHttp("tiny", url, options=ConnectionOptions(concurrency=4))
        yield model
        model.close()


def predictions(name: str, llm: LLM) -> list[Prediction]:
    method, store = find_method(name), open_store("sample")
    own: dict[str, dict[str, int | str]] = {
        "ra_isf": {"max_query_tokens": 1_000},  # over HTTP tokens are estimated, and the cut is another
        "crag": {"evaluate": "yes_no"},  # the other way needs a classifier
        "self_reasoning": {"structured": False},  # the endpoint does not say that it enforces no schema
    }
    options = method.options(**short_options(name), **own.get(name, {}))
    asked = [Question(str(number), question.question) for number, question in enumerate(questions()[:N_ASKED])]
    services = Services(
        llms=dict.fromkeys(method.roles, llm),
        searcher=open_searcher("sample"),
        look_up_title=lambda title: store.get_many(store.rows_with_title(title)),
        similarity=stand_in_similarity,
    )
    finished = execute(lambda question: method.run(question, options), asked, services)
    return sorted(finished, key=lambda one: int(one.id))


@pytest.mark.usefixtures("sample_home")
@pytest.mark.parametrize("name", OF_ANY_MODEL)
def test_a_method_runs_in_this_process_and_over_http(name: str, tiny: TransformersEngine, over_http: LLM) -> None:
    here, there = predictions(name, tiny), predictions(name, over_http)
    assert len(here) == len(there) == N_ASKED
    for one, other in zip(here, there, strict=True):
        assert (one.error, other.error) == (None, None)
        assert min(one.cost.completion_tokens, other.cost.completion_tokens) > 0
        assert json.loads(json.dumps(prediction_to_json(one)))["id"] == one.id
        if name not in OWN_SCORES:
            assert (one.answer, one.passages, one.cost) == (other.answer, other.passages, other.cost)
    assert [len(one.passages) > 0 for one in here if name == "rag"] == [True] * N_ASKED * (name == "rag")


@pytest.mark.usefixtures("sample_home")
def test_scores_of_real_tokens_and_texts_that_cannot_be_read_are_told(tiny: TransformersEngine, over_http: LLM) -> None:
    for llm in (tiny, over_http):
        for one in predictions("self_reasoning", llm):
            assert one.detail["parse"] == "none"
        for one in predictions("refeed", llm):
            gens = [gen for step in one.steps if isinstance(step.result, tuple) for gen in step.result if isinstance(gen, Gen)]
            assert len(gens) == 3  # two drafts and the answer
            assert all(gen.mean_nll is not None and gen.mean_nll > 0 for gen in gens)
    asked = [step for one in predictions("retrorag", tiny) for step in one.steps if isinstance(step.result, YesNo)]
    assert len(asked) > 5
    assert all(0 < step.result.mass < 1 for step in asked if isinstance(step.result, YesNo))


ONE_PROCESS = """
import os, sys
from pathlib import Path
from wikidx.corpora import CORPORA
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.base.registry import load
from tests.lucene.oracle import index_passages
from wikidx.indexer.published.lucene import import_lucene
from wikidx.retrievers.opening import open_searcher
from wikidx.runtimes.llms.base import Generate
from wikidx.runtimes.llms.prompts import Decoding
from wikidx.runtimes.llms.openai_model import OpenAIHttp

build_store(load("corpus", "sample", CORPORA), StoreOptions())
store = open_store("sample")
import_lucene("sample", index_passages(store.read(0, len(store)), Path(sys.argv[2]), own_ids=True), store)
print(open_searcher("sample", "lucene").search(["chemical symbol Au"])[0][0].passage.title)
model = OpenAIHttp("tiny", sys.argv[1])
print(model.run([Generate(prompt="x", decoding=Decoding(max_tokens=1))])[0].prompt_tokens)
model.close()
print(open_searcher("sample", "lucene").search(["chemical symbol Fe"])[0][0].passage.title)
"""


@pytest.mark.slow  # Java: half a minute
@pytest.mark.parametrize("key", [None, pytest.param("sk-mine", marks=pytest.mark.exhaustive)])
def test_a_model_over_http_and_lucene_live_in_one_process(tiny: TransformersEngine, tmp_path: Path, key: str | None) -> None:
    """Pyserini wants a key of OpenAI's at import; the one that the model is asked with is the user's."""
    require_java()
    endpoint = tiny_endpoint(tiny)
    environment = {**os.environ, "IDX_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    environment.pop("OPENAI_API_KEY", None)
    if key is not None:
        environment["OPENAI_API_KEY"] = key
    with serving(endpoint) as url:
        command = [sys.executable, "-c", ONE_PROCESS, url, str(tmp_path / "index")]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False, timeout=240)
    assert ran.stdout.splitlines() == ["Gold", "2", "Iron"], ran.stderr
    assert endpoint.keys == [f"Bearer {key or 'none'}"]
