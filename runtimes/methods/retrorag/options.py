"""Options of RetroRAG."""

from __future__ import annotations

from typing import Literal

from wikidx.base.validation import options
from wikidx.runtimes.methods.base import option
from wikidx.runtimes.methods.forms import describe_forms
from wikidx.runtimes.methods.reading import ReadingOptions


@options
class RetroRAGOptions(ReadingOptions):
    """Settings and ablations of the paper, and choices that the paper leaves open."""

    form: Literal["short", "yes_no"] = option("short", "ours", describe_forms(Literal["short", "yes_no"]))
    k: int = option(5, "paper", "number of passages retrieved in each round", minimum=1)
    n_source: int = option(5, "paper", "N: maximum number of passages kept as source evidence", minimum=1)
    n_inferred: int = option(5, "paper", "K: maximum number of statements kept as inferential evidence", minimum=1)
    max_rounds: int = option(5, "paper", "L_max: maximum number of rounds", minimum=1)
    threshold: float = option(0.7, "paper", "t: an answer is accepted if its self-consistency exceeds this value")
    gate: float = option(0.5, "paper", "a statement is kept if its relevance and its attribution both exceed this value")
    temperature: float = option(0.01, "paper", "temperature of all outputs except the monitoring answer", maximum=100)
    monitor_temperature: float = option(1.0, "paper", "temperature of the monitoring answer", maximum=100)

    answer_evaluation: bool = option(
        True, "paper", "score each answer's consistency, and stop when one is accepted; false: run all rounds (w/o AE)"
    )
    ellery: bool = option(True, "paper", "collect evidence in rounds; false: answer once, without evidence (w/o ELLERY)")
    source_evidence: bool = option(True, "paper", "show the answerer the source evidence; false: only inferential evidence (w/o SE)")
    inferential_evidence: bool = option(True, "paper", "infer statements from the passages; false: no inference (w/o IE)")
    update_evidence: bool = option(True, "paper", "keep only the most useful evidence; false: keep all, unscored (w/o UoE)")
    evaluate_evidence: bool = option(True, "paper", "apply the gate to inferred statements; false: no gate (w/o EoE)")

    entities: Literal["llm", "capitals", "none"] = option(
        "llm",
        "paper, open",
        "source of the key entities; llm: a call before the first inference; capitals: capitalised words in the question; none: none",
    )
    at_budget: Literal["last", "best"] = option(
        "last", "paper, open", "final answer if none is accepted; last: the answer of the last round; best: the most consistent answer"
    )
    assessor: Literal["off", "before", "after"] = option(
        "before",
        "paper, open",
        "place of the declarative assessor, after whose criticism the answer is revised, as in MetaRAG; before: on each round's answer, "
        "before its consistency is scored; after: on the final answer; off: none",
    )
    repeated_query: Literal["search", "perturb", "stop"] = option(
        "search",
        "paper",
        "rule for a repeated query; search: search again; perturb: search with question and last answer instead; stop: end the rounds",
    )
    max_inferences: int = option(
        20, "ours", "maximum number of new statements per round, further ones are ignored; 0: no limit, as in the paper"
    )
    shots: int = option(4, "authors' code", "number of demonstrations in the answerer's prompt (MetaRAG: 4)")
    max_tokens: int = option(
        512,
        "ours",
        "maximum number of tokens of the answerer's and the assessor's outputs, and of a round's inferred statements; monitoring answers, "
        "entities and queries have at most 64",
        minimum=1,
    )
