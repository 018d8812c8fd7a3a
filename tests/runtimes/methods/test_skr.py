"""SKR's neighbours and its two rules, beside plain numpy and the authors' figures. Whole courses stand in ``transcripts/``."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.runtimes.methods.driving import drive
from wikidx.base.errors import InputError
from wikidx.runtimes.methods.skr import SkrOptions, needs_by_margin, needs_by_ratio, read_self_knowledge, skr

TEMPORAL = Counter({"ir better": 47, "ir worse": 62, "same": 740})
"""The self-knowledge of the authors' repository (``train_skr_prop`` of ``knn.py``)."""
OTHER = Counter({"ir better": 60, "ir worse": 10, "same": 30})


def near(better: int, worse: int) -> Counter[str]:
    return Counter({"ir better": better, "ir worse": worse})


@pytest.mark.parametrize("k", range(1, 11))
def test_the_ratio_is_the_papers(k: int) -> None:
    """Known if l / (k - l) >= |D+| / |D-|; all known neighbours, without an unknown one, are infinitely many."""
    for known in (TEMPORAL, OTHER):
        for n_known in range(k + 1):
            ratio = np.inf if n_known == k else n_known / (k - n_known)
            assert needs_by_ratio(near(k - n_known, n_known), known, k) == (ratio < known["ir worse"] / known["ir better"])


@pytest.mark.parametrize(
    ("known", "k", "unneeded"),
    [
        (TEMPORAL, 5, {(2, 3), (1, 4), (0, 5)}),  # the margin is int(15 * 5 / 849) = 0
        (OTHER, 5, {(better, 5 - better) for better in range(4)}),  # int(50 * 5 / 100) = 2: 4 against 1 lead by 3, 3 against 2 by 1
        (OTHER, 10, {(better, 10 - better) for better in range(8)}),  # 5: 8 against 2 lead by 6, 7 against 3 by 4
        (Counter({"ir better": 1}), 5, {(better, 5 - better) for better in range(5)}),  # 5: only 5 against none lead by 5
        (Counter({"ir better": 10, "ir worse": 60, "same": 30}), 10, {(better, 10 - better) for better in range(3)}),
    ],
)
def test_the_margin_is_that_of_the_code(known: Counter[str], k: int, unneeded: set[tuple[int, int]]) -> None:
    asked = [(better, k - better) for better in range(k + 1)]
    assert {pair for pair in asked if not needs_by_margin(near(*pair), known, k)} == unneeded


def test_the_neighbours_are_those_of_numpy(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    statuses = rng.choice(["ir better", "ir worse", "same"], size=60)
    stored = [{"Question": f"Q{number}", "status": status} for number, status in enumerate(statuses)]
    (tmp_path / "known.json").write_text(json.dumps(stored))
    kept = np.flatnonzero(statuses != "same")
    cosines = rng.normal(size=len(kept))
    options = SkrOptions(self_knowledge=str(tmp_path / "known.json"), neighbours=7, output="answer")
    driven = drive(
        skr("Who?", options), lambda request: cosines.tolist() if hasattr(request, "others") else [] if hasattr(request, "k") else "x"
    )
    best = np.argsort(-cosines, kind="stable")[:7]
    found = driven.answer.detail["neighbours"]
    assert [each["question"] for each in found] == [f"Q{number}" for number in kept[best]]
    np.testing.assert_allclose([each["similarity"] for each in found], cosines[best], atol=1e-6)
    n_known = int((statuses[kept[best]] == "ir worse").sum())
    n_all = int((statuses == "ir worse").sum())
    assert driven.answer.detail["retrieved"] == (n_known * (len(kept) - n_all) < (7 - n_known) * n_all)


def test_one_passage_and_one_neighbour_are_the_least() -> None:
    assert (SkrOptions(k=1).k, SkrOptions(neighbours=1).neighbours) == (1, 1)
    for value in ({"k": 0}, {"neighbours": 0}):
        with pytest.raises(InputError):
            SkrOptions(**value)  # type: ignore[arg-type]


def test_self_knowledge_may_be_lines_and_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "known.jsonl"
    file.write_text('{"question": "a", "status": "same"}\n\n{"Question": "b", "status": "ir better"}\n')
    assert read_self_knowledge(str(file)) == (("a", "same"), ("b", "ir better"))
    file.write_text('{"question": "c", "status": "ir worse"}\n')
    assert read_self_knowledge(str(file)) == (("c", "ir worse"),)
    assert len(read_self_knowledge("")) == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "self-knowledge is a list of objects"),
        ("{", "self-knowledge is a list"),
        (100_000 * "[", "self-knowledge is a list"),
        ('[{"question": "a", "status": "so"}]', "the status is 'so'"),
    ],
)
def test_other_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "known.json").write_text(text)
    with pytest.raises(InputError, match=message):
        read_self_knowledge(str(tmp_path / "known.json"))
