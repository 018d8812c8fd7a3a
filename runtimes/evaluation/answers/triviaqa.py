"""TriviaQA's own exact match and F1 (mandarjoshi90/triviaqa, evaluation/triviaqa_evaluation.py).

The metrics differ from SQuAD's only in the normalisation, which replaces punctuation by spaces. The evaluator compares answers with the
data's ``NormalizedAliases``, which are already normalised in this way. Normalising the aliases again changes nothing.
"""

from __future__ import annotations

from wikidx.runtimes.evaluation import normalizing
from wikidx.runtimes.evaluation.answers.metric import official
from wikidx.runtimes.evaluation.answers.token_overlap import best_exact_match, best_f1

exact_match, f1 = best_exact_match(normalizing.triviaqa), best_f1(normalizing.triviaqa)

METRICS = (
    official("triviaqa_em", lambda answer, question: exact_match(answer, question.golden_answers)),
    official("triviaqa_f1", lambda answer, question: f1(answer, question.golden_answers)),
)
