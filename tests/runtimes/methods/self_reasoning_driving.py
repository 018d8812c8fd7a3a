"""Passages, trajectories and one pass of Self-Reasoning, for its tests."""

from __future__ import annotations

import json
from typing import Any

from tests.runtimes.methods.driving import Driven, drive
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Gen, Generate
from wikidx.runtimes.llms.prompts import prompt_text
from wikidx.runtimes.methods.requests import Request, Retrieve
from wikidx.runtimes.methods.self_reasoning import SelfReasoningOptions, self_reasoning

Q = "Who was Ada's father?"
BYRON = Passage("b", "Lord Byron", "George Gordon Byron was an English poet. His only legitimate child was Ada Lovelace.")
ADA = Passage("a", "Ada Lovelace", "Ada Lovelace wrote the first program. She lived in London.")
OTHER = Passage("o", "London", "London is a city on the Thames.")
FOUND = [BYRON, ADA, OTHER]


def trajectory(**changes: Any) -> str:  # noqa: ANN401 - any field
    """A whole trajectory as a model would write it; a field changed to ... is left out."""
    fields = {
        "relevant": True,
        "relevant_reason": "The first passage names her father.",
        "cite_list": [
            {"cite": 1, "cite_content": "His only legitimate child was Ada Lovelace.", "reason_for_cite": "It names him."},
            {"cite": 2, "cite_content": "Ada Lovelace wrote the first program.", "reason_for_cite": "It says who she is."},
        ],
        "analysis": "Ada Lovelace was Lord Byron's child [1], and a programmer [2].",
        "answer": "Lord Byron",
        **changes,
    }
    return json.dumps({name: value for name, value in fields.items() if value is not ...}, ensure_ascii=False)


def one_pass(written: str | Gen, **values: Any) -> Driven:  # noqa: ANN401 - any option
    """Drive one pass; a second request for its answer brings nothing."""

    def canned(request: Request) -> Any:  # noqa: ANN401
        if isinstance(request, Retrieve):
            return FOUND
        return "" if isinstance(request, Generate) and "Your reply lacks" in prompt_text(request.prompt) else written

    return drive(self_reasoning(Q, SelfReasoningOptions(**{"k": 3, "shots": 0, **values})), canned)
