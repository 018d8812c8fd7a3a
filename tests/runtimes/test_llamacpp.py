"""All methods with a real language model in llama.cpp: its server in a process of its own, and in this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.runtimes.every_method import short_options
from tests.runtimes.llms.calling import error_of, gens
from wikidx.corpora.build import open_store
from wikidx.corpora.known.sample import questions
from wikidx.retrievers.opening import open_searcher
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.rehearsal import stand_in_similarity
from wikidx.runtimes.execution.results import Prediction
from wikidx.runtimes.llms.base import LLM, Gen, Generate, Reply
from wikidx.runtimes.llms.embedded import embedded_file
from wikidx.runtimes.llms.llamacpp_server import LlamaCpp
from wikidx.runtimes.llms.naming import open_llms, parse_spec
from wikidx.runtimes.llms.openai_model import OpenAIHttp
from wikidx.runtimes.llms.options import ConnectionOptions
from wikidx.runtimes.llms.prompts import Decoding, Message
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.questions import Question

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sample_home")]

N_ASKED = 3  # of each method in CI
N_TOKENS = 24
MULTI_STEP = {"react": {"shots": 2, "max_tokens": 48}, "self_ask": {"shots": 2, "max_tokens": 48}}
SECOND_STEP = {"react": "Thought 2", "self_ask": "Intermediate answer:"}
"""Texts that the second step of methods that continue their own text has in the beginning of the answer."""

LONG = (Message("user", "Tell the history of the world."),)

SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.model_alias = sys.argv[1], {"smollm2"}
params.n_parallel, params.n_ctx, params.verbosity = 2, 16384, -1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""

IN_CI = ("refeed", "self_ask")  # one scores its drafts, one continues its own text


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of llama.cpp's server with the embedded model, in two slots."""
    command = [sys.executable, "-c", SERVER, str(embedded_file("smollm2"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"{process.stdout.readline().strip()}/v1"
        process.kill()


@pytest.fixture(scope="module")
def served(url: str) -> Iterator[LLM]:
    """The embedded model behind llama.cpp's server, in the form in which users name it."""
    (model,) = open_llms({"answer": parse_spec(f"openai:smollm2@{url}")}).values()
    yield model
    model.close()


@pytest.fixture(scope="module")
def embedded() -> Iterator[LLM]:
    model = LlamaCpp("smollm2")
    yield model
    model.close()


def answer(name: str, llm: LLM, n_asked: int) -> list[Prediction]:
    """Answer the first questions of ``sample``; no question may fail."""
    method, store = find_method(name), open_store("sample")
    options = method.options(**{**short_options(name, N_TOKENS), **MULTI_STEP.get(name, {})})
    asked = [Question(str(number), question.question) for number, question in enumerate(questions()[:n_asked])]
    services = Services(
        llms=dict.fromkeys(method.roles, llm),
        searcher=open_searcher("sample"),
        look_up_title=lambda title: store.get_many(store.rows_with_title(title)),
        similarity=stand_in_similarity,
    )
    finished = list(execute(lambda question: method.run(question, options), asked, services, in_flight=4))
    assert len(finished) == n_asked
    assert [one.error for one in finished] == [None] * n_asked
    assert all(one.cost.completion_tokens > 0 for one in finished)
    return finished


def begins_answer(request: object) -> bool:
    """Return whether the model is to continue an answer."""
    return isinstance(request, Generate) and isinstance(request.prompt[-1], Message) and request.prompt[-1].role == "assistant"


# All methods run over HTTP with a tiny model in test_methods_run; here some do with a real one.
@pytest.mark.parametrize(
    ("name", "n_asked"),
    [*((name, N_ASKED) for name in IN_CI), *(pytest.param(name, 40, marks=pytest.mark.exhaustive) for name in METHODS)],
)
def test_a_method_answers_over_the_server(name: str, n_asked: int, served: LLM) -> None:
    """The server repeats the beginning of an answer. Read as new, it would be the first step of ReAct and Self-Ask again."""
    steps = [step for one in answer(name, served, n_asked) for step in one.steps]
    continued = {step.request.prompt[-1].content: step.result for step in steps if begins_answer(step.request)}  # type: ignore[union-attr]
    for beginning, result in continued.items():
        assert isinstance(result, tuple)
        assert not any(gen.text.strip().startswith(beginning.strip()) for gen in result if isinstance(gen, Gen))
    if name in SECOND_STEP:
        assert any(SECOND_STEP[name] in beginning for beginning in continued)


def test_a_method_answers_in_this_process(embedded: LLM) -> None:
    answer("self_reasoning", embedded, 1)


def test_the_server_repeats_the_beginning_of_an_answer_and_it_is_taken_away(served: LLM) -> None:
    beginning = "The capital of France is the city of"
    prompt = (Message("user", "What is the capital of France?"), Message("assistant", beginning))
    (gen,) = gens(served.run([Generate(prompt=prompt)])[0])
    assert "Paris" in gen.text
    assert beginning not in gen.text
    assert gen.degraded == ()


def test_a_long_answer_of_the_server_takes_longer_than_its_limits_and_an_abandoned_one_leaves_its_slot(url: str) -> None:
    endless = {"ignore_eos": True}
    patient = OpenAIHttp("smollm2", url, options=ConnectionOptions(timeout=10.0, token_timeout=3.0, retries=0, extra_body=endless))
    (long,) = patient.run([Generate(prompt=LONG, decoding=Decoding(max_tokens=768, temperature=0.7, seed=1))])
    patient.close()
    assert isinstance(long, Reply), long
    assert long.completion_tokens == 768
    assert long.seconds is not None
    assert long.seconds > 3.0
    hasty = OpenAIHttp("smollm2", url, options=ConnectionOptions(token_timeout=1e-3, retries=0, extra_body=endless))
    abandoned = hasty.run([Generate(prompt=LONG, decoding=Decoding(max_tokens=4096))] * 2)
    hasty.close()
    assert all("has sent no further token for 0.001 s" in error_of(reply) for reply in abandoned)
    prompt_again = OpenAIHttp("smollm2", url)
    (short,) = prompt_again.run([Generate(prompt=LONG, decoding=Decoding(max_tokens=1))])
    prompt_again.close()
    assert isinstance(short, Reply), short
    assert (short.seconds or 0.0) < long.seconds  # each abandoned answer has five times as many tokens


def test_a_greedy_loop_is_ended_early(embedded: LLM) -> None:
    """The model repeats a list of numbers for ever; llama.cpp is told to stop by the end of the connection."""
    asked = (Message("user", "Repeat the word metal."), Message("assistant", "metal metal metal metal metal metal"))
    (reply,) = embedded.run([Generate(prompt=asked, decoding=Decoding(max_tokens=3000))])
    assert isinstance(reply, Reply)
    assert gens(reply)[0].finish == "length"
    assert reply.completion_tokens < 1000
