"""Exact match of DPR and FiD, and F1 and ROUGE-L of GenRead.

Exact match and F1 differ from SQuAD 1.1's only in the normalisation, which takes word boundaries from the package ``regex``.

Sources: facebookresearch/DPR, dpr/data/qa_validation.py; facebookresearch/FiD, src/evaluation.py; wyu97/GenRead, evaluation.py.
"""

from __future__ import annotations

from wikidx.runtimes.evaluation import normalizing
from wikidx.runtimes.evaluation.answers.metric import official, references
from wikidx.runtimes.evaluation.answers.rouge import rouge_l
from wikidx.runtimes.evaluation.answers.token_overlap import best_exact_match, best_f1

exact_match, f1 = best_exact_match(normalizing.dpr), best_f1(normalizing.dpr)

METRICS = (
    official("dpr_em", lambda answer, question: exact_match(answer, question.golden_answers)),
    official("genread_f1", lambda answer, question: f1(answer, references(question))),
    official("genread_rouge_l", lambda answer, question: max((rouge_l(answer, gold).f for gold in references(question)), default=None)),
)
