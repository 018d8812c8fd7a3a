from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.runtimes.evaluation.golden_cases import HAND_MADE, Case, read_aggregate, read_cases
from wikidx.runtimes.evaluation.retrieval.kilt_pages import page_figures, page_names

PAGE_FIGURES = ("Rprec", "precision@", "recall@", "success_rate@")


def figures_of(case: Case) -> dict[str, float]:
    gold, guess, keys = (case.inputs[name] for name in ("gold", "guess", "rank_keys"))
    evidence = [page_names(output["provenance"], keys) for output in gold["output"] if "provenance" in output]
    return page_figures(evidence, page_names(guess["output"][0].get("provenance", ()), keys), case.inputs["ks"])


def check_cases(cases: Sequence[Case]) -> None:
    for case in cases:
        if case.raises:  # a guess of several outputs, which a search has not
            continue
        figures = figures_of(case)
        for name, value in case.expected.items():
            if name.startswith(PAGE_FIGURES):
                assert figures[name] == pytest.approx(value, abs=1e-9), (case.name, name)


def test_hand_made_cases_agree_with_the_official_evaluator() -> None:
    cases = read_cases(HAND_MADE, "kilt_retrieval")
    assert len(cases) == 20
    check_cases(cases)


def test_every_golden_case_and_all_together(shared_data: Path) -> None:
    folder = shared_data / "golden_metrics"
    cases, means = read_cases(folder, "kilt_retrieval"), read_aggregate(folder, "kilt_retrieval")
    check_cases(cases)
    for key, name in (("title", "evaluate_hotpot500_title_ks_1_5_10_20"), ("wikipedia_id", "compute_other_real_wikipedia_id_ks_1_2_3_5")):
        figures = [figures_of(case) for case in cases if case.kind == "real" and case.inputs["rank_keys"] == [key]]
        assert len(figures) == means[name]["n"]
        for figure, mean in means[name].items():
            if figure.startswith(PAGE_FIGURES):
                assert np.mean([of_case[figure] for of_case in figures]) == pytest.approx(mean, abs=1e-12), figure
