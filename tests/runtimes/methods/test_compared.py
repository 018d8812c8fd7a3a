"""REPLUG, RECOMP, Self-RAG and CRAG: formulas against plain numpy, and the papers' order of calls on every branch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.runtimes.methods.driving import Driven, drive, passages
from wikidx.base.errors import InputError
from wikidx.retrievers.base import ScoredPassage
from wikidx.runtimes.execution.rehearsal import StandInSearcher, rehearse
from wikidx.runtimes.llms.base import Control, Gen, Generate, Mix, Score
from wikidx.runtimes.llms.prompts import prompt_text
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.methods.crag import choose_action, split_strips
from wikidx.runtimes.methods.requests import Request, Retrieve
from wikidx.runtimes.methods.self_rag import CONTROL, Critique, SelfRagOptions, criticize, wish

THREE = passages("One is. Two is not. Three may be.", "Four was. Five were.", "Six.")


def run(name: str, canned: Any, **options: Any) -> Driven:  # noqa: ANN401 - what ``drive`` takes
    method = find_method(name)
    return drive(method.run("Who?", method.options(**options)), canned)


def last(driven: Driven) -> str:
    (request,) = driven.levels[-1]
    assert isinstance(request, Generate)
    return prompt_text(request.prompt)


# REPLUG


@pytest.mark.parametrize("scores", [[1.5, 0.25, -2.0], [800.0, 799.0, 10.0], [-700.0, -701.0, -702.0]])
def test_replug_mixes_by_the_softmax_of_the_scores(scores: list[float]) -> None:
    hits = [ScoredPassage(passage, row, score, ()) for row, (passage, score) in enumerate(zip(THREE, scores, strict=True))]
    driven = run("replug", [hits, "Ada"], k=3)
    (mix,) = driven.levels[1]
    assert isinstance(mix, Mix)
    expected = np.exp(np.array(scores) - np.max(scores))
    assert mix.weights == pytest.approx((expected / expected.sum()).tolist(), abs=1e-9)
    assert ["Four was" in prompt_text(prompt) for prompt in mix.prompts] == [False, True, False]
    assert (driven.answer.text, driven.answer.passages) == ("Ada", tuple(THREE))


def test_replug_weighs_passages_without_scores_alike_and_answers_without_any() -> None:
    hits = [ScoredPassage(passage, row, math.nan, ()) for row, passage in enumerate(THREE[:2])]
    assert run("replug", [hits, "Ada"]).answer.detail["weights"] == [0.5, 0.5]
    none = run("replug", [[], "Ada"])
    (mix,) = none.levels[1]
    assert isinstance(mix, Mix)
    assert (len(mix.prompts), mix.weights, none.answer.text) == (1, (1.0,), "Ada")
    assert "Passage" not in prompt_text(mix.prompt)


# RECOMP


@pytest.mark.parametrize(("n", "expected"), [(1, "T2 Four was."), (3, "T2 Four was. T1 Three may be. T1 One is.")])
def test_recomp_reads_the_sentences_of_the_largest_products(n: int, expected: str) -> None:
    driven = run("recomp", [THREE, [0.5, -1.0, 0.7, 2.0, 0.1, 0.2], "Ada"], compress="extractive", n_sentences=n)
    (request,) = driven.levels[1]
    assert request == Score(
        prompt="Who?",
        texts=("T1 One is.", "T1 Two is not.", "T1 Three may be.", "T2 Four was.", "T2 Five were.", "T3 Six."),
        role="compressor",
    )
    assert expected in last(driven)
    assert driven.answer.detail["compressed"] == expected


def test_recomp_reads_the_summary_of_its_t5_or_no_passage_if_it_is_empty() -> None:
    driven = run("recomp", [THREE[:2], "Ada wrote it.", "Ada"])
    assert driven.outline == [["retrieve"], ["compressor"], ["answer"]]
    read = "Question: Who?\n Document: T1 One is. Two is not. Three may be.\nT2 Four was. Five were.\n Summary: "
    assert driven.prompts("compressor") == [read]
    assert "Summary:\n\nAda wrote it.\n\nQuestion: Who?" in last(driven)
    assert driven.answer.passages == tuple(THREE[:2])
    empty = run("recomp", [THREE, " \n", "Ada"])
    assert "Summary:\n" not in last(empty)
    assert (empty.answer.text, empty.answer.passages) == ("Ada", ())
    assert run("recomp", [[], "Ada"]).outline == [["retrieve"], ["answer"]]


# Self-RAG


def logprobs(**chosen: float) -> tuple[float, ...]:
    """Log-probabilities of all control tokens, those of some by the beginning of their names."""
    names = {
        "rel": "[Relevant]",
        "irr": "[Irrelevant]",
        "full": "[Fully",
        "part": "[Part",
        "no": "[No support",
        "yes": "[Retr",
        "not": "[No R",
    }
    given = {next(token for token in CONTROL if token.startswith(names.get(name, f"[Utility:{name[1:]}"))): p for name, p in chosen.items()}
    return tuple(math.log(given[token]) if token in given else -1e4 for token in CONTROL)


def judged(text: str, *controls: tuple[str, Mapping[str, float]], nll: float = 0.5) -> Gen:
    """A text whose first token, and whose first places of some control tokens, have distributions."""
    places = [Control(text.index(token) if token else 0, logprobs(**ps)) for token, ps in controls]
    return Gen(text=text, control=tuple(places), logprobs=(-nll, -nll))


def test_self_rag_scores_a_text_as_the_authors_formulas() -> None:
    rng = np.random.default_rng(5)
    p = dict(zip(("rel", "irr", "full", "part", "no", "u1", "u2", "u3", "u4", "u5"), rng.random(10).tolist(), strict=True))
    support, use = {name: p[name] for name in ("full", "part", "no")}, {name: p[name] for name in ("u1", "u2", "u3", "u4", "u5")}
    text = "[Relevant]Ada wrote it.[Fully supported][Utility:5]"
    gen = judged(text, ("", {"rel": p["rel"], "irr": p["irr"]}), ("[Fully", support), ("[Utility", use), nll=0.3)
    grounds, uses = np.array(list(support.values())), np.array(list(use.values()))
    relevance = p["rel"] / (p["rel"] + p["irr"])
    ground = (grounds[0] + 0.5 * grounds[1]) / grounds.sum()
    utility = (uses / uses.sum()) @ np.array([-1, -0.5, 0, 0.5, 1])
    assert criticize(gen) == pytest.approx(Critique(relevance, ground, utility, math.exp(-0.3)), abs=1e-6)
    assert criticize(gen).score(SelfRagOptions()) == pytest.approx(math.exp(-0.3) + relevance + ground + 0.5 * utility, abs=1e-6)
    weighed = SelfRagOptions(w_rel=0.2, w_sup=2.0, w_use=0.0, likelihood=False)
    assert criticize(gen).score(weighed) == pytest.approx(0.2 * relevance + 2 * ground, abs=1e-6)
    assert criticize(Gen(text="Ada")) == (0, 0, 0, 0)
    assert wish(logprobs(yes=0.1, **{"not": 0.3})) == pytest.approx(0.25, abs=1e-9)
    assert wish(logprobs(rel=1.0)) == 0


@pytest.mark.parametrize(("p", "retrieves"), [(0.21, True), (0.2, False)])
def test_self_rag_retrieves_above_the_threshold(p: float, retrieves: bool) -> None:
    first = judged("Ada", ("", {"yes": p, "not": 1 - p}))
    rest = [THREE[:1], judged("[Relevant]Ada", ("", {"rel": 0.5}))] if retrieves else ["Ada[Utility:5]</s>"]
    driven = run("self_rag", [first, *rest])
    assert driven.outline == [["answer"], *([["retrieve"]] if retrieves else []), ["answer"]]
    prompt = "### Instruction:\nWho?\n\n### Response:\n"
    passage = f"[Retrieval]<paragraph>T1\n{THREE[0].text}</paragraph>"
    assert driven.prompts("answer") == [prompt, prompt + (passage if retrieves else "[No Retrieval]")]
    assert driven.answer.text == "Ada"
    assert driven.answer.passages == (tuple(THREE[:1]) if retrieves else ())


def test_self_rag_takes_the_best_passage_s_answer_and_of_closed_forms_the_answer_of_the_largest_sum() -> None:
    texts = [judged(f"[Relevant]{text}", ("", {"rel": p, "irr": 1 - p})) for text, p in (("yes", 0.5), ("no", 0.9), ("yes", 0.6))]
    assert run("self_rag", [THREE, *texts], retrieve="always").answer.text == "no"
    closed = run("self_rag", [THREE, *texts], retrieve="always", form="yes_no")
    assert (closed.answer.text, closed.answer.passages) == ("yes", (THREE[2],))
    assert run("self_rag", [[], "Ada"], retrieve="always").prompts("answer")[-1].endswith("[No Retrieval]")
    assert run("self_rag", ["Ada"], retrieve="never").outline == [["answer"]]


def test_self_rag_searches_texts_segment_by_segment() -> None:
    """Two passages, a beam of two: the products of the scores decide, a finished text stays, a wish within a text opens it again."""
    scored = {"A": (0.9, 1.0), "B": (0.5, 1.0), "C": (0.2, 1.0), "D": (0.8, 1.0), "E": (0.7, 0.1)}

    def write(request: Request) -> Any:  # noqa: ANN401
        if isinstance(request, Retrieve):
            return THREE[:2]
        assert isinstance(request, Generate)
        prompt = prompt_text(request.prompt).partition("### Response:\n")[2]
        is_first = "T1" in prompt
        if prompt.count("[Relevant]") == 0:
            text = "[Relevant]A.[Retrieval]<paragraph>" if is_first else "[Relevant]B.[No Retrieval]and more"
        elif "A." in prompt:
            text = "[Relevant]C." if is_first else "[Relevant]D."
        else:
            text = "[Relevant]E."
        relevance, share = scored[text[len("[Relevant]")]]
        opened = [("[Retr", {"yes": 0.9})] if "[Retr" in text else [("[No R", {"yes": 0.3, "not": 0.7})] if "[No R" in text else []
        return judged(text, ("", {"rel": relevance, "irr": 1 - relevance}), *opened, nll=-math.log(share))

    def answer(request: Request) -> Any:  # noqa: ANN401
        return judged("x", ("", {"yes": 1.0})) if is_decision(request) else write(request)

    driven = run("self_rag", answer, form="long", k=2, likelihood=False)
    assert driven.answer.detail["segments"] == ["[Relevant]A.", "[Relevant]D."]
    assert driven.answer.detail["score"] == pytest.approx(0.9 * 0.8, abs=1e-6)
    assert driven.answer.text == "A [1]. D [2]."
    assert driven.answer.passages == tuple(THREE[:2])
    assert [len(level) for level in driven.levels] == [1, 1, 2, 4]  # A and B are open, and go on with both passages
    again = [prompt for prompt in driven.prompts("answer") if "[Relevant]B.[Retrieval]<paragraph>" in prompt]
    assert len(again) == 2
    narrow = run("self_rag", answer, form="long", k=2, likelihood=False, beam=1)
    assert [len(level) for level in narrow.levels] == [1, 1, 2, 2]  # only A goes on


def is_decision(request: Request) -> bool:
    return isinstance(request, Generate) and request.decoding.max_tokens == 1


def test_self_rag_searches_again_with_the_segment_before() -> None:
    texts = [judged("[Relevant]A.[Retrieval]", ("[Retr", {"yes": 1.0})), "[Relevant]B."]
    driven = run("self_rag", [THREE[:1], texts[0], THREE[1:2], texts[1]], form="long", retrieve="always", query="segment")
    assert driven.queries == [("Who?",), ("Who? A.",)]
    assert driven.answer.passages == (THREE[0], THREE[1])
    ended = run("self_rag", [THREE[:1], texts[0], []], form="long", retrieve="always", query="segment")
    assert ended.answer.detail["segments"] == ["[Relevant]A."]
    cut = run("self_rag", [THREE[:1], texts[0]], form="long", retrieve="always", max_segments=1)
    assert cut.answer.text == "A [1]."


# CRAG


@pytest.mark.parametrize(
    ("scores", "action"),
    [
        ([0.59, -1], "correct"),
        ([0.58, -1.0], "ambiguous"),
        ([-0.99, -3.0], "ambiguous"),
        ([-0.991, -1.0], "incorrect"),
        ([], "incorrect"),
    ],
)
def test_crag_acts_by_the_best_score_and_its_two_thresholds(scores: Sequence[float], action: str) -> None:
    assert choose_action(tuple(scores), 0.59, -0.99) == action


def test_crag_refines_right_and_doubtful_passages_and_leaves_wrong_ones_out() -> None:
    long = passages(
        "The river is long here. It flows to the sea. Short. The sea is very deep there.", "Too short.", "The hill is rather high."
    )
    strips = ["The river is long here. It flows to the sea.", "Short. The sea is very deep there.", "The hill is rather high."]
    asked = [f"Who? [SEP] {passage.text}" for passage in long]
    for scores, action in (([0.6, -1.0, 0.0], "correct"), ([0.1, -1.0, 0.0], "ambiguous")):
        driven = run("crag", [long, scores, [-0.6, 0.9, -0.5], "Ada"], strip_sentences=2)
        assert [request.texts for request in driven.requests if isinstance(request, Score)] == [
            tuple(asked),
            tuple(f"Who? [SEP] {strip}" for strip in strips),
        ]
        assert driven.answer.detail["action"] == action
        assert driven.answer.detail["strips"] == [strips[1], strips[2]]  # the best first; "Too short." has the score -1
        assert driven.answer.passages == (long[0], long[2])
        assert f"Knowledge:\n\n{strips[1]}\n{strips[2]}\n\nQuestion: Who?" in last(driven)
    one = run("crag", [long, [0.6, -1.0, 0.0], [-0.2, 0.9, -0.3], "Ada"], strip_sentences=2, n_strips=1)
    assert one.answer.detail["strips"] == [strips[1]]
    wrong = run("crag", [long, [-1.0, -1.1, -1.2], "Ada"])
    assert wrong.outline == [["retrieve"], ["evaluator score"], ["answer"]]
    assert "Knowledge:" not in last(wrong)
    assert wrong.answer.passages == ()
    assert wrong.notes[-1].data["web"] == "not searched"


def test_crag_may_ask_a_language_model() -> None:
    driven = run("crag", [THREE[1:2], 0.9, 0.8, "Ada"], evaluate="yes_no")  # a strip of four words is read, a shorter one is not
    assert driven.answer.detail["scores"] == [pytest.approx(0.8)]
    assert driven.outline[1] == ["evaluator?"]


def test_crag_s_strips_cover_the_text() -> None:
    text = "One is. Two is not. Three may be. Four was."
    assert split_strips(text, 3) == ["One is. Two is not. Three may be.", "Four was."]
    assert split_strips("", 3) == []


@pytest.mark.parametrize("name", ["replug", "recomp", "self_rag", "crag"])
def test_a_rehearsal_leads_to_the_search(name: str) -> None:
    """So that a run without a corpus is refused before it begins."""
    method = find_method(name)
    with pytest.raises(InputError, match="there is nothing to search"):
        rehearse(method, method.options(), searcher=None, can_look_up=False)
    rehearse(method, method.options(), searcher=StandInSearcher(), can_look_up=False)
