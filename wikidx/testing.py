"""Contract tests for plug-ins, to be called by their own tests: ``check_encoder("letters.py:LETTERS")``.

Each loads a plug-in by ``FILE.py:NAME`` or ``MODULE:NAME``, uses it as a search does, and raises ``AssertionError`` with what was expected,
or ``InputError`` if the plug-in's code fails. They write to a data home of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from wikidx.base.errors import InputError
from wikidx.base.plugins import VARIABLE, plug
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.known.python_values import given_corpus
from wikidx.corpora.passage import Passage
from wikidx.corpora.reading.readers import read
from wikidx.indexer.base import Encoder, Hits, LexicalIndex, SearchParams, VectorIndex, Vectors
from wikidx.indexer.build import build_index, open_index
from wikidx.indexer.encoders.plugged import OwnEncoder
from wikidx.indexer.encoders.transformer import open_encoder
from wikidx.indexer.naming import encoder_spec, name_encoder
from wikidx.indexer.scope import Scope
from wikidx.retrievers.rerankers.by_name import open_reranker
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.evaluation.answers.metrics import find_metric
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.rehearsal import stand_in_llm, stand_in_services
from wikidx.runtimes.execution.results import Prediction, prediction_to_json
from wikidx.runtimes.llms.base import LLM, AskYesNo, Call, Generate, MeanNll, Reply
from wikidx.runtimes.llms.naming import ModelSpec, open_llms
from wikidx.runtimes.llms.naming import Settings as RunSettings
from wikidx.runtimes.llms.prompts import Decoding, Message, Prompt
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.methods.base import Method
from wikidx.runtimes.questions import Question, read_questions

TEXTS = (
    "Mercury is liquid at room temperature.",
    "Which metal is liquid?",
    "",
    " ",
    "Ångström, naïve, Ελλάδα, Россия, 東京, 🙂",
    "one " * 3000,
    "a\tb\nc\x00d",
)
"""Texts as users have them: sentences, nothing, blanks, scripts, a long text, controls."""

QUESTIONS = ("Which metal is liquid?", "who", "Ist Gold schwerer als Blei?")
GOLDS = (("mercury",), ("Mercury is liquid at room temperature.", "Hg"), ("yes",), ("the",), ("",), ())
REPLIES = ("", "yes", "no", "Follow up: who?", "Search[who]", '{"answer": ', "Answer: gold\n\nSo the final answer is: gold")

_DIM, _N, _K = 16, 2000, 10
_N_CUTS = 100
_SAME = 1e-3  # difference of two vectors or scores, as a share of their length, that batches may make


@contextlib.contextmanager
def own_home() -> Iterator[None]:
    """Use an empty data home, and no plug-ins but those that are named within."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"IDX_HOME": folder, VARIABLE: ""}):
        yield


def check_encoder(reference: str, device: str = "cpu") -> None:
    """Check an encoder: an ``OwnEncoder`` or an ``EncoderSpec``.

    Its vectors are float32 of its dimension and finite, for any text; they are the same again, and the same in any batch but for rounding.
    """
    with own_home():
        encoder: Encoder = open_encoder(encoder_spec(plug(reference, "encoder").name), device)
        passages = [Passage(str(n), text[:40], text) for n, text in enumerate(TEXTS)]
        for encode, texts in ((encoder.encode_queries, list[Any](TEXTS)), (encoder.encode_passages, passages)):
            _check_batches(encode, texts, "vector", least=1e-6)


def _check_batches(compute: Callable[[list[Any]], NDArray[Any]], items: list[Any], name: str, least: float) -> None:
    """Check that items have the same vectors or scores again and, but for rounding, alone.

    Args:
        compute: the function that is checked.
        items: the items.
        name: name of what it returns, for messages.
        least: least length to which a difference is compared.
    """
    together = compute(items)
    assert np.array_equal(compute(items), together), f"the same items have another {name} the second time"
    for item, beside_others in zip(items, together, strict=True):
        (alone,) = compute([item])
        distance = np.linalg.norm(alone - beside_others) / max(least, float(np.linalg.norm(alone)))
        assert distance <= _SAME, f"{item!r:.60} has another {name} alone than in a batch, by {distance:.3f} of its length"


def check_reranker(reference: str, device: str = "cpu") -> None:
    """Check a reranker: one finite score for each pair, the same again, and the same in any batch but for rounding."""
    with own_home():
        reranker = open_reranker(plug(reference, "reranker").name, device=device)
        passages = [Passage(str(n), "", text) for n, text in enumerate(TEXTS)]
        _check_batches(lambda some: reranker.score([TEXTS[1]] * len(some), some), passages, "score", least=1)


def check_analyzer(reference: str) -> None:
    """Check an analyzer: its terms are the same at each call, and a text finds exactly the passages that share a term with it."""
    with own_home():
        plugged = plug(reference, "analyzer")
        build_store(given_corpus(TEXTS, "made"), StoreOptions())
        store, name = open_store("made"), f"bm25-{plugged.name}"
        build_index("made", name, store)
        index: LexicalIndex = open_index("made", name, store)  # type: ignore[assignment]
        terms = [{*plugged.value.terms(text)} for text in TEXTS]
        assert any(terms), "no text has terms"
        assert terms == [{*plugged.value.terms(text)} for text in TEXTS], "a text has other terms the second time"
        for text, its_terms, rows in zip(TEXTS, terms, index.search(TEXTS, len(TEXTS)).rows.tolist(), strict=True):
            expected = {row for row, others in enumerate(terms) if its_terms & others}
            assert {*rows} - {-1} == expected, f"{text!r:.60} finds the passages {rows}, and shares terms with {sorted(expected)}"


def check_reader(reference: str, path: Path | str) -> None:
    """Check a format on a file: passages have ids of their own and texts, and are the same again; a cut costs only what it cuts off."""
    with own_home(), tempfile.TemporaryDirectory() as folder:
        name = plug(reference, "format").name
        passages = [located.passage for located in read(Path(path), name)]
        assert passages, f"{path} has no passages"
        assert all(passage.text.strip() for passage in passages), "a passage has no text"
        assert len({passage.id for passage in passages}) == len(passages), "two passages have the same id"
        assert [located.passage for located in read(Path(path), name)] == passages, "the same file has other passages the second time"
        content, cut = Path(path).read_bytes(), Path(folder) / Path(path).name
        for n_bytes in range(0, len(content), max(1, len(content) // _N_CUTS)):
            cut.write_bytes(content[:n_bytes])
            found = list[Passage]()
            with contextlib.suppress(InputError):
                found.extend(located.passage for located in read(cut, name, lambda bad: None))
            assert found[:-1] == passages[: max(0, len(found) - 1)], f"the first {n_bytes} bytes of {path} hold other passages than it"


def check_question_format(reference: str, path: Path | str) -> None:
    """Check a format of questions on a file: the questions are the same again; a cut costs only what it cuts off."""
    with own_home(), tempfile.TemporaryDirectory() as folder:
        name = plug(reference, "question_format").name
        questions = read_questions(Path(path), name, with_passages=True)
        assert read_questions(Path(path), name, with_passages=True) == questions, "the same file has other questions the second time"
        content, cut = Path(path).read_bytes(), Path(folder) / Path(path).name
        for n_bytes in range(0, len(content), max(1, len(content) // _N_CUTS)):
            cut.write_bytes(content[:n_bytes])
            found = list[Question]()
            with contextlib.suppress(InputError):
                found = read_questions(cut, name, with_passages=True)
            assert found[:-1] == questions[: max(0, len(found) - 1)], f"the first {n_bytes} bytes of {path} hold other questions than it"


def check_method(reference: str, **options: object) -> None:
    """Check a method: with these options, it answers by a text, whatever its models reply, and the same again with other questions beside.

    Its models are stand-ins that reply nothing, "no", something unreadable or a search; its searches find made-up passages.
    """
    with own_home():
        method = find_method(plug(reference, "method").name)
        chosen = method.options(**options)
        for reply in REPLIES:
            alone = [_ask(method, chosen, [question], reply)[0] for question in QUESTIONS]
            assert not (errors := [one.error for one in alone if one.error]), f"where models reply {reply!r}: {errors[0]}"
            assert all(isinstance(one.answer, str) for one in alone), f"where models reply {reply!r}, the answer is no text"
            json.dumps([prediction_to_json(one, with_steps=True) for one in alone])
            together = _ask(method, chosen, QUESTIONS, reply)
            same = [
                (one.answer, one.detail, one.cost) == (other.answer, other.detail, other.cost)
                for one, other in zip(alone, together, strict=True)
            ]
            assert all(same), f"{QUESTIONS[same.index(False)]!r} is answered otherwise beside other questions, where models reply {reply!r}"


def check_metric(reference: str, *questions: Question) -> None:
    """Check a metric: for any answer and question, it has a number from 0 to 1 or None, and the same again.

    Args:
        reference: the metric.
        questions: further questions, whose gold data the metric reads.
    """
    with own_home():
        metric = find_metric(plug(reference, "metric").name)
        assert metric.missing is None or 0 <= metric.missing <= 1, f"a missing answer has the value {metric.missing}"
        asked = [*(Question(str(n), QUESTIONS[0], golds) for n, golds in enumerate(GOLDS)), *questions]
        pairs = [(answer, question) for question in asked for answer in (*TEXTS, *question.golden_answers)]
        values = [metric.score(answer, question) for answer, question in pairs]
        assert values == [metric.score(answer, question) for answer, question in pairs], "an answer has another value the second time"
        found = {*values}
        assert len(found - {None}) > 1, f"all answers have the values {found}: give check_metric questions of the metric's kind"


def check_backend(reference: str, model: str = "") -> None:
    """Check a backend of language models, with a model of this name.

    Texts are the same again and in any batch, greedy ones and those drawn with a seed, and end before a stop text. The probabilities of yes
    and no are ones, likelihoods are known or not.
    """
    with own_home():
        spec = ModelSpec(None, plug(reference, "backend").name, model, None)
        llm = open_llms({"answer": spec}, RunSettings(device="cpu"))["answer"]
        prompts: list[Prompt] = [*QUESTIONS, *((Message("user", text),) for text in TEXTS)]
        with contextlib.closing(llm):
            for decoding in (Decoding(max_tokens=16), Decoding(max_tokens=16, temperature=1.0, seed=5)):
                calls = [Generate(prompt=prompt, decoding=decoding, n=1 if decoding.is_greedy else 3) for prompt in prompts]
                together, name = _results(llm, calls), f"at temperature {decoding.temperature:g}"
                assert _results(llm, calls) == together, f"a prompt has another text the second time, {name}"
                assert [_results(llm, [call])[0] for call in calls] == together, f"a prompt has another text alone than in a batch, {name}"
                for call, (gen, *_) in zip(calls, together, strict=True):
                    if stop := gen.text.strip()[-3:]:
                        ((cut, *_),) = _results(llm, [replace(call, decoding=replace(decoding, stop=(stop,)))])
                        assert stop not in cut.text, f"{cut.text!r:.60} has the stop text {stop!r}"
            for answer in _results(llm, [AskYesNo(prompt=prompt) for prompt in prompts]):
                is_probable = answer.p_positive >= 0 and answer.p_negative >= 0 and answer.mass <= 1 + _SAME
                assert is_probable, f"{answer} has no probabilities of yes and no"
            for nll in _results(llm, [MeanNll(prompt=prompt, continuation=" gold") for prompt in prompts]):
                assert nll.total is None or 0 <= nll.total < np.inf, f"{nll} has no likelihood"


def _results(llm: LLM, calls: Sequence[Call]) -> list[Any]:
    replies = llm.run(calls)
    for call, reply in zip(calls, replies, strict=True):
        if isinstance(reply, LLMError):
            raise AssertionError(f"{call.prompt!r:.60} fails: {reply}")
    return [reply.result for reply in replies if isinstance(reply, Reply)]


def _ask(method: Method, options: object, questions: Sequence[str], reply: str) -> list[Prediction]:
    services = stand_in_services(method.roles, stand_in_llm(reply))
    asked = [Question(str(number), text) for number, text in enumerate(questions)]
    return sorted(execute(lambda question: method.run(question, options), asked, services), key=lambda one: int(one.id))


class _MadeUpVectors:
    """Vectors drawn at random, by the number in a text."""

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        made = [np.random.default_rng(int(query)).normal(size=_DIM) for query in queries]
        return np.array(made, dtype=np.float32).reshape(-1, _DIM)

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        return self.encode_queries([passage.text for passage in passages])


MADE_UP = OwnEncoder(name="made-up", dim=_DIM, open=lambda device: _MadeUpVectors())


def check_index(reference: str, *, recall: float = 1.0) -> None:
    """Check a kind of index over vectors or passages: build it for 2,000 passages, open it, and search it.

    Hits are sorted, different rows that exist, equal in any batch, and within a scope if there is one. Of an index over vectors, at least
    the share ``recall`` of the ten best are those of brute force, on average over 50 queries.
    """
    with own_home():
        kind = plug(reference, "index")
        build_store(given_corpus(map(str, range(_N)), "made"), StoreOptions())
        store, name = open_store("made"), kind.name
        if kind.value.source == "vectors":
            name = f"{name_encoder(plug(f'{__name__}:MADE_UP', 'encoder').name)}-{name}"
            build_index("made", MADE_UP.name, store)
        build_index("made", name, store)
        index = open_index("made", name, store)
        if kind.value.source == "vectors":
            _check_vector_index(index, recall)  # type: ignore[arg-type]
        else:
            _check_search(index.search, ["17", "18 19 nothing", "", "nothing"])


def _check_vector_index(index: VectorIndex, recall: float) -> None:
    encoder = _MadeUpVectors()
    vectors, queries = (encoder.encode_queries(list(map(str, numbers))) for numbers in (range(_N), range(_N, _N + 50)))
    assert (len(index), index.dim) == (_N, _DIM), f"the index says {len(index)} rows of {index.dim} components, not {_N} of {_DIM}"
    hits = _check_search(index.search, queries)
    best = np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :_K]
    found = np.mean([len({*row} & {*other}) / _K for row, other in zip(hits.rows.tolist(), best.tolist(), strict=True)])
    assert found >= recall, f"of the {_K} best by brute force {found:.3f} are found, not {recall}"
    _check_hits(index.search(queries[:2], _N + 5))
    inside = np.arange(_N) % 3 == 0
    scoped = index.search(queries, _K, SearchParams(scope=Scope.of(inside, _N)))
    _check_hits(scoped)
    assert inside[scoped.rows[scoped.rows >= 0]].all(), "rows outside the scope are returned"


def _check_search(search: Callable[..., Hits], queries: Sequence[str] | Vectors) -> Hits:
    """Return the hits of queries, each of which must have the same alone."""
    hits = search(queries, _K)
    _check_hits(hits)
    alone = [search(queries[number : number + 1], _K).rows[0] for number in range(len(queries))]
    assert np.array_equal(np.array(alone), hits.rows), "a query alone has other hits than in a batch"
    return hits


def _check_hits(hits: Hits) -> None:
    """Check what a search of a plug-in does not: that no row is returned twice."""
    for rows in hits.rows:
        used = rows[rows >= 0]
        assert len({*used.tolist()}) == len(used), "a row is returned twice for a query"
