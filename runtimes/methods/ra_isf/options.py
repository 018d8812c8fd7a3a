"""Options of RA-ISF. Where the paper's text, algorithm, examples and code disagree, an option offers each variant."""

from __future__ import annotations

from typing import Literal

from wikidx.corpora.validation import options
from wikidx.runtimes.methods.base import option


@options
class RaIsfOptions:
    """The paper's hyper-parameters and ablations, and choices that the paper leaves open."""

    know: bool = option(True, "paper", "ask whether the model knows the answer; False: No-SKM, always retrieve")
    relevance: Literal["each", "joint", "off"] = option(
        "each",
        "paper",
        "each: one call a passage (Algorithm 1); joint: one call, relevant and sufficient (appendix E); off: No-PRM, no retrieval",
    )
    decompose: bool = option(True, "paper", "break the question down if no passage is relevant; False: No-QDM, the answer is unknown")
    k: int = option(5, "paper", "passages retrieved for a question, as in appendix E", minimum=1)
    max_depth: int = option(3, "paper", "D_th; the question asked has depth 0, its sub-questions 1")
    depth_test: Literal["exceeded", "reached", "leaf"] = option(
        "exceeded",
        "paper",
        "unknown is what is deeper than D_th (exceeded: Algorithm 1, 'iter > D_th', so D_th + 1 decompositions), or at D_th (reached: the "
        "text), or at D_th and neither known nor found (leaf: the text, and No-QDM as D_th = 0)",
    )
    answer_from: Literal["relevant", "all"] = option(
        "relevant",
        "paper",
        "passages that are read: relevant (equation 3), or all if one is relevant (Algorithm 1, line 18)",
    )
    max_query_tokens: int = option(64, "paper", "tokens of a search query, taken from the question's end; 0: no limit")
    remove_question: bool = option(True, "paper", "leave out passages that contain the question asked (section 4.3)")
    if_none_answered: Literal["synthesise", "unknown", "closed_book", "passages"] = option(
        "synthesise",
        "paper",
        "where there is no sub-question or all are unknown: combine them anyway, answer unknown, or answer closed-book or from "
        "the passages that were found irrelevant",
    )
    max_sub_questions: int = option(5, "proposed", "sub-questions of a question, the first of the list")
    refer_back: bool = option(False, "paper", "solve sub-questions in order, with the answer to the first in place of #1, and so on")
    verdicts: Literal["words", "choice", "probability"] = option(
        "words",
        "paper",
        "form of yes or no: in words, in words by structured output, or by the next token's probability",
    )
    know_threshold: float = option(0.5, "proposed", "with verdicts by probability: least P(yes) of a question that is known", maximum=1)
    relevance_threshold: float = option(0.5, "proposed", "with verdicts by probability: least P(yes) of a relevant passage", maximum=1)
    answer_form: Literal["short", "sentence", "yes_no"] = option(
        "short",
        "proposed",
        "short, a sentence as in appendix E, or yes_no: yes or no to the question asked, short answers to its sub-questions",
    )
    shots: int = option(0, "proposed", "demonstrations before each prompt")
    max_tokens: int = option(256, "proposed", "tokens of an answer, and of a list of sub-questions", minimum=1)
