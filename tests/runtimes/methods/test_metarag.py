"""MetaRAG's gates and plans against the authors' code: ``metarag.py`` of ignorejjj/MetaRAG. Whole courses stand in ``transcripts/``."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.runtimes.methods.driving import drive, passages
from wikidx.runtimes.llms.base import AskYesNo
from wikidx.runtimes.methods.metarag import MetaRagOptions, metarag
from wikidx.runtimes.methods.templates import read_prompt

FOUND = passages("one")
REASONED = '{"reason": "so", "answer": "Ann"}'
PLANS = {
    (True, True, True): ("check_answer", False),
    (True, True, False): ("reason_in_steps", False),
    (True, False, None): ("own_knowledge", True),
    (False, True, None): ("passages_only", False),
    (False, False, None): ("sub_questions", True),
}
"""Whether the knowledge and the passages suffice, and the reason supports the answer -> advice, and whether it searches again."""


@pytest.mark.parametrize(("verdicts", "plan"), PLANS.items())
def test_verdicts_lead_to_the_authors_plan(verdicts: tuple[bool, bool, bool | None], plan: tuple[str, bool]) -> None:
    yes_no = [0.51 if verdict else 0.5 for verdict in verdicts if verdict is not None]
    search = ["Query: more", passages("two")] if plan[1] else []
    first = [FOUND, REASONED, "Eve", [0.4], '{"judgement": "redundant", "feedback": "Be brief."}', *yes_no]
    driven = drive(metarag("Who?", MetaRagOptions()), [*first, *search, REASONED, "Eve", [0.4000001]])
    advice = json.loads(read_prompt("metarag", "advice.json"))["advice"]
    assert driven.prompts("answer")[1].endswith(f"Advice:\n{advice[plan[0]]}\nBe brief.")
    assert driven.queries == [("Who?",), *[("more",)] * plan[1]]
    assert driven.answer.detail["rounds"][0]["advice"] == plan[0]
    assert driven.answer.detail["accepted"]  # above the threshold, which the first round only reached


@pytest.mark.parametrize("n", range(4))
def test_rounds_end_after_their_maximum(n: int) -> None:
    """A similarity at the threshold accepts nothing, in the last round either."""
    criticism = ["{}", 0.4, 0.6, REASONED, "Eve", [0.4]]
    driven = drive(metarag("Who?", MetaRagOptions(max_rounds=n)), [FOUND, REASONED, "Eve", [0.4], *itertools.chain(*[criticism] * n)])
    assert len(driven.prompts("expert")) == len(driven.prompts("answer")) == n + 1
    assert not driven.answer.detail["accepted"]


def test_the_nli_model_may_write_digits() -> None:
    replies = [FOUND, REASONED, "Eve", [0.0], "{}", 0.9, 0.9, 0.9, REASONED, "Eve", [1.0]]
    asked = [request for request in drive(metarag("Who?", MetaRagOptions()), replies).requests if isinstance(request, AskYesNo)]
    assert {(request.positive, request.negative) for request in asked} == {(("yes", "1"), ("no", "0"))}
