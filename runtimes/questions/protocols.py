"""The papers' selections of evaluation questions.

If a paper leaves a detail of the selection open, the value here is our choice, and ``unstated`` names the detail.
"""

from __future__ import annotations

from typing import NamedTuple


class Protocol(NamedTuple):
    """A paper's evaluation questions from one data set.

    Attributes:
        name: value of ``--protocol``.
        file: data set, split and format of the file.
        n_in_file: permitted numbers of questions in the file; (): any number.
        n: number of questions that the selection must have; None: any positive number.
        type: gold ``type`` of the selected questions; None: any.
        popularity_below: exclusive upper limit of the gold ``popularity``; None: no limit.
        n_excluded: number of questions to exclude; ``sample`` draws them with ``seed``.
        is_shuffled: whether ``random.Random(seed).shuffle`` orders the remaining questions.
        n_first: number of questions to keep from the beginning; None: all.
        seed: seed of the exclusion and the order.
        questions: the set that fits the file, such as ``nq:test``; empty: ``idx questions`` fetches none.
        unstated: details of the selection that the paper leaves open or that the question file does not contain.
    """

    name: str
    file: str
    n_in_file: tuple[int, ...] = ()
    n: int | None = None
    type: str | None = None
    popularity_below: int | None = None
    n_excluded: int = 0
    is_shuffled: bool = False
    n_first: int | None = None
    seed: int = 0
    questions: str = ""
    unstated: str = ""


_ALL = (
    # RA-ISF in the ACL's proceedings (table 6), which states sizes and no splits
    Protocol("ra-isf-nq", "NQ's dev set, with all its questions", (7_830,), 7_830, unstated="the split; NQ's dev set has this size"),
    Protocol(
        "ra-isf-triviaqa",
        "TriviaQA's test set of reading comprehension",
        (17_210,),
        17_210,
        unstated="the split; the test set of this size has no published answers",
    ),
    Protocol(
        "ra-isf-hotpotqa", "HotpotQA's dev set", (7_405,), 7_405, unstated="the split; the dev set has this size", questions="hotpotqa:dev"
    ),
    Protocol(
        "ra-isf-2wikimultihopqa",
        "2WikiMultihopQA's dev set, or 2,935 of its questions",
        (12_576, 2_935),
        2_935,
        is_shuffled=True,
        n_first=2_935,
        unstated="which 2,935",
        questions="2wikimultihopqa:dev",
    ),
    Protocol(
        "ra-isf-strategyqa",
        "StrategyQA with its 2,780 questions, those with answers, or 1,780 of them",
        (2_780, 2_290, 1_780),
        1_780,
        is_shuffled=True,
        n_first=1_780,
        unstated="which 1,780; 1,000 of all 2,780 are training questions",
        questions="strategyqa:train",
    ),
    # RA-ISF on arXiv, which states no sizes but StrategyQA's
    Protocol(
        "ra-isf-arxiv-nq",
        "NQ-open",
        n_excluded=1_000,
        unstated="the split; the authors: all but the 1,000 that training questions came from",
        questions="nq-open:dev",
    ),
    Protocol("ra-isf-arxiv-triviaqa", "TriviaQA's test set (DPR's)", (11_313,), 11_313, unstated="the split", questions="triviaqa:test"),
    Protocol(
        "ra-isf-arxiv-2wikimultihopqa",
        "2WikiMultihopQA's dev set",
        (12_576,),
        12_576,
        unstated="the split",
        questions="2wikimultihopqa:dev",
    ),
    Protocol(
        "ra-isf-arxiv-strategyqa",
        "StrategyQA as BIG-bench has it",
        (2_290,),
        2_290,
        unstated="which of 2,780; these have answers",
        questions="strategyqa:bigbench",
    ),
    Protocol("self-reasoning-nq", "NQ's test set", (3_610,), 3_610, unstated="the size", questions="nq:test"),
    Protocol(
        "self-reasoning-popqa",
        "PopQA",
        (14_267,),
        1_399,
        popularity_below=100,
        unstated="that 'long-tail' is Self-RAG's subset, whose figures it quotes",
        questions="popqa:test",
    ),
    Protocol(
        "self-reasoning-fever",
        "FEVER's dev set, or paper_dev, half of it",
        (19_998, 9_999),
        unstated="which of its dev sets, and the size",
        questions="fever:dev",
    ),
    Protocol("self-reasoning-asqa", "ASQA's dev set, or ALCE's file of it", (948,), 948, unstated="the size", questions="asqa:dev"),
    Protocol(
        "retrorag-hotpotqa",
        "HotpotQA's dev set",
        (7_405,),
        500,
        n_first=500,
        unstated="which 500; MetaRAG, which it follows, takes the first",
        questions="hotpotqa:dev",
    ),
    Protocol(
        "retrorag-2wikimultihopqa",
        "2WikiMultihopQA's dev set",
        (12_576,),
        500,
        n_first=500,
        unstated="which 500; MetaRAG takes the first",
        questions="2wikimultihopqa:dev",
    ),
    Protocol("retrorag-halluqa", "HalluQA", (450,), 206, type="Knowledge", questions="halluqa:test"),
    Protocol("refeed-nq", "NQ's test set (DPR's)", (3_610,), 3_610, questions="nq:test"),
    Protocol("refeed-triviaqa", "TriviaQA's test set (DPR's)", (11_313,), 11_313, questions="triviaqa:test"),
    Protocol(
        "refeed-hotpotqa",
        "HotpotQA's dev set of KILT",
        (5_600,),
        5_600,
        unstated="dev, as KILT gives no answers of its test set",
        questions="hotpotqa-kilt:dev",
    ),
    Protocol(
        "refeed-wow",
        "Wizard of Wikipedia's dev set of KILT",
        (3_054,),
        3_054,
        unstated="dev, as KILT gives no answers of its test set",
        questions="wow:dev",
    ),
    Protocol("iter-retgen-hotpotqa", "HotpotQA's dev set", (7_405,), 500, n_first=500, questions="hotpotqa:dev"),
    Protocol("iter-retgen-2wikimultihopqa", "2WikiMultihopQA's dev set", (12_576,), 500, n_first=500, questions="2wikimultihopqa:dev"),
    Protocol("iter-retgen-strategyqa", "StrategyQA's training set", (2_290,), 500, n_first=500, questions="strategyqa:train"),
    Protocol("react-hotpotqa", "HotpotQA's dev set", (7_405,), 500, is_shuffled=True, n_first=500, seed=233, questions="hotpotqa:dev"),
    Protocol("flashrag", "any set's test questions, else its dev ones", n_first=1_000),
)

PROTOCOLS = {entry.name: entry for entry in _ALL}
