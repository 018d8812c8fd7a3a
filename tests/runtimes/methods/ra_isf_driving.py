"""Drives RA-ISF by hand, and inspects its results."""

from __future__ import annotations

from typing import Any

from tests.runtimes.methods.driving import Driven, drive, passages
from wikidx.runtimes.llms.base import AskYesNo, Generate, MeanNll, Message, YesNo
from wikidx.runtimes.methods.ra_isf import RaIsfOptions, ra_isf
from wikidx.runtimes.methods.requests import Request, Retrieve
from wikidx.runtimes.methods.templates import fill_slots

MISSING = YesNo(p_positive=0.0, p_negative=0.0)
FIVE = passages("one", "two", "three", "four", "five")
NOT_RELEVANT = ["No", [*FIVE], "no", "no", "no", "no", "no"]
"""What leads to decomposition: not known, and none of five passages relevant."""


def run(question: str, canned: Any, **values: Any) -> Driven:  # noqa: ANN401 - whatever drive and the options take
    return drive(ra_isf(question, RaIsfOptions(**values)), canned)


def tree(driven: Driven) -> dict[str, Any]:
    found: dict[str, Any] = driven.answer.detail["tree"]
    return found


def asked(driven: Driven, role: str) -> list[Generate]:
    return [call for call in driven.requests if isinstance(call, Generate) and call.role == role]


def by_role(**replies: Any) -> Any:  # noqa: ANN401 - canned results
    """Answer every request of a role alike; a callable is given the prompt's last turn. Searches find nothing."""

    def reply(request: Request) -> Any:  # noqa: ANN401 - a canned result
        if isinstance(request, Retrieve):
            return []
        assert isinstance(request, Generate | AskYesNo | MeanNll)
        given = replies[request.role]
        assert isinstance(request.prompt, tuple)
        turn = request.prompt[-1]
        assert isinstance(turn, Message)
        return given(turn.content) if callable(given) else given

    return reply


def walk(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(deeper for child in node["sub_questions"] for deeper in walk(child))]


def form(name: str) -> str:
    return f"Reply {fill_slots('{form.manner}', name)}.\n"
