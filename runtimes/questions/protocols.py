"""The evaluation questions of the papers, as data.

A protocol names a file and selects its questions. Where a paper leaves the selection open, the value here is our choice, and ``unsaid``
says so.
"""

from __future__ import annotations

from typing import NamedTuple


class Protocol(NamedTuple):
    """A paper's questions of one set.

    Attributes:
        name: value of ``--protocol``.
        file: the set, its split and form.
        of: permitted numbers of questions in the file; (): any number.
        n: number of questions asked; None: all that remain.
        type: only questions with this gold ``type``.
        popularity_below: only questions whose gold ``popularity`` is less.
        left_out: number of questions drawn by ``sample`` with the seed and left out.
        is_shuffled: whether they are in the order of ``random.Random(seed).shuffle``.
        first: only the first of the remaining questions.
        seed: of ``left_out`` and ``is_shuffled``.
        unsaid: details that the paper leaves open, or that the questions alone cannot provide.
    """

    name: str
    file: str
    of: tuple[int, ...] = ()
    n: int | None = None
    type: str | None = None
    popularity_below: int | None = None
    left_out: int = 0
    is_shuffled: bool = False
    first: int | None = None
    seed: int = 0
    unsaid: str = ""


_ALL = (
    Protocol("ra-isf-nq", "NQ-open", left_out=1_000, unsaid="the split; the authors: all but the 1,000 that training questions came from"),
    Protocol(
        "ra-isf-triviaqa",
        "TriviaQA's test set (DPR's)",
        (11_313,),
        11_313,
        unsaid="only questions whose answer is in 1,000 retrieved passages",
    ),
    Protocol("ra-isf-hotpotqa", "HotpotQA's dev set", (7_405,), 7_405, unsaid="the split"),
    Protocol("ra-isf-2wikimultihopqa", "2WikiMultihopQA's dev set", (12_576,), 12_576, unsaid="the split"),
    Protocol("ra-isf-strategyqa", "StrategyQA as BIG-bench has it", (2_290,), 2_290),
    Protocol("self-reasoning-nq", "NQ's test set", (3_610,), 3_610, unsaid="the size"),
    Protocol(
        "self-reasoning-popqa",
        "PopQA",
        (14_267,),
        1_399,
        popularity_below=100,
        unsaid="that 'long-tail' is Self-RAG's subset, whose figures it quotes",
    ),
    Protocol(
        "self-reasoning-fever", "FEVER's dev set, or paper_dev, half of it", (19_998, 9_999), unsaid="which of its dev sets, and the size"
    ),
    Protocol("self-reasoning-asqa", "ASQA's dev set, or ALCE's file of it", (948,), 948, unsaid="the size"),
    Protocol(
        "retrorag-hotpotqa", "HotpotQA's dev set", (7_405,), 500, first=500, unsaid="which 500; MetaRAG, which it follows, takes the first"
    ),
    Protocol(
        "retrorag-2wikimultihopqa", "2WikiMultihopQA's dev set", (12_576,), 500, first=500, unsaid="which 500; MetaRAG takes the first"
    ),
    Protocol("retrorag-halluqa", "HalluQA", (450,), 206, type="Knowledge"),
    Protocol("refeed-nq", "NQ's test set (DPR's)", (3_610,), 3_610),
    Protocol("refeed-triviaqa", "TriviaQA's test set (DPR's)", (11_313,), 11_313),
    Protocol("refeed-hotpotqa", "HotpotQA's dev set of KILT", (5_600,), 5_600, unsaid="dev, as KILT gives no answers of its test set"),
    Protocol(
        "refeed-wow", "Wizard of Wikipedia's dev set of KILT", (3_054,), 3_054, unsaid="dev, as KILT gives no answers of its test set"
    ),
    Protocol("react-hotpotqa", "HotpotQA's dev set", (7_405,), 500, is_shuffled=True, first=500, seed=233),
    Protocol("flashrag", "any set's test questions, else its dev ones", first=1_000),
)

PROTOCOLS = {one.name: one for one in _ALL}
