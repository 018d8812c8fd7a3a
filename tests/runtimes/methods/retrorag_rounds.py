"""Two rounds of RetroRAG, result by result, for its tests."""

from __future__ import annotations

import json
from typing import Any

from tests.runtimes.methods.driving import Driven, drive
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import YesNo
from wikidx.runtimes.methods.retrorag import RetroRAGOptions, retrorag

Q = "Who was Ada's father?"
A, B, C, D = (Passage(name.lower(), f"Title {name}", f"text {name}.") for name in "ABCD")
NO_WORD = YesNo(p_positive=0.0, p_negative=0.0)


def options(**values: Any) -> RetroRAGOptions:  # noqa: ANN401 - any option
    """Two of everything and no assessor, so that transcripts stay short."""
    return RetroRAGOptions(**{"k": 2, "n_source": 2, "n_inferred": 2, "shots": 0, "assessor": "off", **values})


def reasoned(reason: str, answer: str) -> str:
    return json.dumps({"reason": reason, "answer": answer}, ensure_ascii=False)


FIRST = [
    [A, B],  # retrieve(q)
    *(0.2, 0.9),  # M_e of A and B
    *(reasoned("r1", "Byron"), "Shelley"),  # M_C and M_D
    0.7,  # M_sc: not above the threshold
    "Ada Lovelace\nLord Byron",  # key entities
    "1. X is so.\n2. Y is so.\n3. Z is so.",  # M_IE
    *(0.9, 0.6, 0.4),  # M_qr of X, Y, Z
    *(0.8, 0.5, 0.9),  # M_ra of X, Y, Z: only X passes both
    0.3,  # M_e of X
    "Lord Byron daughter",  # M_R
]
FIRST_OUTLINE = [
    ["retrieve"],
    ["evidence?"] * 2,
    ["answer", "monitor"],
    ["consistency?"],
    ["entities"],
    ["inference"],
    ["relevance?"] * 3 + ["attribution?"] * 3,
    ["evidence?"],
    ["query"],
]
SECOND = [
    [B, C],
    *(0.1, 0.6, 0.8),  # M_e of B, A (stored, best first), and C; B is there already
    *(reasoned("r2", "Lord Byron"), "Byron"),
    0.71,
]
SECOND_OUTLINE = [["retrieve"], ["evidence?"] * 3, ["answer", "monitor"], ["consistency?"]]


def two_rounds() -> Driven:
    return drive(retrorag(Q, options()), [*FIRST, *SECOND])


def rejected(answer: str, score: float) -> list[Any]:
    """A round of ``one_passage`` that is not accepted, up to M_sc."""
    return [reasoned("r", answer), "other", score]
