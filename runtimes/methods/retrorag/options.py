"""Options of RetroRAG."""

from __future__ import annotations

from typing import Literal

from wikidx.corpora.validation import options
from wikidx.runtimes.methods.base import option


@options
class RetroRAGOptions:
    """Settings and ablations of the paper, and choices that the paper leaves open."""

    k: int = option(5, "paper", "passages retrieved in each round", minimum=1)
    n_source: int = option(5, "paper", "N: passages kept as source evidence", minimum=1)
    n_inferred: int = option(5, "paper", "K: statements kept as inferential evidence", minimum=1)
    max_rounds: int = option(5, "paper", "L_max: rounds at most", minimum=1)
    threshold: float = option(0.7, "paper", "t: an answer is accepted if its self-consistency is above this")
    gate: float = option(0.5, "paper", "an inference is kept if its relevance and its attribution are both above this")
    temperature: float = option(0.01, "paper", "of everything that is generated but the monitoring answer", maximum=100)
    monitor_temperature: float = option(1.0, "paper", "of the monitoring answer", maximum=100)

    answer_evaluation: bool = option(True, "paper", "False is 'w/o AE': no answer is judged, all rounds are run")
    ellery: bool = option(True, "paper", "False is 'w/o ELLERY': no evidence, the answerer alone, once")
    source_evidence: bool = option(True, "paper", "False is 'w/o SE': the answerer sees inferential evidence only")
    inferential_evidence: bool = option(True, "paper", "False is 'w/o IE': nothing is inferred")
    update_evidence: bool = option(True, "paper", "False is 'w/o UoE': evidence is neither scored nor exchanged, all of it is kept")
    evaluate_evidence: bool = option(True, "paper", "False is 'w/o EoE': every inference is kept, without gates")

    entities: Literal["llm", "capitals", "none"] = option(
        "llm",
        "proposed",
        "who names the key entities: a call before the first inferences, capital letters, or nobody",
    )
    missing_score: float = option(
        0.5, "proposed", "score where neither 'yes' nor 'no' is among the likeliest tokens; 0.5 passes no gate", maximum=1
    )
    at_budget: Literal["last", "best"] = option("last", "proposed", "the answer after the last round: its own, or the most consistent one")
    assessor: Literal["off", "before", "after"] = option(
        "off",
        "proposed",
        "the declarative assessor (MetaRAG's): never, on each round's answer before it is judged, or once on the final one; "
        "where it finds fault the answer is given once more",
    )
    repeated_query: Literal["search", "perturb", "stop"] = option(
        "search",
        "paper",
        "a query that was searched before is searched again, made the question and the last answer, or ends the rounds",
    )
    max_inferences: int = option(10, "proposed", "inferences of one round at most, the rest of an endless list being left out", minimum=1)
    shots: int = option(4, "proposed", "demonstrations before the answerer's question (MetaRAG: 4)")
    reason_tokens: int = option(512, "proposed", "tokens of the answerer's reason and answer", minimum=1)
    answer_tokens: int = option(64, "proposed", "tokens of the monitoring answer, the entities and the query, each", minimum=1)
    inference_tokens: int = option(512, "proposed", "tokens of a round's inferences", minimum=1)
