"""Options of RA-ISF. Where the paper's text, algorithm, examples and code disagree, an option offers each variant."""

from __future__ import annotations

from typing import Literal

from wikidx.base.validation import options
from wikidx.runtimes.methods.base import option
from wikidx.runtimes.methods.forms import describe_forms
from wikidx.runtimes.methods.reading import ReadingOptions

RaIsfForm = Literal["short", "sentence", "yes_no", "fever"]


@options
class RaIsfOptions(ReadingOptions):
    """The paper's hyper-parameters and ablations, and choices that the paper leaves open."""

    know: bool = option(True, "paper", "ask whether the model knows the answer; false: always retrieve (No-SKM)")
    relevance: Literal["each", "joint", "off"] = option(
        "each",
        "paper, open",
        "each: one call per passage (Algorithm 1); joint: one call names all relevant passages, or none if together they do not suffice "
        "(appendix E); off: no retrieval (No-PRM)",
    )
    decompose: bool = option(True, "paper", "decompose the question if no passage is relevant; false: the answer is unknown (No-QDM)")
    k: int = option(5, "paper", "number of passages retrieved for a question, as in appendix E", minimum=1)
    max_depth: int = option(3, "paper", "D_th, the depth limit; the original question has depth 0, its sub-questions have depth 1")
    depth_test: Literal["exceeded", "reached", "leaf"] = option(
        "exceeded",
        "paper, open",
        "exceeded: questions deeper than D_th are unknown (Algorithm 1, 'iter > D_th', so D_th + 1 decompositions); reached: questions at "
        "depth D_th are unknown (the paper's text); leaf: questions at depth D_th are answered but not decomposed (the paper's text, and "
        "No-QDM with D_th = 0)",
    )
    answer_from: Literal["relevant", "all"] = option(
        "relevant",
        "paper, open",
        "passages to answer from if any is relevant; relevant: only these (equation 3); all: all retrieved ones (Algorithm 1, line 18)",
    )
    max_query_tokens: int = option(
        64, "paper, open", "maximum number of tokens of a search query; the last tokens of the question are kept; 0: no limit"
    )
    remove_question: bool = option(True, "paper", "leave out passages that contain the original question (section 4.3)")
    if_none_answered: Literal["synthesise", "unknown", "closed_book", "passages"] = option(
        "synthesise",
        "paper, open",
        "rule if no sub-question is answered; synthesise: answer from the sub-questions anyway; unknown: the answer is unknown; "
        "closed_book: answer without passages; passages: answer from the retrieved passages, although none is relevant",
    )
    synthesis: Literal["answers", "recall"] = option(
        "answers",
        "paper",
        "answers: answer from the sub-questions and their answers (equation 4); recall: what these leave open, from what the model knows",
    )
    max_sub_questions: int = option(
        5,
        "ours",
        "maximum number of sub-questions of a question, further ones are ignored; 0: no limit, as in the paper. With 5, a question that is "
        "never answered takes 1,248 calls and 156 searches",
    )
    repeated: Literal["solve", "omit"] = option(
        "solve",
        "paper, open",
        "sub-questions that equal their question or one above it; solve: decomposed again, to the limit (Algorithm 1); omit: left out",
    )
    refer_back: bool = option(False, "paper", "solve sub-questions in order; #1 in a later one is replaced by the first answer, and so on")
    verdicts: Literal["words", "choice", "probability"] = option(
        "words",
        "paper",
        "form of yes/no verdicts; words: free text; choice: structured output, either yes or no; probability: yes if P(yes) of the next "
        "token is at least 0.5",
    )
    form: RaIsfForm = option(
        "short",
        "ours",
        f"{describe_forms(RaIsfForm)}. The paper's examples (appendix E) are sentences; otherwise sub-questions have short answers",
    )
    shots: int = option(0, "paper, open", "number of demonstrations in each prompt")
    max_tokens: int = option(256, "ours", "maximum number of tokens of an answer, and of a list of sub-questions", minimum=1)
