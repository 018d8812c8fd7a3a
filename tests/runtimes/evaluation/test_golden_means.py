"""Means over all golden cases of a file, missing answers included, against the original evaluators' results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pytest

from tests.runtimes.evaluation.golden_cases import Case, alias_question, read_aggregate, read_cases
from wikidx.runtimes.evaluation.answers.metrics import METRICS
from wikidx.runtimes.questions import Question


def _short(answer: str, golds: str) -> Callable[[Case], tuple[str, Question]]:
    return lambda case: (case.inputs[answer], Question(case.name, "?", tuple(case.inputs[golds])))


def _hotpotqa(case: Case) -> tuple[str, Question]:
    return case.inputs["prediction"], Question(case.name, "?", (case.inputs["gold"],))


def _twowiki(case: Case) -> tuple[str, Question]:
    return case.inputs["prediction"], alias_question(case.name, case.inputs)


def _fever(case: Case) -> tuple[str, Question]:
    return case.inputs["prediction"], Question(case.name, "?", (), {"label": case.inputs["label"]})


def _kilt(case: Case) -> tuple[str, Question]:
    golds = tuple(output["answer"] for output in case.inputs["gold"]["output"] if "answer" in output)
    return str(case.inputs["guess"]["output"][0]["answer"]), Question(case.name, "?", golds)


def _asqa(case: Case) -> tuple[str, Question]:
    groups = [pair["short_answers"] for pair in case.inputs["qa_pairs"]]
    references = [one["long_answer"] for one in case.inputs["annotations"]]
    return case.inputs["output"], Question(case.name, "?", (), {"answer_groups": groups, "long_answers": references})


class Mean(NamedTuple):
    """A mean that the original tells.

    Attributes:
        file: of the cases.
        metric: ours.
        figure: its key in the aggregate.
        read: a case to answer and question.
        unit: what ours is multiplied by.
        digits: the original rounds to so many; None: not.
        missing: whether the answers that the aggregate names are taken away first.
        kind: of the cases; None: all.
        undefined: the original's value of an empty answer where ours is undefined for lack of golds; None: undefined too.
    """

    file: str
    metric: str
    figure: tuple[str, ...]
    read: Callable[[Case], tuple[str, Question]]
    unit: float = 1
    digits: int | None = None
    missing: bool = False
    kind: str | None = None
    undefined: float | None = None


_SQUAD, _POPQA = _short("prediction", "golds"), _short("generation", "possible_answers")
_TRIVIAQA, _FLASHRAG = _short("prediction", "aliases"), _short("prediction", "golden_answers")
_OVERLAP = {"em": "em", "f1": "f1", "prec": "precision", "recall": "recall"}

MEANS = [
    Mean("squad_dpr", "squad_em", ("squad_v1_evaluate", "exact_match"), _SQUAD, 100),
    Mean("squad_dpr", "squad_f1", ("squad_v1_evaluate", "f1"), _SQUAD, 100),
    Mean("squad_dpr", "squad2_em", ("squad_v2_eval", "exact"), _SQUAD, 100),
    Mean("squad_dpr", "squad2_f1", ("squad_v2_eval", "f1"), _SQUAD, 100),
    Mean("squad_dpr", "squad_em", ("squad_v1_evaluate_with_missing", "exact_match"), _SQUAD, 100, missing=True),
    Mean("squad_dpr", "squad_f1", ("squad_v1_evaluate_with_missing", "f1"), _SQUAD, 100, missing=True),
    Mean("squad_dpr", "squad2_em", ("squad_v2_eval_with_missing", "exact"), _SQUAD, 100, missing=True),
    Mean("squad_dpr", "squad2_f1", ("squad_v2_eval_with_missing", "f1"), _SQUAD, 100, missing=True),
    *(Mean("hotpotqa", f"hotpotqa_{ours}", ("eval", theirs), _hotpotqa) for theirs, ours in _OVERLAP.items()),
    *(Mean("hotpotqa", f"hotpotqa_{ours}", ("eval_with_missing", theirs), _hotpotqa, missing=True) for theirs, ours in _OVERLAP.items()),
    *(Mean("twowiki", f"twowiki_{ours}", ("eval", theirs), _twowiki, 100, 2) for theirs, ours in _OVERLAP.items()),
    *(
        Mean("twowiki", f"twowiki_{ours}", ("eval_with_missing", theirs), _twowiki, 100, 2, missing=True)
        for theirs, ours in _OVERLAP.items()
    ),
    Mean("triviaqa_official", "triviaqa_em", ("exact_match",), _TRIVIAQA, 100),
    Mean("triviaqa_official", "triviaqa_f1", ("f1",), _TRIVIAQA, 100),
    Mean("popqa_accuracy", "popqa_accuracy", ("accuracy",), _POPQA),
    *(Mean("flashrag_containment", f"flashrag_{name}", (name,), _FLASHRAG) for name in ("em", "acc", "f1", "precision", "recall")),
    Mean("fever", "fever_label_accuracy", ("fever_scorer_label_accuracy",), _fever),
    Mean("fever", "genread_fever_hit", ("genread_eval_fact_checking", "em"), _fever, digits=4),
    Mean("kilt_downstream", "kilt_accuracy", ("downstream", "accuracy"), _kilt, undefined=0.0),
    Mean("kilt_downstream", "kilt_em", ("downstream", "em"), _kilt, undefined=0.0),
    Mean("kilt_downstream", "kilt_f1", ("downstream", "f1"), _kilt, undefined=0.0),
    Mean("kilt_downstream", "kilt_rouge_l", ("downstream", "rougel"), _kilt, undefined=0.0),
    Mean("wow_f1_rougel", "genread_f1", ("genread_eval_dialogue_system", "f1"), _SQUAD, digits=4, kind="real"),
    Mean("wow_f1_rougel", "genread_rouge_l", ("genread_eval_dialogue_system", "rougel"), _SQUAD, digits=4, kind="real"),
    Mean("asqa_str_em", "alce_str_em", ("str_em",), _asqa, 100, kind="real"),
    Mean("asqa_str_em", "alce_str_hit", ("str_hit",), _asqa, 100, kind="real"),
    Mean("asqa_str_em", "alce_rouge_lsum", ("mean_of_per_item_rougeLsum",), _asqa, 100, kind="real"),
]


def _is_counted(mean: Mean, case: Case) -> bool:
    plain = case.inputs.get("dataset_name") != "curatedtrec" and not isinstance(case.inputs.get("golden_answers"), str)
    return not case.raises and plain and mean.kind in (None, case.kind)


def _values(mean: Mean, cases: Sequence[Case], missing: Sequence[str]) -> list[float]:
    metric = METRICS[mean.metric]
    figures = [metric.missing if case.name in missing else _figure(mean, *mean.read(case)) for case in cases]
    return [figure for figure in figures if figure is not None]


def _figure(mean: Mean, answer: str, question: Question) -> float | None:
    figure = METRICS[mean.metric].score(answer, question)
    return mean.undefined if figure is None and not answer.strip() else figure


@pytest.mark.parametrize("mean", MEANS, ids=lambda mean: "-".join((mean.metric, *mean.figure)))
def test_mean_is_the_originals(shared_data: Path, mean: Mean) -> None:
    folder = shared_data / "golden_metrics"
    expected: Any = read_aggregate(folder, mean.file)
    missing = expected["missing_predictions"] if mean.missing else ()
    for name in mean.figure:
        expected = expected[name]
    cases = [case for case in read_cases(folder, mean.file) if _is_counted(mean, case)]
    ours = mean.unit * fmean(_values(mean, cases, missing))
    assert (ours if mean.digits is None else round(ours, mean.digits)) == pytest.approx(expected, abs=1e-12)
