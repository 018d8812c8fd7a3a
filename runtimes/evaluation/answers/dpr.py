"""Exact match of DPR and FiD, and F1 and ROUGE-L of GenRead.

Exact match and F1 differ from SQuAD 1.1's only in the normalisation, which takes word boundaries from the package ``regex``.

Sources: facebookresearch/DPR, dpr/data/qa_validation.py; facebookresearch/FiD, src/evaluation.py; wyu97/GenRead, evaluation.py.
"""

from __future__ import annotations

from wikidx.runtimes.evaluation import normalizing
from wikidx.runtimes.evaluation.answers.metric import Metric, references
from wikidx.runtimes.evaluation.answers.rouge import rouge_l
from wikidx.runtimes.evaluation.answers.token_overlap import best_exact_match, best_f1

exact_match, f1 = best_exact_match(normalizing.dpr), best_f1(normalizing.dpr)

METRICS = (
    Metric(
        "dpr_em",
        "Exact match of DPR and FiD. An empty answer matches a gold that normalises to the empty string. Undefined without golds.",
        lambda answer, question: exact_match(answer, question.golden_answers),
    ),
    Metric(
        "genread_f1",
        "GenRead's f1. 0 if answer and gold both normalise to the empty string. Undefined without golds.",
        lambda answer, question: f1(answer, references(question)),
    ),
    Metric(
        "genread_rouge_l",
        "GenRead's rl: ROUGE-L of the package rouge 1.0, without normalisation. An empty text scores 0. Undefined without golds.",
        lambda answer, question: max((rouge_l(answer, gold).f for gold in references(question)), default=None),
    ),
)
