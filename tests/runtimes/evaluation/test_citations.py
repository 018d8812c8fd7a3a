from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.runtimes.methods.driving import drive
from tests.runtimes.methods.self_reasoning_driving import FOUND, Q, one_pass, trajectory
from wikidx.base.errors import InputError
from wikidx.runtimes.evaluation.by_models.citations import PRECISION, RECALL, AlceCitations, parse_claims
from wikidx.runtimes.evaluation.by_models.nli import Pair
from wikidx.runtimes.evaluation.by_models.row_metrics import RowValues
from wikidx.runtimes.evaluation.by_models.sentence_splitting import SIMPLE, Splitter
from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.execution.results import Prediction, prediction_to_json
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.rag import RagOptions, rag
from wikidx.runtimes.questions import Question

Case = dict[str, Any]
HAND = ROOT / "tests" / "data" / "golden_metrics" / "alce_citations.jsonl"


class RuleNLI:
    """An NLI model by a rule, which records its calls."""

    def __init__(self, rule: Callable[[Pair], bool] = lambda pair: True) -> None:
        self.rule = rule
        self.batches: list[list[Pair]] = []

    def metadata(self) -> dict[str, Any]:
        return {"model": "rule"}

    def entails(self, pairs: Sequence[Pair]) -> list[bool]:
        self.batches.append(list(pairs))
        return [self.rule(pair) for pair in pairs]


def _key(pair: Pair) -> tuple[str, str]:
    return hashlib.sha256(pair.premise.encode()).hexdigest(), pair.hypothesis


def _cases(file: Path) -> list[Case]:
    return [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()]


def _verdicts(cases: Sequence[Case]) -> dict[tuple[str, str], bool]:
    """Return the pairs that the official evaluator asked about, with their verdicts."""
    calls = [call for case in cases for call in case["expected"]["nli_calls"]]
    return {(call["premise_sha256"], call["hypothesis"]): bool(call["verdict"]) for call in calls}


def _as_split(cases: Sequence[Case]) -> Splitter:
    """The sentences that the official evaluator was given, by the text that it split."""
    sentences = {case["expected"]["output_used"]: case["expected"]["sentences"] for case in cases}
    return Splitter("recorded", lambda text: list(sentences[text]))


def _measured(cases: Sequence[Case], nli: RuleNLI, splitter: Splitter, max_citations: int = 3) -> RowValues:
    rows = [PredictionRow(case["case"], case["inputs"]["output"], tuple(case["inputs"]["docs"])) for case in cases]
    questions = [Question(case["case"], case["inputs"]["question"]) for case in cases]
    return AlceCitations(nli, splitter, max_citations=max_citations).measure(rows, questions)


def _assert_equals_the_official(cases: Sequence[Case]) -> None:
    for case in cases:  # one by one, so that what is asked and counted can be compared too
        expected, verdicts = case["expected"], _verdicts([case])
        nli = RuleNLI(lambda pair, known=verdicts: known[_key(pair)])  # type: ignore[misc]
        found = _measured([case], nli, _as_split([case]), case["inputs"]["at_most_citations"])
        wanted = np.array([float(expected["citation_rec"]), float(expected["citation_prec"])])
        np.testing.assert_array_equal(100 * np.concatenate([found.values[RECALL], found.values[PRECISION]]), wanted, case["case"])
        assert sorted(_key(pair) for batch in nli.batches for pair in batch) == sorted(verdicts), case["case"]  # once each, and no other
        assert [claim.text for claim in parse_claims(expected["sentences"], len(case["inputs"]["docs"]))] == expected["claims"]
        assert _printed(found.counts) == expected["printed"], case["case"]


def _printed(counts: dict[str, int]) -> str:
    """The evaluator's line on sentences with several citations, from our counts."""
    n_sentences, several = counts["sentences"], counts["sentences_with_several_citations"]
    entailed, useless = counts["of_these_entailed"], counts["useless_citations"]
    if not several or not entailed:
        return ""
    return (
        f"Among all sentences, {100 * several / n_sentences:.2f}% have multiple citations, among which {100 * entailed / several:.2f}% "
        f"are supported by the joint set, among which {100 * useless / entailed:.2f}% overcite."
    )


def test_hand_made_cases_are_as_the_official_evaluator_scores_them() -> None:
    _assert_equals_the_official(_cases(HAND))


def test_all_golden_cases_are_as_the_official_evaluator_scores_them(shared_data: Path) -> None:
    cases = _cases(shared_data / "golden_metrics" / "alce_citations.jsonl")
    assert len(cases) == 133
    assert all(case in cases for case in _cases(HAND))
    _assert_equals_the_official([case for case in cases if case["kind"] != "hand"])


def test_all_golden_cases_at_once_have_the_official_means(shared_data: Path) -> None:
    cases = _cases(shared_data / "golden_metrics" / "alce_citations.jsonl")
    official = json.loads((shared_data / "golden_metrics" / "alce_citations.header.json").read_text(encoding="utf-8"))["aggregate"]
    asked_alike = [case for case in cases if case["inputs"]["at_most_citations"] == 3]
    verdicts = _verdicts(asked_alike)
    nli = RuleNLI(lambda pair: verdicts[_key(pair)])
    found = _measured(asked_alike, nli, SIMPLE)  # the golden files' own splitter is this one
    assert len(asked_alike) == official["n"]
    assert found.counts["answers_without_a_sentence"] == official["n_with_zero_sentences_skipped"] == np.isnan(found.values[RECALL]).sum()
    assert 100 * np.nanmean(found.values[RECALL]) == pytest.approx(official["citation_rec"], rel=1e-12)
    assert 100 * np.nanmean(found.values[PRECISION]) == pytest.approx(official["citation_prec"], rel=1e-12)
    assert _printed(found.counts) == official["printed"]
    assert len(nli.batches) == 3  # rounds, not a call a pair
    assert sum(map(len, nli.batches)) == len(verdicts) == found.counts["nli_pairs"]


def _one(answer: str | None, passages: Sequence[dict[str, Any]], rule: Callable[[Pair], bool] = lambda pair: True) -> RowValues:
    question = Question("7", "who?")
    return AlceCitations(RuleNLI(rule), SIMPLE).measure([PredictionRow("7", answer, tuple(passages))], [question])


def test_marks_that_no_passage_can_have_are_out_of_range() -> None:
    for mark in ("[0]", "[1]", "[" + "9" * 6000 + "]"):
        found = _one(f"So it is {mark}.", [])
        assert (found.values[RECALL][0], found.values[PRECISION][0]) == (0, 0)
        assert found.counts["sentences_citing_out_of_range"] == 1
        assert found.counts["nli_pairs"] == 0


def test_an_answer_that_is_missing_is_left_out_like_an_empty_one() -> None:
    for answer in (None, "", " \n "):
        found = _one(answer, [{"title": "T", "text": "x"}])
        assert np.isnan([found.values[RECALL][0], found.values[PRECISION][0]]).all()
        assert found.counts["answers_without_a_sentence"] == 1


def test_a_passage_is_its_title_and_its_sentence_or_text() -> None:
    found = _one("So [1].", [{"title": "T", "text": "long", "sent": "short"}], lambda pair: pair == Pair("Title: T\nshort", "So."))
    assert found.values[RECALL][0] == 1
    with pytest.raises(InputError, match="'7' has a passage without a 'title'"):
        _one("So [1].", [{"text": "x"}])


def test_long_batches_report_their_progress() -> None:
    reports: list[tuple[int, int | None]] = []
    rows = [PredictionRow(str(number), f"Claim {number} [1].", ({"title": "T", "text": "x"},)) for number in range(1500)]
    metric = AlceCitations(RuleNLI(), SIMPLE, max_citations=2, progress=lambda done, total: reports.append((done, total)))
    values = metric.measure(rows, [Question(row.id, "?") for row in rows]).values
    assert reports == [(1024, 1500), (1500, 1500)]
    assert values[RECALL].sum() == values[PRECISION].sum() == 1500
    metadata = metric.metadata()
    assert (metadata["nli"], metadata["sentences"], metadata["max_citations"]) == ({"model": "rule"}, "simple", 2)


def _line(answer: Answer) -> PredictionRow:
    """A line of predictions.jsonl, written and read back."""
    prediction = Prediction(id="7", question=Q, answer=answer.text, passages=answer.passages, detail=answer.detail)
    told = json.loads(json.dumps(prediction_to_json(prediction)))
    return PredictionRow(told["id"], told["answer"], tuple(told["passages"]))


def test_self_reasoning_s_long_answers_cite_the_passages_of_their_line() -> None:
    """Passages b, a, o: the first claim is in b, the second in a; [1, 2] and the new line are brought to ALCE's form by the method."""
    written = trajectory(analysis="Ada was Lord Byron's child [1, 2].\nShe wrote the first program [2]. She lived in Paris [3].")
    row = _line(one_pass(written, form="long").answer)
    assert row.answer == "Ada was Lord Byron's child [1][2]. She wrote the first program [2]. She lived in Paris [3]."

    def entails(pair: Pair) -> bool:
        known = {"Ada was Lord Byron's child.": "legitimate child was Ada", "She wrote the first program.": "wrote the first program"}
        return known.get(pair.hypothesis, "?!") in pair.premise

    found = AlceCitations(RuleNLI(entails), SIMPLE).measure([row], [Question("7", Q)])
    assert found.values[RECALL][0] == 2 / 3
    assert found.values[PRECISION][0] == 2 / 4  # of [1][2][2][3], the first [2] is of no use, and [3] entails nothing


def test_other_methods_answers_cite_the_passages_as_they_were_numbered() -> None:
    driven = drive(rag(Q, RagOptions(k=3)), [FOUND, "Lord Byron was [1], says [2]."])
    assert "[2] Ada Lovelace\n" in driven.prompts("answer")[0]
    found = AlceCitations(RuleNLI(lambda pair: "Title: Lord Byron" in pair.premise), SIMPLE).measure(
        [_line(driven.answer)], [Question("7", Q)]
    )
    assert (found.values[RECALL][0], found.values[PRECISION][0]) == (1, 0.5)
